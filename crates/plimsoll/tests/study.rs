//! `plimsoll study`: showing a study changes nothing, and a study that Ctrl-C ended can continue.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use experiment::design::{Design, Grounds};
use experiment::designs::Beginning;
use experiment::store::Store;
use machine::{CoreId, Nanoseconds};
use rounds::point;
use rounds::sample::Sample;
use rustix::process::{Pid, Signal, kill_process};

fn design() -> Design {
    let cores = vec![CoreId(0), CoreId(1)];
    let grounds = Grounds {
        cores,
        network: point::Path::Loopback,
        protocol_core: None,
        networks: Vec::new(),
        peer_cores: Vec::new(),
        at_app: false,
        open_mpi: false,
        budget: Nanoseconds(1_000_000_000),
        distance: None,
    };
    Design::of(grounds).unwrap()
}

/// A study of a few blocks each in `store`, begun at `second`.
fn add(store: &Path, second: u64, finished: bool) {
    let (design, now) = (design(), Nanoseconds(second * 1_000_000_000));
    let mut store = Store::open(store).unwrap();
    let mut study =
        store.begin(&Beginning { design: &design, seed: 1, host: "a boot", version: "0", facts: &[], now }).unwrap();
    for (order, spec) in design.points().into_iter().enumerate() {
        for round in 0..5 {
            let sample = Sample {
                round,
                order: order as u32,
                started: now,
                messages: 1000,
                elapsed: Nanoseconds(1_000_000),
                value: 1000.0 + f64::from(round),
                lost: 0,
                probe: None,
                clocks: Default::default(),
                accounting: None,
                notes: Vec::new(),
            };
            store.keep(&study, spec, &sample, Nanoseconds(1_000_000), Nanoseconds(1_000_000)).unwrap();
        }
    }
    if finished {
        store.finish(&mut study, Nanoseconds(now.0 + 1)).unwrap();
    }
}

fn study(place: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.arg("study").args(arguments).current_dir(place).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + skip::LIMIT;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{arguments:?} measures");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn everything_in(place: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let entries = fs::read_dir(place).unwrap().map(|entry| entry.unwrap());
    let mut all: Vec<_> = entries.map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap())).collect();
    all.sort();
    all
}

#[test]
fn what_shows_a_study_measures_nothing_and_changes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let store = place.path().join("study.sqlite");
    add(&store, 1_700_000_000, true);
    add(&store, 1_800_000_000, false);
    fs::write(place.path().join("report.html"), "the page of the finished study").unwrap();
    let before = everything_in(place.path());
    for arguments in [&["--why"][..], &["--show"], &["--show", "--why"], &["--csv"], &["--json"]] {
        let output = study(place.path(), &[&["--store", "study.sqlite"], arguments].concat());
        let said = text(&output.stderr);
        assert!(output.status.success() && !output.stdout.is_empty(), "{arguments:?}: {said}");
        assert!(said.contains("this is study 1;") && said.contains("2, begun 2027-01-15"), "{arguments:?}: {said}");
        assert!(everything_in(place.path()) == before, "{arguments:?} changed something");
    }
    let shown = text(&study(place.path(), &["--store", "study.sqlite", "--show"]).stdout);
    assert!(shown.contains("2023-11-14") && !shown.contains("Report:"), "{shown}");

    // A page is written where one is named, and an earlier study can be shown.
    let output = study(place.path(), &["--store", "study.sqlite", "--show", "--study", "2", "--html", "2.html"]);
    let shown = text(&output.stdout);
    assert!(shown.contains("2027-01-15") && shown.contains("Report:"), "{shown}");
    assert!(fs::read_to_string(place.path().join("2.html")).unwrap().contains("</html>"));
    let output = study(place.path(), &["--store", "study.sqlite", "--why", "--study", "3"]);
    assert!(text(&output.stderr).contains("it holds no study 3. Next: name one from 1 to 2"), "{output:?}");
}

#[test]
fn what_measures_and_what_shows_are_not_asked_for_together() {
    let place = tempfile::tempdir().unwrap();
    for arguments in [
        &["--why", "--fresh"][..],
        &["--show", "--budget", "9s"],
        &["--csv", "--cores", "0,1"],
        &["--csv", "--json"],
        &["--why", "--json"],
        &["--study", "1"],
    ] {
        let output = study(place.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
    }
    let output = study(place.path(), &["--why"]);
    let said = text(&output.stderr);
    assert!(
        !output.status.success() && said.contains("study.sqlite") && said.contains("run `plimsoll study`"),
        "{said}"
    );
    assert!(everything_in(place.path()).is_empty(), "a store was made");
}

/// As a person would run it.
#[test]
fn an_export_floods_no_terminal() {
    let place = tempfile::tempdir().unwrap();
    add(&place.path().join("study.sqlite"), 1_700_000_000, true);
    let Some(script) = skip::tool("script") else { return };
    let command = format!("{} study --store study.sqlite --csv", env!("CARGO_BIN_EXE_plimsoll"));
    let on_terminal = |command: &str| {
        let mut script = Command::new(&script);
        script.args(["-qefc", command, "/dev/null"]).current_dir(place.path()).stdin(Stdio::null());
        script.output().unwrap()
    };
    let refused = on_terminal(&command);
    let said = text(&refused.stdout);
    assert!(!refused.status.success() && said.contains("it is a terminal"), "{said}");
    assert!(said.contains("--csv=FILE") && !said.contains("size_bytes"), "{said}");
    assert!(on_terminal(&format!("{command}=samples.csv")).status.success());
    assert!(fs::read_to_string(place.path().join("samples.csv")).unwrap().starts_with("study,point,"));
}

#[test]
fn ctrl_c_ends_a_study_by_130_and_what_was_measured_is_kept() {
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(["study", "--path", "loopback", "--budget", "600s"]).current_dir(place.path()).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let store = place.path().join(".plimsoll/study.sqlite");
    let deadline = Instant::now() + skip::LIMIT;
    loop {
        let blocks = Store::read(&store).and_then(|store| store.entries());
        if blocks.is_ok_and(|entries| entries.iter().any(|entry| entry.blocks > 0)) {
            break;
        }
        assert!(child.try_wait().unwrap().is_none() && Instant::now() < deadline, "no block was measured");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("it goes on after Ctrl-C");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("Interrupted;") && said.contains("Run the same command to go on"), "{said}");
    let entries = Store::read(&store).unwrap().entries().unwrap();
    assert!(entries[0].blocks > 0 && !entries[0].finished);
    assert!(!place.path().join("report.html").exists());
}
