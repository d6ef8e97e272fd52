//! Agents on loopback in threads, agents and clients as processes, and what clients deploy.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use machine::{Bytes, Result};
use offcode::channel::Content;
use offcode::channel::{Buffers, Policy, Synchronization};
use offcode::registry::Described;
use offcode::{Attributes, Channel, Manifest, Registry, Specification, Written};
use runtime::agent::{Agent, Limits, Options, Reason, Summary, keys};
use runtime::code::Code;
use runtime::site::agent::AgentSite;
use runtime::site::{Deployment, SiteDriver, Slot};
use tempfile::TempDir;

use super::site::{Echo, PlainSite};

/// Repeats `attempt` until it is true.
pub fn comes(what: &str, mut attempt: impl FnMut() -> bool) {
    let deadline = Instant::now() + skip::LIMIT;
    while !attempt() {
        assert!(Instant::now() < deadline, "{what}: not within {:?}", skip::LIMIT);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Keys for agents on loopback and in a lab, in a folder that goes with the test.
pub fn keys() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    keys::make(folder.path(), &["127.0.0.1".into(), "198.18.0.1".into(), "198.18.0.2".into()]).unwrap();
    folder
}

pub fn registry() -> Registry {
    Registry::new().with::<Echo>()
}

/// An agent in a thread of this process.
pub struct Running {
    pub keys: TempDir,
    pub address: SocketAddr,
    pub lines: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    bell: Arc<dyn machine::channel::Bell>,
    thread: Option<JoinHandle<Result<Summary>>>,
}

impl Running {
    pub fn start(limits: Limits) -> Running {
        Running::with(limits, Box::new(PlainSite::default()))
    }

    pub fn with(limits: Limits, site: Box<dyn SiteDriver>) -> Running {
        Running::with_registry(limits, site, registry())
    }

    pub fn with_registry(limits: Limits, site: Box<dyn SiteDriver>, registry: Registry) -> Running {
        Running::with_sites(limits, vec![site], registry)
    }

    pub fn with_sites(limits: Limits, sites: Vec<Box<dyn SiteDriver>>, registry: Registry) -> Running {
        let keys = keys();
        let options = Options { listen: "127.0.0.1:0".parse().unwrap(), keys: keys.path().join("127.0.0.1"), limits };
        let lines = Arc::new(Mutex::new(Vec::new()));
        let theirs = lines.clone();
        let log = move |line: &str| theirs.lock().unwrap().push(line.to_owned());
        let agent = Agent::bind(&options, registry, sites, log).unwrap();
        let address = agent.address().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let asked = stop.clone();
        let bell = agent.bell();
        let thread = std::thread::spawn(move || agent.run(|| asked.load(Ordering::Relaxed)));
        Running { keys, address, lines, stop, bell, thread: Some(thread) }
    }

    pub fn host(&self) -> String {
        self.address.to_string()
    }

    pub fn client_keys(&self) -> PathBuf {
        self.keys.path().join("client")
    }

    /// One that comes in before long: in a flood the agent drops the oldest of those that wait, be it a friend.
    pub fn client(&self) -> AgentSite {
        let deadline = Instant::now() + skip::LIMIT;
        loop {
            match AgentSite::connect(&self.host(), &self.client_keys()) {
                Ok(client) => return client,
                Err(fault) => assert!(Instant::now() < deadline, "{fault}"),
            }
        }
    }

    pub fn stream(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(skip::LIMIT)).unwrap();
        stream
    }

    /// Waits for a line with these words.
    pub fn logged(&self, words: &str) {
        let found = || self.lines.lock().unwrap().iter().any(|line| line.contains(words));
        let deadline = Instant::now() + skip::LIMIT;
        while !found() {
            if Instant::now() > deadline {
                let lines = self.lines.lock().unwrap();
                panic!(
                    "'{words}' is not in {} lines, the last: {:#?}",
                    lines.len(),
                    &lines[lines.len().saturating_sub(15)..]
                );
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn end(mut self) -> Summary {
        self.stop.store(true, Ordering::Relaxed);
        self.bell.ring();
        self.thread.take().unwrap().join().unwrap().unwrap()
    }

    /// Serves a client from the connection to a message and its echo.
    pub fn serves(&self) {
        let mut client = self.client();
        round_trip(&mut client);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub fn refused(summary: &Summary, reason: Reason) -> u64 {
    summary.refused.get(&reason).copied().unwrap_or(0)
}

pub fn manifest() -> Arc<Manifest> {
    Arc::new(Echo::manifest())
}

pub fn deployment(name: &str, code: Code) -> Deployment {
    Deployment {
        name: name.into(),
        manifest: manifest(),
        code,
        attributes: Attributes::default(),
        memory: Default::default(),
    }
}

pub fn native() -> Code {
    Code::Native(Arc::new(|| Box::new(Echo::default())))
}

pub fn specification() -> Specification {
    Specification {
        synchronization: Synchronization::Poll,
        content: Content::Messages,
        buffers: Buffers { count: 16, size: Bytes(1024), policy: Policy::Copy },
        ..Specification::default()
    }
}

/// Deployed, initialized and started.
pub fn launch(site: &mut AgentSite, name: &str) -> Slot {
    let slot = site.deploy(deployment(name, native())).unwrap();
    site.initialize(slot).unwrap();
    site.start(slot).unwrap();
    slot
}

/// One message there and back.
pub fn echoed(end: &mut dyn Channel, message: &[u8]) {
    comes("room", || end.write(message).unwrap() == Written::Taken);
    let mut came = Vec::new();
    comes("the echo", || end.read_with(&mut |bytes| came = bytes.to_vec()).unwrap());
    assert_eq!(came, message);
}

/// An offcode is deployed, echoes over both kinds of channel, and is removed.
pub fn round_trip(site: &mut AgentSite) {
    let slot = launch(site, "echo");
    let mut control = site.connect(slot, "", specification()).unwrap();
    let mut fast = site.connect(slot, "fast", specification()).unwrap();
    echoed(&mut *control, b"out of band");
    echoed(&mut *fast, b"over the engine");
    site.remove(slot).unwrap();
}

const ROLE: &str = "PLIMSOLL_AGENT_TEST_ROLE";

/// A process that plays a part until its standard input closes, which it does however this process ends.
pub struct Player {
    pub child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Player {
    /// `prepare` may place the process in a lab's host.
    pub fn start(arguments: &[&str], prepare: impl FnOnce(&mut Command)) -> Player {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["agent::rig::as_player", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, arguments.join("\n"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        prepare(&mut command);
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Player { child, output }
    }

    pub fn agent(listen: &str, keys: &Path, prepare: impl FnOnce(&mut Command)) -> (Player, SocketAddr) {
        let mut player = Player::start(&["agent", listen, keys.to_str().unwrap()], prepare);
        let address = player.says("listening ").parse().unwrap();
        (player, address)
    }

    /// What follows `word` in a line that the process prints.
    pub fn says(&mut self, word: &str) -> String {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
            line.clear();
        }
        panic!("the process ended before it said '{word}'");
    }

    /// kill -9.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test of its own: the part that a [`Player`] plays.
#[test]
fn as_player() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let arguments: Vec<&str> = role.split('\n').collect();
    let closed = Arc::new(AtomicBool::new(false));
    let (seen, bell) = (closed.clone(), Arc::new(OnceLock::<Arc<dyn machine::channel::Bell>>::new()));
    let rung = bell.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        seen.store(true, Ordering::Relaxed);
        rung.get().iter().for_each(|bell| bell.ring());
    });
    let say = |line: String| {
        println!("{line}");
        std::io::stdout().flush().unwrap();
    };
    match arguments.as_slice() {
        ["agent", listen, keys] => {
            let options = Options { listen: listen.parse().unwrap(), keys: keys.into(), limits: Limits::default() };
            let agent = Agent::bind(&options, registry(), vec![Box::new(PlainSite::default())], |_| {}).unwrap();
            drop(bell.set(agent.bell()));
            say(format!("listening {}", agent.address().unwrap()));
            agent.run(|| closed.load(Ordering::Relaxed)).unwrap();
        }
        ["client", host, keys, count] => {
            let mut site = AgentSite::connect(host, Path::new(keys)).unwrap();
            for n in 0..count.parse().unwrap() {
                launch(&mut site, &format!("theirs-{n}"));
            }
            say("deployed".into());
            while !closed.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        ["hook client", host, keys, part] => {
            let _site = super::hooks::as_client(host, keys, part);
            say("deployed".into());
            while !closed.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        _ => panic!("no such part: {role}"),
    }
}
