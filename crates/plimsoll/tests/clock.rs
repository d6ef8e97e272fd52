//! `plimsoll clock` on a copy of /sys, whose files show what was set and restored.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rounds::random::Random;

use crate::rehearsal::{BEFORE, limits, tree};
use rustix::process::{Pid, Signal, kill_process};

const SET: [&str; 2] = ["1900000", "1900000"];

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn plimsoll(tree: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.arg("clock").arg("--root").arg(tree).args(arguments).env_remove("SLURM_JOB_ID");
    command
}

/// Starts `script` under 1.9 GHz, and returns once the script runs.
fn start(tree: &Path, script: &str) -> Child {
    let mut command = plimsoll(tree, &["1.9GHz", "--", "sh", "-c"]);
    command.arg(format!("echo ready; {script}")).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    if line != "ready\n" {
        panic!("{}", said(&child.wait_with_output().unwrap()));
    }
    assert_eq!(limits(tree), SET);
    child
}

fn signal(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process as i32).unwrap(), signal).unwrap();
}

fn keeper_of(owner: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{owner}/task/{owner}/children")).ok()?;
    let is_it = |child: &&str| {
        fs::read_to_string(format!("/proc/{child}/cmdline")).is_ok_and(|line| line.contains("clock-keeper"))
    };
    children.split_whitespace().find(is_it)?.parse().ok()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + skip::LIMIT;
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn clocks_are_set_for_a_command_and_come_back_with_its_exit_status_and_after_signals() {
    for driver in ["acpi-cpufreq", "intel_pstate", "amd-pstate-epp"] {
        let tree = tree(driver);
        let mut running = start(tree.path(), "read line; exit 7");
        let refused = plimsoll(tree.path(), &["1.2GHz", "--", "true"]).output().unwrap();
        let words = format!("process {} (plimsoll) has it", running.id());
        assert!(!refused.status.success() && said(&refused).contains(&words), "{}", said(&refused));
        drop(running.stdin.take());
        let output = running.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{}", said(&output));
        assert!(said(&output).contains("highest policy0: 1.9 GHz, was 2.9 GHz"), "{}", said(&output));
        assert!(said(&output).contains("not verified under load"), "{}", said(&output));
        assert_eq!(limits(tree.path()), BEFORE);
        for (asked, code) in [(Signal::TERM, 143), (Signal::USR1, 138)] {
            let running = start(tree.path(), "exec sleep 600");
            signal(running.id(), asked);
            assert_eq!(running.wait_with_output().unwrap().status.code(), Some(code));
            assert_eq!(limits(tree.path()), BEFORE);
        }
        assert!(!tree.path().join("run/plimsoll-clock").exists());
    }
}

#[test]
fn after_kill_9_the_keeper_restores_and_after_its_own_the_next_start() {
    let tree = tree("intel_pstate");
    let mut running = start(tree.path(), "exec cat");
    running.kill().unwrap();
    running.wait().unwrap();
    wait_until("the keeper has restored", || limits(tree.path()) == BEFORE);
    let mut running = start(tree.path(), "exec cat");
    signal(keeper_of(running.id()).unwrap(), Signal::KILL);
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(limits(tree.path()), SET, "nobody has restored it yet");
    let output = plimsoll(tree.path(), &[]).output().unwrap();
    assert!(said(&output).contains("what a killed run had set on clocks is restored"), "{}", said(&output));
    assert_eq!(limits(tree.path()), BEFORE);
}

#[test]
fn killed_at_any_moment_no_clock_is_left_changed() {
    let tree = tree("amd-pstate-epp");
    let seed = std::env::var("PLIMSOLL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(16);
    let mut random = Random::new(seed);
    for kill in 0..40 {
        let mut command = plimsoll(tree.path(), &["1.9GHz", "--", "true"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_micros((20_000.0 * random.unit()) as u64));
        // In half of the cases the keeper goes first, if it is there yet.
        if random.unit() < 0.5
            && let Some(keeper) = keeper_of(child.id())
        {
            let _ = kill_process(Pid::from_raw(keeper as i32).unwrap(), Signal::KILL);
        }
        let _ = child.kill();
        child.wait().unwrap();
        // Whichever is first restores: the keeper, or this command, which waits for a keeper at work.
        let output = plimsoll(tree.path(), &[]).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        wait_until(&format!("kill {kill} of seed {seed} is restored"), || limits(tree.path()) == BEFORE);
    }
}

#[test]
fn what_cannot_be_is_refused_with_its_next_step() {
    let tree = tree("intel_pstate");
    for (arguments, words) in [
        (&["1.9GHz"][..], "nothing stays changed"),
        (&["--", "true"], "it is not said which"),
        (&["9GHz", "--", "true"], "they run at 1.2 GHz to 2.9 GHz"),
        (&["1.9", "--", "true"], "write it like 1.9GHz"),
        (&["1.9GHz", "--cores", "9", "--", "true"], "core 9: "),
    ] {
        let output = plimsoll(tree.path(), arguments).output().unwrap();
        assert!(!output.status.success() && said(&output).contains(words), "{arguments:?}: {}", said(&output));
        assert_eq!(limits(tree.path()), BEFORE);
    }
    let bare = tempfile::tempdir().unwrap();
    fs::create_dir_all(bare.path().join("sys/devices/system/cpu")).unwrap();
    fs::write(bare.path().join("sys/devices/system/cpu/online"), "0").unwrap();
    let output = plimsoll(bare.path(), &["1.9GHz", "--", "true"]).output().unwrap();
    assert!(!output.status.success() && said(&output).contains("--dilate K"), "{}", said(&output));
}

#[test]
fn the_clocks_of_this_host_are_probed_without_any_right() {
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(["clock", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let first = &shown["cores"][0]["effective"];
    let known = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
    assert_eq!(first["measured"].as_u64().is_some_and(|hertz| hertz > 50_000_000), known, "{shown}");
}
