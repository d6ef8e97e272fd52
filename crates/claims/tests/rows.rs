//! Check rows cannot reach the models, and each row that feeds models does.

use std::fs;
use std::path::{Path, PathBuf};

use claims::judge::{checks, judge};
use claims::rows::{Checks, Published, Row, Use};
use claims::{Calibration, Sweep, predict};

/// Few draws: any of them shows a dependence.
const COARSE: Sweep = Sweep { closed: 8, replays: 1 };

fn predicted(rows: &Calibration) -> String {
    serde_json::to_string(&predict(rows, COARSE).unwrap()).unwrap()
}

/// The row with every figure changed so much that a dependence shows.
fn changed(row: &Row, factor: f64) -> Row {
    let mut row = row.clone();
    for value in row.values.values_mut() {
        match value {
            Published::Number { value, within, .. } => {
                *value *= factor;
                *within = within.map(|end| end * factor);
                within.sort_by(f64::total_cmp);
            }
            Published::Words { says, .. } => *says = format!("not: {says}"),
        }
    }
    row
}

#[test]
#[ignore = "make check"]
fn no_check_row_moves_a_prediction() {
    let rows = Calibration::of_papers();
    let before = predicted(&rows);
    let judged = |checks: &Checks| {
        let predictions = predicted(&rows);
        let judgement = judge(&predictions, checks).unwrap();
        (predictions, serde_json::to_string(&judgement).unwrap())
    };
    let as_published = judged(&checks()).1;
    for at in 0..checks().rows.len() {
        let row = &checks().rows[at];
        for other in [Some(changed(row, 1.5)), Some(changed(row, -1.0)), None] {
            let mut checks = checks();
            checks.rows.splice(at..=at, other);
            let (predictions, judgement) = judged(&checks);
            assert_eq!(predictions, before, "row {}", row.id);
            assert_ne!(judgement, as_published, "row {} is not judged", row.id);
        }
    }
}

#[test]
fn a_calibration_cannot_hold_a_check_row() {
    for row in checks().rows {
        assert!(Calibration::of(vec![row.clone()]).unwrap_err().subject().ends_with(&row.id));
    }
    assert!(Checks::parse(include_str!("../src/calibration.toml")).is_err());
    assert!(Calibration::parse(include_str!("../src/checks.toml")).is_err());
}

/// Without this, the first test might not see a dependence.
#[test]
fn each_calibrate_row_moves_a_prediction() {
    let rows = Calibration::of_papers();
    let before = predicted(&rows);
    for (at, row) in rows.rows().iter().enumerate().filter(|(_, row)| row.usage == Use::Calibrate) {
        let mut others = rows.rows().to_vec();
        others[at] = changed(row, 1.02);
        assert_ne!(predicted(&Calibration::of(others.clone()).unwrap()), before, "row {} feeds nothing", row.id);
        others.remove(at);
        assert!(predict(&Calibration::of(others).unwrap(), COARSE).is_err(), "row {} is not missed", row.id);
    }
}

#[test]
fn every_row_of_the_papers_is_there_once() {
    let calibration = Calibration::of_papers();
    let checks = checks();
    let mut ids: Vec<&str> = calibration.rows().iter().chain(&checks.rows).map(|row| row.id.as_str()).collect();
    ids.sort_unstable();
    let lettered = |letter: char, from: u32, to: u32| (from..=to).map(move |number| format!("{letter}{number}"));
    let mut all: Vec<String> =
        lettered('A', 4, 24).chain(lettered('B', 1, 9)).chain(lettered('C', 1, 3)).chain(lettered('D', 1, 3)).collect();
    all.sort_unstable();
    assert_eq!(ids, all);
}

/// The arithmetic of the papers' contradictions.
#[test]
fn the_contradictions_are_there() {
    let rows = Calibration::of_papers();
    let middle = |name: &str| {
        let range = rows.range(name).unwrap();
        (range.low + range.high) / 2.0
    };
    let near = |one: f64, other: f64| assert!((one / other - 1.0).abs() < 0.01, "{one} {other}");
    near(middle("generator/offload/64") / middle("generator/user/64"), 3.98);
    near(middle("generator/offload/64-reused") / middle("generator/user/64"), 8.58);
    near(middle("milc/calls") / middle("milc/runtime"), 2901.5);
    near(middle("lulesh/calls") / middle("lulesh/runtime"), 525.5);
    assert_eq!(middle("lulesh/calls"), 356.0 * 120.0 + 184.0);
    near(42.68 + 0.0 + 0.2 + 54.02 + 0.4, 97.3);
    near(64.0 * 8.0 / 140.0, 3.66);
    near(417_000.0 / 384.0, 1086.0);
    near(middle("onload/power/2.9") / middle("offload/power/2.9"), 1.69);
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name().into_string().unwrap();
        if path.is_dir() {
            if !["tests", "target", "benches"].contains(&name.as_str()) {
                collect(&path, into);
            }
        } else if (name.ends_with(".rs") || name.ends_with(".toml")) && name != "tests.rs" && name != "checks.toml" {
            into.push(path);
        }
    }
}

/// No source but the judge names a check row, or their file.
#[test]
fn nothing_but_the_judge_knows_a_check_row() {
    let mut paths = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut paths);
    assert!(paths.len() > 300, "{} sources", paths.len());
    let checks = checks();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let shipped = text.split("#[cfg(test)]\nmod ").next().unwrap();
        let mut words = shipped.split(|letter: char| !letter.is_ascii_alphanumeric());
        let named = words.find(|word| checks.rows.iter().any(|row| row.id == *word));
        assert_eq!(named, None, "{}", path.display());
        let mut code = shipped.lines().filter(|line| !line.trim_start().starts_with("//"));
        assert!(
            !code.any(|line| line.contains("checks.toml")) || path.ends_with("claims/src/judge.rs"),
            "{}",
            path.display()
        );
    }
}
