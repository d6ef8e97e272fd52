//! `plimsoll traffic` as a person runs it: what it prints, what it refuses, and Ctrl-C.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use linux::lab::{Host, Lab, Options};
use rustix::process::{Pid, Signal, kill_process_group};

/// In the environment of what these tests start.
const MARK: &str = "PLIMSOLL_TEST_OF_TRAFFIC";

fn traffic(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll-offcode"));
    command.arg("traffic").args(arguments).env(MARK, std::process::id().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether frames can be made and counted here.
fn possible() -> bool {
    if let Some(why) = bpf::MISSING {
        skip::test(why);
        return false;
    }
    if !rustix::process::geteuid().is_root() {
        skip::test("a lab needs root");
        return false;
    }
    true
}

fn last_core() -> String {
    linux::affinity::allowed().unwrap().last().unwrap().0.to_string()
}

#[test]
fn a_run_is_told_in_words() {
    if !possible() {
        return;
    }
    for site in ["app".to_owned(), format!("core:{}", last_core()), "xdp".to_owned()] {
        let output = traffic(&["--site", &site, "--gap", "500us", "--duration", "50ms"]).output().unwrap();
        let (page, log) = (text(&output.stdout), text(&output.stderr));
        if log.contains("not permitted") || log.contains("native") {
            return skip::test(log);
        }
        assert!(output.status.success(), "{site}: {log}");
        assert!(page.contains("rate received") && page.contains("duplicated"), "{page}");
        assert_eq!(site.starts_with("core"), page.contains("AF_XDP ("), "{page}");
        for said in [&page, &log] {
            assert!(!said.contains('{') && !said.contains("Some("), "{site}: a structure of ours: {said}");
        }
        assert!(log.is_empty(), "{site}: nothing is to be said beside the page: {log}");
    }
}

#[test]
fn without_the_right_to_make_a_lab_the_advice_is_about_traffic() {
    let Some(unshare) = skip::tool("unshare") else { return };
    // A user who is root of nothing but a namespace whose processes may make no further ones.
    let script = "echo 0 >/proc/sys/user/max_net_namespaces && exec \"$0\" traffic";
    let mut command = Command::new(unshare);
    command.args(["--user", "--map-root-user", "sh", "-c", script, env!("CARGO_BIN_EXE_plimsoll-offcode")]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = text(&output.stderr);
    if !said.contains("plimsoll: ") {
        return skip::test(format_args!("no user namespace may be made here: {said}"));
    }
    assert!(!output.status.success() && said.contains("Next: "), "{said}");
    assert!(!said.contains("study"), "{said}");
}

/// Hogs that these tests started, however far from them they have got.
fn hogs() -> usize {
    let mark = format!("{MARK}={}", std::process::id());
    let has = |path: std::path::PathBuf, word: &str| {
        fs::read(path).is_ok_and(|bytes| bytes.split(|byte| *byte == 0).any(|part| part == word.as_bytes()))
    };
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    processes.filter(|at| has(at.join("cmdline"), "plimsoll-hog") && has(at.join("environ"), &mark)).count()
}

fn interrupt(arguments: &[&str], when: impl Fn() -> bool) -> Output {
    let mut child = traffic(arguments).process_group(0).spawn().unwrap();
    let deadline = Instant::now() + skip::LIMIT;
    while !when() && child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it did not get so far");
        std::thread::sleep(Duration::from_millis(10));
    }
    // As Ctrl-C at a terminal: all of the group get it.
    kill_process_group(Pid::from_child(&child), Signal::INT).unwrap();
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("it goes on after Ctrl-C");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

#[test]
fn ctrl_c_ends_by_130_shows_what_was_counted_and_leaves_no_hog() {
    if !possible() {
        return;
    }
    let core = last_core();
    // The shell that waits, and what spins.
    let output = interrupt(&["--gap", "1ms", "--duration", "60s", "--hog", &core], || hogs() >= 2);
    let (page, log) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(130), "{page}{log}");
    let deadline = Instant::now() + skip::LIMIT;
    while hogs() > 0 {
        assert!(Instant::now() < deadline, "a hog goes on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn ctrl_c_ends_the_tables_of_the_paper_too() {
    if !possible() {
        return;
    }
    let start = Instant::now();
    let output = interrupt(&["--paper", "--rounds", "1"], || start.elapsed() > Duration::from_secs(2));
    let log = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{log}");
    assert!(log.contains("a signal ended it"), "{log}");
    assert!(!text(&output.stdout).contains("Table 2"), "it goes on: {}", text(&output.stdout));
}

/// Runs in host A of `lab`, where a second pair of interfaces is.
fn run_inside(lab: &Lab, command: &mut Command) -> Output {
    lab.enter(Host::A, command).unwrap().output().unwrap()
}

#[test]
fn interfaces_of_this_host_are_used_as_stated_and_refused_where_others_depend_on_them() {
    if !possible() {
        return;
    }
    let Some(ip) = skip::tool("ip") else { return };
    let lab = Lab::owned(&Options::default()).unwrap();
    let ip = |words: &str| {
        let output = run_inside(&lab, Command::new(&ip).args(words.split(' ')));
        assert!(output.status.success(), "ip {words}: {}", text(&output.stderr));
    };
    ip("link add near address 02:00:00:00:00:01 type veth peer name far address 02:00:00:00:00:02");
    for end in ["near", "far"] {
        ip(&format!("link set {end} up"));
    }
    let run = |destination: &str, more: &str| {
        let near = if more.contains("--interface") { "" } else { "--interface near " };
        let words = format!("{near}--far far --destination {destination} {more}");
        let output = run_inside(&lab, &mut traffic(&words.split(' ').collect::<Vec<_>>()));
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let far = "02:00:00:00:00:02";
    for site in ["xdp".to_owned(), format!("core:{}", last_core())] {
        let (done, page, log) = run(far, &format!("--gap 500us --count 40 --json --site {site}"));
        if log.contains("not permitted") {
            return skip::test(log);
        }
        assert!(done && page.contains("\"frames\": 40"), "{site}: {page}{log}");
    }
    let refused = |destination: &str, more: &str, why: &str| {
        let (done, page, log) = run(destination, more);
        assert!(!done && page.is_empty() && log.contains(why) && log.contains("Next: "), "{why}: {page}{log}");
    };
    refused(far, "--gap 500us --duration 61s", "longer");
    refused(far, "--rate 2Gbit --frame-sizes 1500", "at most 1.00 Gbit/s");
    refused(far, "--duration 1s", "a flood");
    refused("02:00:00:00:00:03", "--gap 500us", "has 02:00:00:00:00:02");
    refused("ff:ff:ff:ff:ff:ff", "--gap 500us", "broadcast");
    ip("address add 192.0.2.1/24 dev near");
    ip("route add default via 192.0.2.2 dev near");
    refused(far, "--gap 500us", "it has the default route");
    refused(far, "--gap 500us --really far", "it has the default route");
    let (done, page, log) = run(far, "--gap 500us --count 40 --site xdp --really near");
    assert!(done, "{page}{log}");
    let to = (lab.address(Host::B), 7000);
    let listener = lab.inside(Host::B, || std::net::TcpListener::bind(to).unwrap()).unwrap();
    let _control = lab.inside(Host::A, || std::net::TcpStream::connect(to).unwrap()).unwrap();
    let connected = format!("--gap 500us --interface {}", lab.interface(Host::A));
    refused(far, &connected, &format!("the TCP connection with {} goes over it", to.0));
    drop(listener);
    ip("link add bridge0 type bridge");
    ip("link set far master bridge0");
    refused(far, "--gap 500us --really near --really far", "bridge0 send over it");
}

/// `plimsoll agent` in host b of a lab, which offers the hook of its interface there where it is told to.
struct Far {
    agent: Child,
    keys: tempfile::TempDir,
    /// As a command line has it, and where its agent listens.
    site: String,
    address: String,
    destination: String,
}

impl Far {
    fn start(lab: &Lab, hooks: bool) -> Far {
        let (host, interface) = (lab.address(Host::B).to_string(), lab.interface(Host::B).to_owned());
        let keys = tempfile::tempdir().unwrap();
        runtime::agent::keys::make(keys.path(), std::slice::from_ref(&host)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll-offcode"));
        command.args(["agent", "--listen", &format!("{host}:0"), "--keys"]).arg(keys.path().join(&host));
        if hooks {
            command.args(["--hooks", &interface]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut agent = lab.enter(Host::B, &mut command).unwrap().spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(agent.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        agent.stdout = Some(output.into_inner());
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        let mac = || fs::read_to_string(format!("/sys/class/net/{interface}/address")).unwrap();
        let destination = lab.inside(Host::B, mac).unwrap().trim().to_owned();
        Far { agent, keys, site: format!("agent:{host}/xdp:{interface}"), address, destination }
    }

    /// A run in host a; both ends carry the agent's connection, so that they have to be named twice.
    fn traffic(&self, lab: &Lab, more: &str) -> Command {
        let near = lab.interface(Host::A);
        let words = format!(
            "--interface {near} --far {} --address {} --destination {} --json {more}",
            self.site, self.address, self.destination
        );
        let mut command = traffic(&words.split_whitespace().collect::<Vec<_>>());
        command.arg("--keys").arg(self.keys.path().join("client"));
        lab.enter(Host::A, &mut command).unwrap();
        command
    }

    fn really(&self, lab: &Lab) -> String {
        format!("--really {} --really {}", lab.interface(Host::A), self.site)
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

fn programs(lab: &Lab, host: Host) -> usize {
    let interface = lab.inside(host, || linux::xdp::Interface::named(lab.interface(host))).unwrap().unwrap();
    interface.attached().unwrap().len()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + skip::LIMIT;
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_far_end_may_be_on_another_host_which_counts() {
    if !possible() {
        return;
    }
    let lab = Lab::owned(&Options::default()).unwrap();
    let far = Far::start(&lab, true);
    let run = |more: &str| {
        let output = far.traffic(&lab, more).output().unwrap();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let refused = |more: &str, why: &str| {
        let (done, page, log) = run(more);
        assert!(!done && page.is_empty() && log.contains(why) && log.contains("Next: "), "{why}: {page}{log}");
    };
    let really = far.really(&lab);
    let (done, page, log) = run(&format!("--site xdp --gap 500us --count 40 {really}"));
    if log.contains("not permitted") {
        return skip::test(log);
    }
    assert!(done, "{page}{log}");
    let report: serde_json::Value = serde_json::from_str(&page).unwrap();
    for figure in ["frames", "lost", "duplicated"] {
        let expected = if figure == "frames" { 40 } else { 0 };
        assert_eq!(report["received"][figure], expected, "{figure}: {page}");
    }
    assert!(page.contains(&format!("agent at {}", far.address)), "{page}");
    assert_eq!(programs(&lab, Host::B), 0, "it leaves no program there");
    // The guards of both ends, each as its own host sees it.
    refused("--gap 500us", &format!("the TCP connection with {}", lab.address(Host::B)));
    let near = format!("--gap 500us --really {}", lab.interface(Host::A));
    refused(&near, &format!("interface {}: the TCP connection with {}", far.site, lab.address(Host::A)));
    refused(&format!("--duration 1s {really}"), "a flood");
    refused(&format!("--gap 500us --duration 61s {really}"), "longer");
    refused(&format!("--gap 500us --receiver-mode generic {really}"), "--hooks");
    refused(&format!("--gap 500us --site app {really}"), "kernel's routes");
    drop(far);
    let without = Far::start(&lab, false);
    let output = without.traffic(&lab, &format!("--gap 500us {really}")).output().unwrap();
    let log = text(&output.stderr);
    assert!(!output.status.success() && log.contains("the agent offers app") && log.contains("--hooks"), "{log}");
}

#[test]
fn whichever_end_dies_leaves_no_frames_and_no_program_behind() {
    if !possible() {
        return;
    }
    let lab = Lab::owned(&Options::default()).unwrap();
    let mut far = Far::start(&lab, true);
    let long = format!("--site xdp --gap 1ms --duration 60s {}", far.really(&lab));
    let begun = |child: &mut Child| {
        until("the receiver is not there", || programs(&lab, Host::B) == 1 || child.try_wait().unwrap().is_some());
        let mut log = String::new();
        if child.try_wait().unwrap().is_some() {
            child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        }
        assert!(log.is_empty() || log.contains("not permitted"), "{log}");
        log.is_empty().then_some(()).or_else(|| {
            skip::test(log);
            None
        })
    };
    let mut sender = far.traffic(&lab, &long).spawn().unwrap();
    let Some(()) = begun(&mut sender) else { return };
    sender.kill().unwrap();
    sender.wait().unwrap();
    until("the receiver stays without its sender", || programs(&lab, Host::B) == 0);
    let mut sender = far.traffic(&lab, &long).spawn().unwrap();
    let Some(()) = begun(&mut sender) else { return };
    let path = format!("/sys/class/net/{}/statistics/rx_packets", lab.interface(Host::B));
    let arrived =
        || -> u64 { lab.inside(Host::B, || fs::read_to_string(&path)).unwrap().unwrap().trim().parse().unwrap() };
    let before = arrived();
    until("no frames arrive", || arrived() > before + 200);
    far.agent.kill().unwrap();
    far.agent.wait().unwrap();
    until("the sender goes on without its receiver", || sender.try_wait().unwrap().is_some());
    let output = sender.wait_with_output().unwrap();
    let log = text(&output.stderr);
    assert!(!output.status.success() && log.contains("the sender was ended after"), "{log}");
    assert_eq!(programs(&lab, Host::A) + programs(&lab, Host::B), 0);
}
