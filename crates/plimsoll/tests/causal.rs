//! `plimsoll whatif delay`. Needs Debian's Open MPI.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use launch::family::Family;
use testbed::Mpi;

/// Two ranks in steps, whose work is counted in turns of a loop. "pingpong": a message there and back in each step, each after the
/// sender's work, so that all of both is on the critical path. "equal", "unequal": both work, rank 1 as much or a tenth, send each
/// other a message, and meet.
const PROGRAM: &str = r#"
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
static void work(long turns)
{
    volatile double sum = 0;
    for (long i = 0; i < turns; i++)
        sum += i;
}
int main(int argc, char **argv)
{
    const char *kind = argv[1];
    int rank, steps = atoi(argv[2]);
    long turns = argc > 3 ? atol(argv[3]) : 0;
    char out[1000] = {0}, in[1000];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 1 && strcmp(kind, "unequal") == 0)
        turns /= 10;
    for (int i = 0; i < steps; i++) {
        if (strcmp(kind, "pingpong") == 0) {
            if (rank == 0) {
                work(turns);
                MPI_Send(out, sizeof out, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
            }
            MPI_Recv(in, sizeof in, MPI_CHAR, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (rank == 1) {
                work(turns);
                MPI_Send(out, sizeof out, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
            }
        } else {
            MPI_Request request;
            work(turns);
            MPI_Isend(out, sizeof out, MPI_CHAR, 1 - rank, 1, MPI_COMM_WORLD, &request);
            MPI_Recv(in, sizeof in, MPI_CHAR, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            MPI_Barrier(MPI_COMM_WORLD);
        }
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
        mpi.compile_text(PROGRAM, &folder.join("planted"))
    }))
}

/// In `place`, which is also where it keeps what it has under way.
fn whatif(place: &Path, words: &[&str], command: &[&str]) -> Output {
    let mut whatif = Command::new("timeout");
    whatif
        .args(["-k", "5", &skip::LIMIT.as_secs().to_string(), env!("CARGO_BIN_EXE_plimsoll"), "whatif", "delay"])
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
    let command = ["mpirun.openmpi", "-n", "2", program.to_str().unwrap(), "pingpong", "20000"];
    let words = ["send,receive", "--whole", "--budget", "9m", "--rounds", "6", "--json"];
    let output = whatif(place.path(), &words, &command);
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
    let ranks = |rounds: &'static str| ["mpirun.openmpi", "-n", "2", program, "pingpong", rounds];
    for (words, command, why) in [
        (vec!["latency"], ranks("1"), "choose send, receive, byte or compute"),
        (vec!["byte", "--whole", "--budget", "1s"], ranks("20000"), "--budget"),
        (vec!["send@rank:2"], ranks("20000"), "the program has ranks 0 to 1"),
        (vec!["send", "--progress", "Allreduce"], ranks("20000"), "no call site of that name"),
        (vec!["send", "--progress", "collectives"], ranks("20000"), "0 passes in a run are too few"),
        (vec!["send", "--predict", "vader,wire"], ranks("20000"), "choose of plimsoll, "),
        (vec!["send"], ["sh", "-c", "exit 3", "a", "b", "c"], "exit code 3"),
    ] {
        let output = whatif(place.path(), &words, &command);
        assert!(!output.status.success() && said(&output).contains(why), "{words:?}: {output:?}");
    }
}

/// Slopes in closed form: of time injected into all ranks, each end of a ping-pong and all computing between lengthen the run by all
/// of it, also where delays have less than 0.1 us, equal ranks that are delayed alike by half of it, and of unequal ranks only the
/// one that others wait for.
#[test]
#[ignore = "make check"]
fn slopes_within_a_run_are_those_that_were_planted() {
    let Some(program) = program() else { return };
    if linux::affinity::allowed().unwrap().len() < 2 {
        return skip::test("two cores are needed");
    }
    let _turn = skip::turn();
    let program = program.to_str().unwrap();
    for (arguments, targets, progress, expected) in [
        (vec!["pingpong", "6000", "50000"], "send,receive,compute", "MPI_Recv", vec![Some(1.0); 3]),
        (vec!["pingpong", "1000000"], "send,receive,byte", "MPI_Recv", vec![Some(1.0); 3]),
        (vec!["equal", "6000", "100000"], "send,compute", "collectives", vec![Some(0.5); 2]),
        // Rank 1 computes too little to be delayed by much.
        (
            vec!["unequal", "6000", "100000"],
            "send@ranks,compute@ranks",
            "collectives",
            vec![Some(1.0), Some(0.0), Some(1.0), None],
        ),
    ] {
        let place = tempfile::tempdir().unwrap();
        let command = [vec!["mpirun.openmpi", "-n", "2", program], arguments].concat();
        let output = whatif(place.path(), &[targets, "--budget", "40s", "--json"], &command);
        if said(&output).contains("did not end within 40 s") || output.status.code() == Some(124) {
            skip::part(format!("other work keeps the slope of {targets} unknown: no run was over in time"));
            continue;
        }
        assert!(output.status.success(), "{output:?}");
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(found["within"]["period"]["name"].as_str().unwrap().starts_with(progress), "{found}");
        // The time of a run with delays of nothing over that without.
        let null = |name: &str| found["null"][name].as_f64();
        if found["within"]["rounds"].as_u64() < Some(2)
            || null("low") > Some(1.0)
            || null("high").is_none_or(|high| high < 1.0)
        {
            skip::part(format!(
                "other work keeps the slope of {targets} unknown: delays of nothing have {}",
                found["null"]
            ));
            continue;
        }
        let slopes = found["slopes"].as_array().unwrap();
        assert_eq!(slopes.len(), expected.len(), "{found}");
        for (slope, expected) in slopes.iter().zip(&expected) {
            let Some(expected) = expected else { continue };
            let end = |name: &str| slope["interval"][name].as_f64().unwrap();
            let width = end("high") - end("low");
            if width > 0.4 {
                skip::part(format!("other work keeps the slope of {targets} within {width:.2}"));
            } else {
                // Twice the interval, which holds in 19 of 20 cases.
                assert!((end("middle") - expected).abs() <= width + 0.05, "{expected}: {slope}\n{}", said(&output));
            }
        }
    }
}
