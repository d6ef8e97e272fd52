//! docs/recipes.md, run line by line, each recipe in a folder of its own. The tests of `plimsoll-offcode` run the recipe of
//! offcodes.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use launch::family::Family;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use testbed::Mpi;

use crate::costs;
use crate::tutorial::{run, shell};

const RECIPES: &str = include_str!("../../../docs/recipes.md");

/// Lines that are not run here, each with the reason.
const LEFT_OUT: [(&str, &str); 3] = [
    ("plimsoll calibrate", "minutes; the tutorial's test runs it, and other costs are kept here"),
    (
        "plimsoll campaign submit lammps --set input=in.melt --slurm --dry-run",
        "a batch system; `campaign_submit` has one",
    ),
    ("plimsoll map run --run", "a trial of ten minutes where cores differ; `map` runs it"),
];

/// Lines that are run with shorter times.
const SHORTER: [(&str, &str); 5] = [
    (
        "plimsoll try --budget 1m -n 4 --vary carrier=vader,ucx,plimsoll -- ./prog",
        "plimsoll try --budget 25s -n 4 --vary carrier=vader,ucx,plimsoll -- ./prog",
    ),
    (
        "plimsoll try --budget 1m --vary OMP_PROC_BIND=close,spread --check stdout -- ./prog",
        "plimsoll try --budget 15s --vary OMP_PROC_BIND=close,spread --check stdout -- ./prog",
    ),
    (
        "plimsoll try --budget 1m --vary OMPI_MCA_mpi_yield_when_idle=0,1 -- mpirun -n 2 ./prog",
        "plimsoll try --budget 15s --vary OMPI_MCA_mpi_yield_when_idle=0,1 -- mpirun -n 2 ./prog",
    ),
    ("plimsoll study", "plimsoll study --budget 25s"),
    ("plimsoll tune -- mpirun -n 4 ./prog", "plimsoll tune --budget 20s -- mpirun -n 4 ./prog"),
];

/// Variables by which Open MPI 4 and 5 run more ranks than the machine has cores.
const OVERSUBSCRIBED: &str = "OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe";

/// What `plimsoll map` says of a recording with too few samples of its ranks' cores.
pub const UNSAMPLED: [&str; 2] = ["no sample was taken", "most of the time"];

const PROGRAM: &str = r#"
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    static char out[4096], in[4096];
    int rank, ranks;
    double sum = 0, all = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int step = 0; step < 20; step++) {
        for (int i = 1; i < 500000; i++) sum += 1.0 / i;
        MPI_Sendrecv(out, sizeof out, MPI_CHAR, (rank + 1) % ranks, 0, in, sizeof in, MPI_CHAR,
                     (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    if (rank == 0) printf("sum %.3f\n", all);
    MPI_Finalize();
    return 0;
}
"#;

/// The lines in the boxes of a recipe.
fn lines(need: &str) -> Vec<&'static str> {
    let mut recipes = RECIPES.split("\n## ").skip(1);
    let recipe = recipes.find(|recipe| recipe.starts_with(need)).unwrap_or_else(|| panic!("no recipe '{need}'"));
    let boxes = recipe.split("```").skip(1).step_by(2).flat_map(str::lines);
    boxes.filter(|line| line.starts_with("plimsoll ")).collect()
}

/// Texts that the output of a line must contain.
fn expected(line: &str) -> &'static [&'static str] {
    let words: Vec<&str> = line.split_whitespace().skip(1).collect();
    match words[..] {
        ["profile", ..] => &["now: plimsoll report run"],
        ["report", ..] => &["load balance", "Ranks\n"],
        ["study", ..] => &["Where should message processing run"],
        ["mpirun", ..] => &["plimsoll carried it: 4 ranks"],
        ["try", ..] => &["Page: "],
        ["tune", ..] => &["What limits it today: "],
        ["map", ..] => &["apping"],
        ["doctor"] => &["cores and network"],
        ["campaign", "plan", ..] => &["clocks: 18 points"],
        ["power", ..] => &["power"],
        _ => panic!("a command that this test does not know: {line}"),
    }
}

/// Whether a line may end with this status and output.
fn may_end(line: &str, code: i32, said: &str) -> bool {
    // A trial may end undecided in the time that it has, and a machine may have no sensor of power.
    let undecided = (line.starts_with("plimsoll try ") || line.starts_with("plimsoll tune ")) && code == 3;
    let unsensed = line.starts_with("plimsoll power ") && said.contains("plimsoll: power: ") && said.contains("Next: ");
    code == 0 || undecided || unsensed
}

/// Runs until the command reports that it watches; then sends Ctrl-C. The daemon of root has its folder in /run.
fn watch(line: &str, place: &Path) {
    let line = match geteuid().is_root() {
        true => format!("exec unshare -m sh -c 'mount -t tmpfs none /run && exec {line}'"),
        false => format!("exec {line}"),
    };
    let mut command = shell(&line, place);
    command.env("XDG_RUNTIME_DIR", place).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut daemon = command.spawn().unwrap();
    let mut said = BufReader::new(daemon.stderr.take().unwrap()).lines().map_while(Result::ok);
    let watches = said.any(|line| line.contains("watches"));
    let _ = kill_process(Pid::from_child(&daemon), Signal::INT);
    let code = daemon.wait().unwrap().code();
    assert!(watches && code == Some(130), "{line}: {code:?}");
}

/// Runs a recipe's lines, in order.
fn follow(need: &str) {
    let Some(mpi) = Mpi::system(Family::OpenMpi) else { return skip::test("no Open MPI") };
    let _turn = skip::turn();
    let place = tempfile::tempdir().unwrap();
    mpi.compile_text(PROGRAM, &place.path().join("prog"));
    costs::keep(&place.path().join("state"), &mpi);
    for (name, seconds) in [("old", "0.3"), ("new", "0.1")] {
        let path = place.path().join(name);
        fs::write(&path, format!("#!/bin/sh\nsleep {seconds}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }
    let all = lines(need);
    let mut next = 0;
    let mut recorded = 1;
    while let Some(&line) = all.get(next) {
        next += 1;
        if LEFT_OUT.iter().any(|(left_out, _)| *left_out == line) {
            continue;
        }
        if line.starts_with("plimsoll daemon") {
            watch(line, place.path());
            continue;
        }
        let shorter = SHORTER.iter().find(|(whole, _)| *whole == line).map_or(line, |(_, shorter)| *shorter);
        let (code, said) = run(&format!("{OVERSUBSCRIBED} {shorter}"), place.path());
        // Beside other work six rounds may not fit the shorter time.
        if shorter != line && code == 1 && said.contains("budget") && said.contains("Next: ") {
            continue;
        }
        // Beside other work a run may end before its ranks' cores were sampled; it is recorded again.
        if code == 1 && recorded < 20 && UNSAMPLED.iter().any(|words| said.contains(words)) {
            fs::remove_dir_all(place.path().join("run")).unwrap();
            (next, recorded) = (0, recorded + 1);
            continue;
        }
        assert!(may_end(line, code, &said), "{line} ended with {code}:\n{said}");
        for expected in expected(line) {
            assert!(said.contains(expected), "{line} did not say '{expected}':\n{said}");
        }
    }
}

#[test]
fn lines_that_are_not_run_as_they_stand_are_on_the_page() {
    for (line, why) in LEFT_OUT.iter().chain(&SHORTER) {
        assert!(RECIPES.lines().any(|of_page| of_page == *line), "{line} ({why}) is not on the page");
    }
}

#[test]
#[ignore = "make check"]
fn a_slow_job() {
    follow("My job is slow");
}

#[test]
#[ignore = "make check"]
fn which_carrier() {
    follow("Which carrier?");
}

#[test]
#[ignore = "make check"]
fn which_setting() {
    follow("Is this setting better?");
}

#[test]
#[ignore = "make check"]
fn where_ranks_belong() {
    follow("Where do my ranks belong?");
}

#[test]
#[ignore = "make check"]
fn a_centre() {
    follow("I run a centre");
}
