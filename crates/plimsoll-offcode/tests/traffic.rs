//! `plimsoll traffic` as a person runs it: what it prints, what it refuses, and Ctrl-C.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use linux::lab::{Host, Lab, Options};
use rustix::process::{Pid, Signal, kill_process_group};

const PATIENCE: Duration = Duration::from_secs(60);

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
    let deadline = Instant::now() + PATIENCE;
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
    let deadline = Instant::now() + PATIENCE;
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
    refused(far, "--rate 2Gbit --sizes 1500", "at most 1.00 Gbit/s");
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
