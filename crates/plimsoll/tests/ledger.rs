//! `plimsoll ledger` on a ledger of known outcomes.

use std::path::Path;
use std::process::Command;

use experiment::ledger::{self, Kind, Ledger, Outcome, Prediction, Subject};
use machine::Nanoseconds;
use machine::costs::Interval;
use serde_json::Value;

/// A ledger of 40 predictions at 90 %, of which 30 held.
fn kept(state: &Path) {
    let folder = state.join("plimsoll");
    let mut ledger = Ledger::at(&ledger::file(&folder)).unwrap();
    let subject = Subject { words: "mpirun -n 2 ./a".into(), digest: String::new() };
    for nth in 0..40_u64 {
        let expected = Interval { low: 0.5, middle: 1.0, high: 2.0 };
        let of = Prediction::new(Kind::WhatIf, subject.clone(), format!("time {nth}"), expected, "a replay");
        let of = Prediction { made: Nanoseconds(1), level: 0.9, lever: Some("carrier".into()), ..of };
        ledger.predict(of).unwrap();
        let value = if nth < 10 { 3.0 } else { 1.0 };
        let outcome =
            Outcome { id: 0, came: Nanoseconds(2 + nth), value, interval: None, source: "plimsoll try".into() };
        assert_eq!(ledger.settle(&subject, &format!("time {nth}"), &outcome).unwrap().len(), 1);
    }
}

#[test]
fn a_score_tells_each_kind_and_lever_apart_for_readers_and_programs() {
    let state = tempfile::tempdir().unwrap();
    let said = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(words).env("XDG_STATE_HOME", state.path()).env("COLUMNS", "120");
        let output = command.output().expect("plimsoll starts");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(said(&["ledger", "--score"]).contains("none yet"));
    kept(state.path());
    let page = said(&["ledger", "--score"]);
    let line =
        page.lines().find(|line| line.contains("30 of 40")).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(line, "what if, carrier 40 75 (60 .. 86) % 90 % +0.0 % 4.00x 3.00x 3.41 30 of 40", "{page}");
    let all: Value = serde_json::from_str(&said(&["ledger", "--score", "--json"])).unwrap();
    let of = &all[0]["scores"][0];
    assert_eq!(
        (&of["kind"], &of["lever"], &of["level"]),
        (&"what-if".into(), &"carrier".into(), &0.9.into()),
        "{all:#}"
    );
    assert_eq!((&of["settled"], &of["held"]), (&40.into(), &30.into()), "{all:#}");
    let shipped = all[1]["scores"].as_array().unwrap();
    assert!(shipped.iter().any(|of| of["lever"] == "carrier" && of["level"] == 0.9), "{all:#}");
    let listed = said(&["ledger"]);
    assert!(listed.contains("30 of 40 held, 75 % (60 .. 86) where 90 % were expected"), "{listed}");
}
