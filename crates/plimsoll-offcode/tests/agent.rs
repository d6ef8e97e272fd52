//! `plimsoll agent` as a program: keys, a client, refusals, signals.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use runtime::site::SiteDriver;
use runtime::site::agent::AgentSite;
use rustix::process::{Pid, Signal, kill_process};

fn plimsoll(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll-offcode")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn make_keys(folder: &Path) -> String {
    let made = plimsoll(&["agent", "keys", "--directory", folder.to_str().unwrap(), "--host", "127.0.0.1"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap()
}

struct Agent {
    child: Child,
    address: SocketAddr,
}

impl Agent {
    fn start(keys: &Path, arguments: &[&str]) -> Agent {
        let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll-offcode"))
            .args(["agent", "--listen", "127.0.0.1:0", "--keys", keys.join("127.0.0.1").to_str().unwrap()])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        child.stdout = Some(output.into_inner());
        let address = line.trim().rsplit(' ').next().unwrap().parse().unwrap();
        Agent { child, address }
    }

    /// Asks it to end, and gives what it printed since.
    fn end(mut self, signal: Signal) -> (String, String) {
        // SIGTERM is how a server is told to end; Ctrl-C interrupts it.
        let expected = if signal == Signal::INT { 130 } else { 0 };
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let until = Instant::now() + skip::LIMIT;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "it goes on after {signal:?}");
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(status.code(), Some(expected));
        let (mut output, mut log) = (String::new(), String::new());
        self.child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        (output, log)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn keys_are_made_and_an_agent_with_them_serves_and_ends_on_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let said = make_keys(folder.path());
    assert!(said.contains("made for client") && said.contains("made for 127.0.0.1, good until 2"), "{said}");
    assert!(make_keys(folder.path()).contains("renewed for client"));
    for signal in [Signal::TERM, Signal::INT] {
        let agent = Agent::start(folder.path(), &[]);
        let mut site = AgentSite::connect(&agent.address.to_string(), folder.path()).unwrap();
        site.turn().unwrap();
        let mut unknown = TcpStream::connect(agent.address).unwrap();
        unknown.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let _ = unknown.read_to_end(&mut Vec::new());
        let (output, log) = agent.end(signal);
        assert_eq!(output, "plimsoll agent: ended; 1 client; refused: 1 not TLS 1.3\n");
        assert!(log.contains("refused: not TLS 1.3") && log.contains("authenticated"), "{log}");
    }
}

#[test]
fn an_agent_on_a_core_serves() {
    let folder = tempfile::tempdir().unwrap();
    make_keys(folder.path());
    let core = linux::affinity::allowed().unwrap().last().unwrap().0.to_string();
    let agent = Agent::start(folder.path(), &["--cores", &core, "--limit", "clients=1"]);
    let site = AgentSite::connect(&agent.address.to_string(), folder.path()).unwrap();
    let fault = AgentSite::connect(&agent.address.to_string(), folder.path()).map(drop).unwrap_err().to_string();
    assert!(fault.contains("1 clients are served already"), "{fault}");
    drop(site);
    agent.end(Signal::TERM);
}

#[test]
fn what_cannot_be_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str], words: &str| {
        let output = plimsoll(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{arguments:?}: {said}");
    };
    refused(&["agent", "--keys", "/nonexistent"], "plimsoll agent keys");
    refused(&["agent", "--limit", "nonsense=1"], "there is no such limit");
    refused(&["agent", "--limit", "clients"], "NAME=NUMBER");
    refused(&["agent", "--listen", "here"], "not a numeric address");
    refused(&["agent", "--cores", "4000", "--keys", "/nonexistent"], "core 4000");
    let keys = folder.path().to_str().unwrap();
    refused(&["agent", "keys", "--directory", keys, "--host", "../x"], "no DNS name and no address");
}
