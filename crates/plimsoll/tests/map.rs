//! `plimsoll map` on the papers' testbeds, and on a program of Open MPI that is recorded, mapped and verified.

use crate::daemon::is_taken;
use crate::recipes::UNSAMPLED;
use crate::{costs, golden};
use std::path::Path;
use std::process::{Command, Stdio};

use launch::family::Family;
use launch::this_host;
use serde_json::Value;
use testbed::Mpi;
use testbed::unequal::{Hog, UNEQUAL};

/// Rank 0 computes, and rank 1 waits for it, also on a crowded machine.
const UNEVEN: &str = r#"
#include <mpi.h>
static char out[1024], in[1024];
int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 600; i++) {
        for (volatile int k = 0; k < (rank == 0 ? 800000 : 20000); k++) { }
        MPI_Sendrecv(out, 1024, MPI_CHAR, 1 - rank, 0, in, 1024, MPI_CHAR, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
"#;

fn plimsoll(place: &Path, words: &[&str]) -> (i32, String, String) {
    let mut command = Command::new("timeout");
    // A trial takes its rounds.
    let most = if words.contains(&"--run") { "800" } else { "100" };
    command.args(["-k", "5", most, env!("CARGO_BIN_EXE_plimsoll")]).args(words).current_dir(place);
    command.env("XDG_STATE_HOME", place).stdin(Stdio::null());
    command.envs(["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"].map(|name| (name, "1")));
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

#[test]
#[ignore = "make check"]
fn the_papers_testbeds_are_mapped_as_they_were() {
    let _turn = skip::turn();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/map");
    let simulate = |name: &str, more: &[&str]| {
        let file = format!("{}/../simulate/testbeds/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        plimsoll(Path::new("/"), &[&["map", "--simulate", &file], more].concat())
    };
    for name in ["gromacs-a", "gromacs-b", "lammps-a", "lammps-b"] {
        let (code, said, errors) = simulate(name, &[]);
        assert_eq!(code, 0, "{errors}");
        golden::check(&folder.join(format!("{name}.txt")), &said);
    }
    let (_, said, _) = simulate("gromacs-a", &["--json"]);
    let all: Value = serde_json::from_str(&said).unwrap();
    let moved: Vec<u64> = all["moves"].as_array().unwrap().iter().map(|of| of["rank"].as_u64().unwrap()).collect();
    // Paper 002's A', beside moves to nearer cores.
    assert_eq!(all["advice"], Value::from("move"));
    assert!([0, 6].iter().all(|rank| moved.contains(rank)), "{moved:?}");
    let (code, _, errors) = simulate("plimsoll", &[]);
    assert!(code != 0 && errors.contains("Next: "), "{errors}");
}

#[test]
fn a_recorded_program_is_mapped_and_its_launch_line_read_back() {
    let _turn = skip::turn().before_all();
    let Some(mpi) = Mpi::system(Family::OpenMpi) else { return };
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return skip::test("two ranks need cores of their own, and this machine has one");
    }
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("map/uneven");
    let program = mpi.compile_text(UNEVEN, &built);
    let place = tempfile::tempdir().unwrap();
    let (place, program) = (place.path(), program.to_str().unwrap());
    let profile = ["profile", "--trace", "-o", "run", "--", "mpirun", "-n", "2", "--bind-to", "core", program];
    let record = || {
        let (code, _, errors) = plimsoll(place, &profile);
        assert_eq!(code, 0, "{errors}");
    };
    record();
    let (code, _, errors) = plimsoll(place, &["map", "run"]);
    assert!(code != 0 && errors.contains("plimsoll calibrate"), "{errors}");
    costs::keep(place, &mpi);
    // The shares of other work are given, so that the load of this machine decides nothing.
    let shares = |own: f64, other: f64| {
        let (_, said, _) = plimsoll(place, &["report", "run", "--json"]);
        let all: Value = serde_json::from_str(&said).unwrap();
        let core = |rank: usize| {
            let cores = &all["ranks"][rank]["cores"];
            cores["measured"][0].as_u64()
        };
        Some([(core(0)?, own), (core(1)?, other)].map(|(core, share)| format!("{}:{core}={share}", this_host())))
    };
    let ask = |[one, other]: &[String; 2], more: &[&str]| {
        plimsoll(place, &[&["map", "run", "--capability", one, "--capability", other], more].concat())
    };
    let asked = |shares: &[String; 2], more: &[&str]| {
        let (code, said, errors) = ask(shares, more);
        assert_eq!(code, 0, "{errors}");
        said
    };
    // Beside other work on this machine ranks wait for their cores too, and then no move helps: it is recorded again.
    let mut tries = 0;
    let (burdened, moved) = loop {
        // The run may also be too short to sample the ranks' places.
        let burdened = shares(0.5, 1.0);
        let asked = burdened.as_ref().map(|burdened| ask(burdened, &["--json"]));
        let (code, said, errors) = asked.unwrap_or((1, String::new(), UNSAMPLED[0].to_owned()));
        assert!(code == 0 || UNSAMPLED.iter().any(|words| errors.contains(words)), "{errors}");
        let moved: Value = serde_json::from_str(&said).unwrap_or_default();
        if moved["advice"] == "move" {
            break (burdened.expect("it was asked"), moved);
        }
        tries += 1;
        if tries % 5 == 0 && linux::affinity::allowed().unwrap().into_iter().any(crate::daemon::is_taken) {
            return;
        }
        assert!(tries < 20, "{said}{errors}");
        std::fs::remove_dir_all(place.join("run")).unwrap();
        record();
    };
    let alike = shares(1.0, 1.0).expect("their cores are known");
    assert!(moved["time"]["high"].as_f64().unwrap() < 1.0 && moved["line"].as_str().unwrap().contains("rankfile"));
    let kept: Value = serde_json::from_str(&asked(&alike, &["--json"])).unwrap();
    assert_eq!((&kept["advice"], &kept["line"]), (&Value::from("keep"), &Value::Null), "{kept}");
    let (code, said, errors) = ask(&alike, &["--verify"]);
    assert!(code == 0 && said.contains("Keep the mapping") && errors.contains("Nothing is verified"), "{said}{errors}");
    let said = asked(&burdened, &["--verify"]);
    assert!(said.contains("Move these ranks") && said.contains("Read back: 2 ranks where they are to be."), "{said}");
    let refused = |words: &[&str], expected: &str| {
        let (code, _, errors) = plimsoll(place, &[&["map", "run"], words].concat());
        assert!(code != 0 && errors.contains(expected) && errors.contains("Next: "), "{words:?}: {errors}");
    };
    refused(&["--capability", "nowhere:0=0.5"], "host nowhere: no rank ran there");
    let (code, _, errors) = plimsoll(place, &["map", "run", "--capability", "0=0.5"]);
    assert!(code != 0 && errors.contains("write it like node1:0=0.7"), "{errors}");
}

#[test]
#[ignore = "make check"]
fn a_mapping_is_proposed_tried_and_held_against_what_was_expected() {
    let _turn = skip::turn().before_all();
    let Some(mpi) = Mpi::system(Family::OpenMpi) else { return };
    let cores = linux::affinity::allowed().unwrap();
    if cores.len() < 2 {
        return skip::test("two ranks need cores of their own, and this machine has one");
    }
    let program = mpi.compile_text(UNEQUAL, &Path::new(env!("CARGO_TARGET_TMPDIR")).join("map/unequal"));
    let place = tempfile::tempdir().unwrap();
    let (place, program) = (place.path(), program.to_str().unwrap());
    costs::keep(place, &mpi);
    // The core where Open MPI puts the rank that computes.
    let hog = Hog::on(cores[0]);
    let profile = ["profile", "--trace", "-o", "run", "--", "mpirun", "-n", "2", "--bind-to", "core", program, "50"];
    let mut recorded = 0;
    let (code, said, errors) = loop {
        let (code, _, errors) = plimsoll(place, &profile);
        assert_eq!(code, 0, "{errors}");
        recorded += 1;
        let all = plimsoll(place, &["map", "run", "--run"]);
        // Beside other work the ranks may wait on both cores alike, or the run end before they were sampled.
        let is_kept = all.0 == 0 && all.1.contains("Keep the mapping");
        if recorded == 20 || !is_kept && !UNSAMPLED.iter().any(|words| all.2.contains(words)) {
            break all;
        }
        if recorded % 5 == 0 && is_taken(cores[1]) {
            return;
        }
        std::fs::remove_dir_all(place.join("run")).unwrap();
    };
    drop(hog);
    assert_eq!(code, 0, "{said}{errors}");
    assert!(said.contains("Move these ranks"), "{said}{errors}");
    let (_, ledger, _) = plimsoll(place, &["ledger", "--json"]);
    let ledger: Value = serde_json::from_str(&ledger).unwrap();
    let all = |name: &str| ledger[name].as_array().cloned().unwrap_or_default();
    let ([prediction], [outcome]) = (&all("predictions")[..], &all("outcomes")[..]) else { panic!("{ledger:#}") };
    assert_eq!(prediction["id"], outcome["id"], "{ledger:#}");
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{ledger:#}"));
    let expected = &prediction["expected"];
    assert!(number(&expected["low"]) < number(&expected["high"]) && number(&outcome["value"]) > 0.0, "{ledger:#}");
    println!("expected {expected}, came {}", outcome["value"]);
}
