//! `plimsoll power` and `plimsoll profile --power` as users run them: by a command that tells watts, which every machine has.

use std::process::{Command, Output};

use launch::family::Family;
use profile::page;
use profile::profile::Profile;
use profile::summary::{PowerSpan, Summary};
use profile::terminal::{Screen, render};
use serde_json::Value;
use testbed::recording::Recording;
use testbed::{Mpi, Place};

fn power(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll")).arg("power").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn what_is_missing_has_a_next_step() {
    let listed = power(&["--json"]);
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    let json: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let (there, missing) = (json["sensors"].as_array().unwrap(), json["missing"].as_array().unwrap());
    for kind in ["rapl", "hwmon", "cray", "nvidia", "slurm"] {
        let is_there = there.iter().any(|sensor| sensor["name"].as_str().unwrap().starts_with(kind));
        let of_kind = missing.iter().find(|feature| feature["name"] == kind);
        let has_next = of_kind.is_some_and(|feature| !feature["next"].as_str().unwrap().is_empty());
        assert!(is_there || has_next, "{kind} is neither there nor refused: {json}");
    }
    let archive = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/xeon-two-socket");
    let archived = text(&power(&["--root", archive]).stdout);
    assert!(archived.contains("rapl:package-1/dram") && archived.contains("memory"), "{archived}");
}

#[test]
fn a_command_is_measured_and_its_exit_code_kept() {
    let folder = tempfile::tempdir().unwrap();
    let samples = folder.path().join("samples.csv");
    let csv = format!("--csv={}", samples.display());
    let source = "command,every=0.05,name=meter,covers=node,band=out: echo 40 W";
    let arguments = ["--idle", "0.3", "--json", "--from", source, &csv];
    let run = power(&[&arguments[..], &["--", "sh", "-c", "sleep 0.5; exit 7"]].concat());
    assert_eq!(run.status.code(), Some(7), "{}", text(&run.stderr));
    let json: Value = serde_json::from_slice(&run.stdout).unwrap();
    let (seconds, sensor) = (json["seconds"].as_f64().unwrap(), &json["sensors"][0]);
    let joules = sensor["joules"]["measured"].as_f64().unwrap();
    assert!((joules / 40.0 / seconds - 1.0).abs() < 0.05, "{joules} J in {seconds} s");
    assert!(sensor["coverage"].as_f64().unwrap() > 0.999, "{sensor}");
    assert_eq!(sensor["floor"]["measured"]["watts"].as_f64().map(f64::round), Some(40.0));
    assert!(sensor["above"]["measured"].as_f64().unwrap().abs() < 1e-3 * joules, "{sensor}");
    let written = std::fs::read_to_string(samples).unwrap();
    assert!(written.lines().skip(1).count() > 3 && written.contains(",meter,40.000000,W,"), "{written}");

    let page = text(&power(&["--idle", "0", "--from", source, "--", "true"]).stderr);
    assert!(page.contains("no idle floor") && page.contains("out-of-band"), "{page}");
    for (source, cause) in [("command: echo nothing here", "nothing here"), ("watts", "none that is known")] {
        let refused = power(&["--from", source, "--", "true"]);
        assert!(!refused.status.success() && text(&refused.stderr).contains(cause), "{}", text(&refused.stderr));
    }
}

/// Two phases of half a second.
const PROGRAM: &str = r#"
#include <mpi.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Pcontrol(1);
    usleep(500000);
    MPI_Pcontrol(2);
    usleep(500000);
    MPI_Finalize();
    return 0;
}
"#;

#[test]
fn a_profile_has_the_energy_of_its_phases() {
    let place = Place::new();
    let Some(mpi) = Mpi::system(Family::OpenMpi) else { return };
    let program = mpi.compile_text(PROGRAM, &place.path().join("phases"));
    let recording = Recording::under(&mpi, 2, program).power("command,every=0.05,name=meter: echo 40 W");
    let recordings = recording.run(&place, "profile", skip::LIMIT).well(&mpi);
    let summary = Summary::of(&Profile::open(&recordings.folder).unwrap());
    let [meter] = &summary.power[..] else { panic!("one sensor was asked for: {:?}", summary.job.notes) };
    let whats: Vec<&str> = meter.spans.iter().map(|span| span.what.as_str()).collect();
    assert_eq!(whats, ["job", "run", "phase", "phase"], "{meter:?}");
    let joules = |span: &PowerSpan| *span.joules.value().unwrap_or_else(|| panic!("{meter:?}"));
    for (span, phase) in meter.spans[2..].iter().zip(&summary.phases) {
        let expected = 40.0 * (phase.to - phase.from);
        assert!((joules(span) - expected).abs() < 0.02 * expected && span.coverage > 0.99, "{span:?} of {phase:?}");
    }
    assert!(joules(&meter.spans[0]) >= joules(&meter.spans[1]));
    assert!(joules(&meter.spans[1]) > 38.0, "a second of 40 W lies between MPI_Init and MPI_Finalize: {meter:?}");
    let text = render(&summary, Screen { width: 4000, colour: false, sites: 3 });
    assert!(text.contains("Power") && text.contains("meter"), "{text}");
    assert!(page::render(&summary).contains("Mean power"));
}
