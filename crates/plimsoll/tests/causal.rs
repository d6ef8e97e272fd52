//! `plimsoll whatif delay`. Needs Debian's Open MPI.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use launch::family::Family;
use testbed::Mpi;

/// Two ranks pass a message back and forth a given number of times.
const PROGRAM: &str = r#"
#include <mpi.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    int rank, rounds = atoi(argv[1]);
    char byte = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < rounds; i++) {
        if (rank == 0)
            MPI_Send(&byte, 1, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(&byte, 1, MPI_CHAR, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(&byte, 1, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
"#;

fn program() -> Option<&'static Path> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let mpi = Mpi::system(Family::OpenMpi)?;
    Some(BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("whatif");
        mpi.compile_text(PROGRAM, &folder.join("pingpong"))
    }))
}

/// In `place`, which is also where it keeps what it has under way.
fn whatif(place: &Path, words: &[&str], command: &[&str]) -> Output {
    let mut whatif = Command::new("timeout");
    whatif
        .args(["-k", "5", "100", env!("CARGO_BIN_EXE_plimsoll"), "whatif", "delay"])
        .args(words)
        .arg("--")
        .args(command);
    for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
        whatif.env(name, "1");
    }
    whatif.env("XDG_STATE_HOME", place.join("state")).env("TMPDIR", place).current_dir(place);
    whatif.stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
#[ignore = "make check"]
fn slopes_of_a_program_come_with_their_null_and_leave_nothing() {
    let Some(program) = program() else { return };
    if linux::affinity::allowed().unwrap().len() < 2 {
        return skip::test("two cores are needed");
    }
    let place = tempfile::tempdir().unwrap();
    let command = ["mpirun.openmpi", "-n", "2", program.to_str().unwrap(), "20000"];
    let output = whatif(place.path(), &["send,receive", "--budget", "95s", "--rounds", "6", "--json"], &command);
    assert!(output.status.success(), "{output:?}");
    assert!(said(&output).contains("in 5 of 6 the program is delayed on purpose"), "{output:?}");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // Nothing is known where the cores moved between all rounds, which is reported.
    let is_said = found["notes"].to_string().contains("not held against none");
    assert!(found["null"]["samples"].as_u64() >= Some(2) || (found["null"].is_null() && is_said), "{found}");
    for (nth, factor) in ["send", "receive"].into_iter().enumerate() {
        let slope = &found["slopes"][nth];
        assert_eq!(slope["factor"], factor);
        let doses: Vec<f64> = slope["doses"].as_array().unwrap().iter().map(|dose| dose.as_f64().unwrap()).collect();
        assert!(doses[0] > 0.0 && doses[1] > 0.0, "{found}");
        assert!(slope["count"].as_f64() > Some(0.0), "{found}");
        assert!(slope["interval"]["low"].is_f64() || slope["interval"].is_null(), "{found}");
    }
    let left: Vec<_> = std::fs::read_dir(place.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    let ours = |name: &&std::ffi::OsString| name.to_string_lossy().contains("plimsoll-whatif");
    assert_eq!(left.iter().filter(ours).count(), 0, "{left:?}");
}

#[test]
fn what_cannot_be_measured_is_said_before_the_rounds() {
    let Some(program) = program() else { return };
    let place = tempfile::tempdir().unwrap();
    let program = program.to_str().unwrap();
    let ranks = |rounds: &'static str| ["mpirun.openmpi", "-n", "2", program, rounds];
    for (words, command, why) in [
        (vec!["latency"], ranks("1"), "choose send, receive, byte or compute"),
        (vec!["byte", "--budget", "1s"], ranks("20000"), "--budget"),
        (vec!["send", "--predict", "vader,wire"], ranks("20000"), "choose of plimsoll, "),
        (vec!["send"], ["sh", "-c", "exit 3", "a", "b"], "exit code 3"),
    ] {
        let output = whatif(place.path(), &words, &command);
        assert!(!output.status.success() && said(&output).contains(why), "{words:?}: {output:?}");
    }
}
