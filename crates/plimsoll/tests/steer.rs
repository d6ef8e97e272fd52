//! `plimsoll steer` on an interface of a lab, whose end leaves no trace.

use crate::golden;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use linux::accounting::softirq_counts;
use linux::lab::{Host, Lab, Options};
use machine::{CoreId, FaultKind};
use rustix::process::{Pid, Signal, kill_process};

const INTERFACE: &str = "lab0";
const ROUNDS: usize = 300;

fn plimsoll(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.arg("steer").args(arguments);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A lab, and the last two cores: work is steered from the second to the first.
fn lab() -> Option<(Lab, CoreId, CoreId)> {
    let cores = linux::affinity::allowed().unwrap();
    let [.., elsewhere, core] = cores[..] else {
        skip::test("one core, nothing to steer to");
        return None;
    };
    match Lab::owned(&Options::default()) {
        Ok(lab) => Some((lab, core, elsewhere)),
        Err(fault) if [FaultKind::NotPermitted, FaultKind::Missing].contains(&fault.kind()) => {
            skip::test(fault);
            None
        }
        Err(fault) => panic!("{fault}"),
    }
}

/// The cores in host b's mask.
fn steered(lab: &Lab) -> Vec<CoreId> {
    lab.status().unwrap().hosts[1].protocol_cores.clone()
}

/// Starts `script` under a steering of host b to `core`, and returns once it runs.
fn start(lab: &Lab, core: CoreId, script: &str) -> Child {
    let mut command = plimsoll(&[INTERFACE, "--receive", &core.0.to_string(), "--", "sh", "-c"]);
    command.arg(format!("echo ready; {script}")).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = lab.enter(Host::B, &mut command).unwrap().spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    if line != "ready\n" {
        panic!("{}", said(&child.wait_with_output().unwrap()));
    }
    assert_eq!(steered(lab), [core]);
    child
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + skip::LIMIT;
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn signal(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process as i32).unwrap(), signal).unwrap();
}

fn receive_softirqs(core: CoreId) -> u64 {
    let counts = softirq_counts(&fs::read_to_string("/proc/softirqs").unwrap()).unwrap();
    counts.iter().find(|(other, _)| *other == core).unwrap().1.net_rx
}

/// Messages from host a to host b and back, by a thread on `from`. Returns the core that worked on the last one to b.
fn traffic(lab: &Lab, from: CoreId) -> CoreId {
    let socket = |host| lab.inside(host, || UdpSocket::bind((lab.address(host), 0))).unwrap().unwrap();
    let (a, b) = (socket(Host::A), socket(Host::B));
    a.connect(b.local_addr().unwrap()).unwrap();
    b.connect(a.local_addr().unwrap()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            linux::affinity::settle(&[from]).unwrap();
            for _ in 0..ROUNDS {
                a.send(b"x").unwrap();
                b.recv(&mut [0; 8]).unwrap();
                b.send(b"x").unwrap();
                a.recv(&mut [0; 8]).unwrap();
            }
        });
    });
    CoreId(rustix::net::sockopt::socket_incoming_cpu(&b).unwrap())
}

#[test]
fn receive_work_goes_where_it_is_asked_to_and_comes_back_at_the_end() {
    let Some((lab, core, elsewhere)) = lab() else { return };
    assert_eq!(traffic(&lab, elsewhere), elsewhere, "without steering the sender does it");
    let mut running = start(&lab, core, "read line; exit 7");
    let before = receive_softirqs(core);
    assert_eq!(traffic(&lab, elsewhere), core);
    let softirqs = receive_softirqs(core) - before;
    // In lockstep each message to b costs a softirq there, which it may share with other interfaces' packets.
    assert!(softirqs >= ROUNDS as u64 / 2, "{softirqs} receive softirqs on {core} for {ROUNDS} messages");

    let mut second = plimsoll(&[INTERFACE, "--receive", "0", "--", "true"]);
    let refused = lab.enter(Host::B, &mut second).unwrap().output().unwrap();
    let words = format!("process {} (plimsoll) has it", running.id());
    assert!(!refused.status.success() && said(&refused).contains(&words), "{}", said(&refused));

    drop(running.stdin.take());
    let output = running.wait_with_output().unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(7), "{said}");
    let set = format!("rps {INTERFACE} 0: cores {}, was no cores", core.0);
    assert!(said.contains(&set) && said.contains(&format!("core {}: ", core.0)), "{said}");
    assert_eq!(steered(&lab), []);
    assert_eq!(traffic(&lab, elsewhere), elsewhere);
}

#[test]
fn signals_go_to_the_command_and_everything_comes_back() {
    let Some((lab, core, _)) = lab() else { return };
    for (asked, code) in [(Signal::TERM, 143), (Signal::USR1, 138)] {
        let running = start(&lab, core, "exec sleep 600");
        signal(running.id(), asked);
        let output = running.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        assert_eq!(steered(&lab), []);
    }
}

/// The child of `owner` that waits for its end.
fn keeper_of(owner: u32) -> u32 {
    let mut keeper = None;
    // The kernel's list may lack a child while another one ends (proc_pid_task(5)).
    wait_until("it has a keeper", || {
        let children = fs::read_to_string(format!("/proc/{owner}/task/{owner}/children")).unwrap();
        let is_it = |child: &&str| {
            fs::read_to_string(format!("/proc/{child}/cmdline")).is_ok_and(|line| line.contains("steering-keeper"))
        };
        keeper = children.split_whitespace().find(is_it).map(|child| child.parse().unwrap());
        keeper.is_some()
    });
    keeper.unwrap()
}

#[test]
fn after_kill_9_the_keeper_restores_and_after_its_own_the_next_start() {
    let Some((lab, core, _)) = lab() else { return };
    let mut running = start(&lab, core, "exec sleep 600");
    running.kill().unwrap();
    running.wait().unwrap();
    wait_until("the keeper has restored", || steered(&lab).is_empty());

    let mut running = start(&lab, core, "exec sleep 600");
    signal(keeper_of(running.id()), Signal::KILL);
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(steered(&lab), [core], "nobody has restored it yet");
    let output = lab.enter(Host::B, &mut plimsoll(&[])).unwrap().output().unwrap();
    let said = said(&output);
    assert!(
        output.status.success() && said.contains(&format!("what a killed run had set on {INTERFACE} is restored")),
        "{said}"
    );
    assert_eq!(steered(&lab), []);
    // And it can be steered again, by a run whose keeper alone is killed.
    let mut running = start(&lab, core, "read line; true");
    signal(keeper_of(running.id()), Signal::KILL);
    drop(running.stdin.take());
    assert!(running.wait().unwrap().success());
    assert_eq!(steered(&lab), []);
}

#[test]
fn an_irqbalance_is_noticed() {
    let script = "echo irqbalance >/proc/self/comm; echo ready; read line";
    let mut daemon =
        Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let output = plimsoll(&["--json"]).output().unwrap();
    drop(daemon.stdin.take());
    let read: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // A machine may run its own irqbalance.
    let found = read["irqbalance"]["measured"].as_u64();
    assert!(found.is_some_and(|process| process <= u64::from(daemon.id())), "{found:?}, not {}", daemon.id());
    daemon.wait().unwrap();
    assert!(read["interfaces"].as_array().unwrap().iter().any(|of| of["interface"] == "lo"), "{read}");
}

#[test]
fn archived_machines_print_their_golden_pages() {
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    for name in ["xeon-two-socket", "epyc-one-socket", "vm-two-core"] {
        let machine = machines.join(name);
        let output = plimsoll(&["--root", machine.to_str().unwrap()]).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        golden::check(&machine.join("steering.txt"), &String::from_utf8(output.stdout).unwrap());
    }
}

#[test]
fn what_cannot_be_is_refused_with_its_next_step() {
    for (arguments, words) in [
        (&["lo", "--receive", "0"][..], "nothing stays changed"),
        (&["lo", "--", "true"], "it is not said what to steer"),
        (&["--receive", "0", "--", "true"], "it is not said which interface"),
        (&["no-such0", "--receive", "0", "--", "true"], "interface no-such0: "),
        (&["no-such0"], "interface no-such0: "),
        (&["lo", "--receive", "50000", "--", "true"], "core 50000: "),
        (&["lo", "--receive", "x", "--", "true"], "it is no list of cores"),
        (&["lo", "--receive", "0", "--by", "magic", "--", "true"], "there is no such means"),
    ] {
        let output = plimsoll(arguments).output().unwrap();
        assert!(!output.status.success() && said(&output).contains(words), "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn a_sys_of_another_network_namespace_is_not_taken_for_this_ones() {
    let Some(unshare) = skip::tool("unshare") else { return };
    let inside = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(&unshare);
        command.args(["--user", "--map-root-user", "--net", program]).args(arguments).output().unwrap()
    };
    if !inside("true", &[]).status.success() {
        return skip::test("no user namespace may be made here");
    }
    if machine::interface::names(&machine::Source::live()).is_none_or(|names| names == ["lo"]) {
        return skip::test("this host has no interface but lo");
    }
    let program = env!("CARGO_BIN_EXE_plimsoll");
    for arguments in [&["steer"][..], &["steer", "lo", "--receive", "0", "--", "true"]] {
        let output = inside(program, arguments);
        let said = said(&output);
        assert!(!output.status.success() && said.contains("of another network namespace"), "{said}");
        assert!(said.contains("mount -t sysfs"), "{said}");
    }
    let output = inside(program, &["machine"]);
    assert!(output.status.success() && said(&output).contains("of another network namespace"), "{}", said(&output));
    assert!(!said(&output).contains("rps:"), "{}", said(&output));
}
