//! `plimsoll bench` against real peers: output, refusals, and what remains when a process is killed.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use machine::CoreId;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    // One core for both ends works on every machine.
    command.args(["bench", "sweep", "--cores", "0,0"]).args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    bench(arguments).args(["--rounds", "1"]).output().unwrap()
}

/// The processes whose parent is `parent`.
fn children(parent: u32) -> Vec<u32> {
    let stat_parent = |pid: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| stat_parent(*pid) == Some(parent)).collect()
}

fn runs(pid: u32) -> bool {
    // A zombie that nobody has reaped yet has ended.
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').unwrap_or_default().1.trim_start().starts_with('Z'))
}

/// Ticks of CPU time that a process has used.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').unwrap_or_default().1.split_whitespace();
    fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + skip::LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what} did not happen");
        sleep(Duration::from_millis(5));
    }
}

/// A running bench in a process group of its own, which a test can signal as a terminal does; killed when dropped.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Running {
        Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn().unwrap())
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process_group(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Waits for its end: exit status, standard output and standard error.
    fn end(&mut self) -> (ExitStatus, String, String) {
        let status = until("the end of the bench", || self.0.try_wait().unwrap());
        let (mut out, mut err) = (String::new(), String::new());
        self.0.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (status, out, err)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A bench that would run for minutes, and its working peer.
fn long_bench() -> (Running, u32) {
    let bench = Running::start(&mut bench(&["--sizes", "8", "--rounds", "10000"]));
    let peer = until("a peer", || children(bench.0.id()).first().copied());
    until("work of the peer", || (ticks(peer) >= 5).then_some(()));
    (bench, peer)
}

#[test]
fn every_pattern_over_the_kernels_stacks_gives_samples() {
    for pattern in ["ping-pong", "stream", "bidirectional", "window", "message-rate"] {
        let output = run(&["--stack", "tcp,udp", "--pattern", pattern, "--sizes", "8,5000", "--json"]);
        assert!(output.status.success(), "{pattern}: {}", String::from_utf8_lossy(&output.stderr));
        let points: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let points = points.as_array().unwrap();
        assert_eq!(points.len(), 4);
        for point in points {
            let sample = &point["samples"][0];
            assert!(sample["value"].as_f64().unwrap() > 0.0, "{point}");
            assert!(sample["messages"].as_u64().unwrap() > 0);
            if point["spec"]["stack"] == "tcp" {
                assert_eq!(sample["lost"], 0);
            }
        }
    }
}

#[test]
fn a_receiver_that_works_and_cold_buffers_run_too() {
    let arguments = ["--pattern", "stream-no-cache", "--receiver", "works", "--sizes", "64KiB"];
    let output = run(&arguments);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("64 KiB") && text.contains("tcp in the kernel"), "{text}");
    assert!(text.contains("both ends share core 0"), "{text}");
}

#[test]
fn the_core_of_the_peers_engine_is_part_of_the_point() {
    let placed = ["--stack", "engine-shm", "--placement", "core:0", "--sizes", "8", "--rounds", "1", "--json"];
    let point = |more: &[&str]| {
        let output = bench(&[&placed, more].concat()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        text
    };
    assert!(point(&["--peer-engine", "0"]).contains("\"peer_engine\": 0"));
    // The core is chosen where none is named, and reported.
    assert!(point(&[]).contains("\"peer_engine\": "));
}

#[test]
fn what_cannot_be_is_refused_with_cause_and_next_step() {
    for (arguments, words) in [
        (&["--stack", "carrier-pigeon"][..], "stack 'carrier-pigeon': there is no such stack"),
        (&["--cores", "0,9999"], "core 9999: this machine has no such core"),
        (&["--cores", "9999,0"], "core 9999: this machine has no such core"),
        (&["--cores", "9999"], "core 9999: this machine has no such core"),
        (&["--cores", "0"], "one core, where the two ends of a path need one each"),
        (&["--cores", "0,1,2"], "the two ends of a path need one each"),
        (&["--placement", "core:1"], "placement core:1"),
        (&["--stack", "engine-shm", "--placement", "core:9999"], "placement core:9999: core 9999: this machine has no"),
        (&["--sizes", "0"], "message size 0 B"),
        (&["--sizes", "128MiB"], "message size 128 MiB"),
        (&["--sizes", "9..8"], "the range is empty"),
        (&["--protocol-core", "0"], "protocol core 0"),
        (&["--path", "127.0.0.1:1"], "host 127.0.0.1:1"),
        (&["--receiver", "both"], "receiver 'both': there is no such receiver"),
        (&["--peer-engine", "0"], "core of the peer's engine: at placement app"),
        (
            &["--stack", "engine-udp", "--placement", "core:0", "--peer-engine", "9999"],
            "core 9999: this machine has no",
        ),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        let given = arguments[0] == "--cores";
        let fixed: &[&str] = if given { &["bench", "sweep"] } else { &["bench", "sweep", "--cores", "0,0"] };
        let output = command.args(fixed).args(["--rounds", "1"]).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?} was accepted");
        assert!(said.contains(words) && said.contains("Next: "), "{arguments:?}: {said}");
    }
}

#[test]
fn a_peer_killed_in_mid_run_is_named_and_nothing_remains() {
    let (mut bench, peer) = long_bench();
    kill(peer);
    let (status, _, said) = bench.end();
    assert!(!status.success());
    assert!(said.contains(&format!("peer process {peer}")) && said.contains("signal 9"), "{said}");
    assert!(said.contains("Next: "), "{said}");
    assert!(!runs(peer));
}

#[test]
fn a_killed_bench_takes_its_peer_along() {
    let (mut bench, peer) = long_bench();
    bench.kill();
    until("the end of the peer", || (!runs(peer)).then_some(()));
}

#[test]
fn a_signal_ends_the_bench_and_what_was_measured_is_shown() {
    for signal in [Signal::INT, Signal::TERM] {
        let (mut bench, peer) = long_bench();
        // Like Ctrl-C at a terminal, the signal reaches the peer too.
        bench.signal(signal);
        let (status, out, said) = bench.end();
        assert_eq!(status.code(), Some(128 + signal.as_raw()), "{said}");
        assert!(said.contains("a signal ended it after") && said.contains("Next: "), "{said}");
        // Blocks come after some calibration; where there was one, it is shown.
        let none = said.contains("after 0 of 10,000 blocks");
        assert!(none == out.is_empty() && (none || out.contains("of 10,000 rounds")), "{said}\n{out}");
        assert!(!runs(peer));
    }
}

/// Processes whose working folder is `folder` or below.
fn at_work(folder: &str) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let works = |pid: &u32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
    pids.filter(works).collect()
}

/// A bench of Open MPI in mid-run: itself, and the folder in which mpirun and both its ranks work.
fn bench_of_open_mpi() -> Option<(Running, String)> {
    skip::tool("mpirun.openmpi")?;
    skip::tool("NPopenmpi")?;
    if !linux::affinity::allowed().unwrap().starts_with(&[CoreId(0), CoreId(1)]) {
        skip::test("the ranks take cores 0 and 1");
        return None;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command
        .args(["bench", "sweep", "--stack", "open-mpi", "--sizes", "1MiB", "--rounds", "10000"])
        .stdin(Stdio::null());
    let mut bench = Running::start(&mut command);
    let folder = until("two ranks at work", || {
        if let Some(status) = bench.0.try_wait().unwrap() {
            panic!("{status}: {}", bench.end().2);
        }
        let folders =
            children(bench.0.id()).into_iter().filter_map(|pid| fs::read_link(format!("/proc/{pid}/cwd")).ok());
        let folder =
            folders.filter_map(|cwd| cwd.to_str().map(str::to_owned)).find(|cwd| cwd.contains("plimsoll-job-"))?;
        (at_work(&folder).len() >= 3).then_some(folder)
    });
    Some((bench, folder))
}

#[test]
fn a_killed_bench_of_open_mpi_leaves_no_rank_and_no_folder() {
    let Some((mut bench, folder)) = bench_of_open_mpi() else { return };
    bench.kill();
    until("the end of mpirun and its ranks", || at_work(&folder).is_empty().then_some(()));
    until("the end of their folder", || (!std::path::Path::new(&folder).exists()).then_some(()));
}

#[test]
fn a_signal_ends_mpirun_too() {
    let Some((mut bench, folder)) = bench_of_open_mpi() else { return };
    bench.signal(Signal::INT);
    let (status, _, said) = bench.end();
    assert!(status.code() == Some(130) && said.contains("a signal ended it after"), "{status} {said}");
    assert!(at_work(&folder).is_empty() && !std::path::Path::new(&folder).exists());
}

#[test]
fn a_signal_ends_each_kind_of_bench_by_130() {
    let mut kinds: Vec<&[&str]> = vec![&["semantics", "matched", "--peers", "2", "--rounds", "10000"]];
    if skip::tool("mpirun.openmpi").is_some() && skip::tool("mpicc.openmpi").is_some() {
        kinds.push(&["profiler", "--libraries", "openmpi", "--rounds", "10000"]);
        kinds.push(&["daemon", "--rounds", "10000"]);
        kinds.push(&["mpi", "--hosts", "one", "--tasks", "latency:8", "--rounds", "1000", "--cores", "0,1"]);
    }
    if linux::affinity::allowed().unwrap().len() < 2 {
        return skip::test("one core only");
    }
    for arguments in kinds {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        let mut bench = Running::start(command.arg("bench").args(arguments).stdin(Stdio::null()));
        let mpi = arguments[0] != "semantics";
        until("work of the bench", || match mpi {
            true => (children(bench.0.id()).len() >= 2).then_some(()),
            false => (ticks(bench.0.id()) >= 20).then_some(()),
        });
        bench.signal(Signal::INT);
        let (status, _, said) = bench.end();
        assert_eq!(status.code(), Some(130), "{arguments:?}: {said}");
        assert!(said.contains("a signal ended it"), "{arguments:?}: {said}");
    }
}

/// Each mapping and the daemon have their block of every case, and the daemon puts the ranks back.
#[test]
fn the_daemon_is_measured_beside_each_fixed_mapping() {
    if skip::tool("mpirun.openmpi").is_none() || skip::tool("mpicc.openmpi").is_none() {
        return;
    }
    let &[one, other, ..] = &linux::affinity::allowed().unwrap()[..] else {
        return skip::test("one core only");
    };
    let cores = format!("{},{}", one.0, other.0);
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args([
        "bench",
        "daemon",
        "--rounds",
        "1",
        "--settling",
        "1s",
        "--for",
        "0.3s",
        "--json",
        "--cores",
        &cores,
    ]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let cases = all["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 4);
    for case in cases {
        for (nth, arm) in case["arms"].as_array().unwrap().iter().enumerate() {
            assert_eq!(
                (arm["failures"].as_array().unwrap().len(), arm["blocks"].as_array().unwrap().len()),
                (0, 1),
                "{case}"
            );
            let block = &arm["blocks"][0];
            assert!(block["rate"].as_f64().unwrap() > 0.0 && block["daemon"].is_object() == (nth == 2), "{block}");
        }
    }
}

#[test]
fn two_ranks_are_measured_on_and_off_the_core_of_their_receive_work() {
    if !rustix::process::geteuid().is_root() {
        return skip::test("a lab needs root");
    }
    if skip::tool("mpirun.openmpi").is_none() || skip::tool("mpicc.openmpi").is_none() {
        return;
    }
    let &[one, other, ..] = &linux::affinity::allowed().unwrap()[..] else {
        return skip::test("one core only");
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(["bench", "mapping", "--rounds", "1", "--imbalance", "0.5", "--json"]);
    let output = command.args(["--cores", &format!("{},{}", one.0, other.0)]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("not permitted") {
        return skip::test(said);
    }
    assert!(output.status.success(), "{said}");
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let steered = [("on", [one, other]), ("off", [other, one]), ("mismatched", [one, one])];
    let mappings = all["mappings"].as_array().unwrap();
    assert_eq!(mappings.len(), steered.len());
    for (measured, (mapping, cores)) in mappings.iter().zip(steered) {
        assert_eq!((measured["mapping"].as_str(), &measured["failures"]), (Some(mapping), &serde_json::json!([])));
        assert_eq!(measured["steered"], serde_json::json!(cores));
        let block = &measured["blocks"][0];
        let values = block["values"].as_array().unwrap();
        assert_eq!(values.len(), 16);
        assert!(values.iter().all(|value| value[1].as_f64().unwrap() > 0.0), "{values:?}");
        let ranks = block["exchanges"][0]["ranks"].as_array().unwrap();
        assert!(ranks.iter().all(|rank| rank["computing"].as_f64().unwrap() > 0.0), "{ranks:?}");
    }
}

#[test]
fn a_peer_called_by_hand_says_so() {
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll")).arg("peer").stdin(Stdio::null()).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("do not call it by hand"));
}

#[test]
fn the_sweep_shows_who_bears_the_interrupts() {
    if !rustix::process::geteuid().is_root() {
        return skip::test("a lab needs root");
    }
    let core = linux::affinity::allowed().unwrap()[0].0.to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(["bench", "cores", "--pattern", "window", "--sizes", "64KiB", "--rounds", "1"]);
    let output = command.args(["--receiver", "reads,works", "--protocol-core", &core]).output().unwrap();
    let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if said.contains("not permitted") {
        return skip::test(said);
    }
    assert!(output.status.success(), "{said}");
    let rows = |receiver: &str| text.matches(&format!("receiver: {receiver}\n")).count();
    let cores = linux::affinity::allowed().unwrap().len();
    assert_eq!((rows("reads"), rows("works")), (cores, cores), "{text}");
    assert_eq!(text.matches("(protocol)").count(), 2, "{text}");
}

#[test]
fn networks_that_take_the_interface_are_measured_in_turns() {
    if !rustix::process::geteuid().is_root() {
        return skip::test("a lab needs root");
    }
    let mut command = bench(&["--path", "lab", "--stack", "engine-afxdp,engine-xdp,tcp", "--sizes", "8,64"]);
    let output = command.args(["--rounds", "2"]).output().unwrap();
    let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if said.contains("not permitted") {
        return skip::test(said);
    }
    assert!(output.status.success() && text.contains("half a round trip, 2 rounds, path lab"), "{text}{said}");
}

#[test]
fn two_hosts_of_the_lab_measure_each_other() {
    let output = run(&["--path", "lab", "--sizes", "8", "--stack", "tcp,udp", "--protocol-core", "0"]);
    let said = String::from_utf8_lossy(&output.stderr);
    if !rustix::process::geteuid().is_root() {
        assert!(!output.status.success() && said.contains("Next: "), "{said}");
        return skip::test("a lab needs root");
    }
    if !output.status.success() && said.contains("not permitted") {
        return skip::test(said);
    }
    assert!(output.status.success(), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("path lab"));
}
