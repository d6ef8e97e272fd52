//! `plimsoll tune` on programs for which the faster setting is known.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use experiment::ledger::{self, Ledger, Prediction};
use launch::family::Family;
use testbed::Mpi;
use testbed::slurm::{Cluster, within};
use testbed::unequal::{Hog, UNEQUAL};

use crate::costs;
use crate::daemon::is_taken;

/// Two ranks. `trips N`: messages go to and fro, and it fails over UCX. `late N`: a message of 100 kB waits for its receiver.
/// `compute A B`: rank 0 computes A ms of processor time, rank 1 B ms, in ten steps.
const PLANTED: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
static char bytes[100000];
static void work(double ms)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    double end = t.tv_sec * 1e3 + t.tv_nsec * 1e-6 + ms;
    do clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); while (t.tv_sec * 1e3 + t.tv_nsec * 1e-6 < end);
}
static void send(int size, int to) { MPI_Send(bytes, size, MPI_CHAR, to, 0, MPI_COMM_WORLD); }
static void receive(int size, int from)
{
    MPI_Recv(bytes, size, MPI_CHAR, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
int main(int argc, char **argv)
{
    int rank;
    const char *pml = getenv("OMPI_MCA_pml");
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc < 3) { fprintf(stderr, "say what to do\n"); MPI_Finalize(); return 2; }
    if (!strcmp(argv[1], "trips")) {
        if (pml && !strcmp(pml, "ucx")) { MPI_Finalize(); return 3; }
        for (int i = 0; i < atoi(argv[2]); i++) {
            if (rank) { receive(64, 0); send(64, 0); } else { send(64, 1); receive(64, 1); }
        }
    } else if (!strcmp(argv[1], "late")) {
        for (int i = 0; i < atoi(argv[2]); i++) {
            if (rank) { work(3); receive(sizeof bytes, 0); } else { send(sizeof bytes, 1); work(3); }
            MPI_Barrier(MPI_COMM_WORLD);
        }
    } else {
        for (int i = 0; i < 10; i++) { work(atof(argv[2 + rank])); MPI_Barrier(MPI_COMM_WORLD); }
    }
    MPI_Finalize();
    return 0;
}
"#;

struct Place {
    folder: tempfile::TempDir,
    program: PathBuf,
}

/// The program, in a folder where costs of Open MPI's carriers are known.
fn place() -> Option<Place> {
    let mpi = Mpi::system(Family::OpenMpi)?;
    if linux::affinity::allowed().unwrap().len() < 2 {
        skip::test("two ranks need cores of their own, and this machine has one");
        return None;
    }
    let program = mpi.compile_text(PLANTED, &Path::new(env!("CARGO_TARGET_TMPDIR")).join("tune/planted"));
    let folder = tempfile::tempdir().unwrap();
    costs::keep(folder.path(), &mpi);
    Some(Place { folder, program })
}

impl Place {
    fn tune(&self, options: &[&str], command: &[&str]) -> (i32, String, String) {
        let program = self.program.to_str().unwrap();
        let words = command.iter().map(|word| if *word == "PLANTED" { program } else { word });
        let mut tune = Command::new("timeout");
        tune.args(["-k", "5", "800", env!("CARGO_BIN_EXE_plimsoll"), "tune"]).args(options);
        if !command.is_empty() {
            tune.arg("--").args(words);
        }
        tune.current_dir(self.folder.path()).env("XDG_STATE_HOME", self.folder.path()).stdin(Stdio::null());
        tune.envs(["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"].map(|name| (name, "1")));
        for batch in ["SLURM_JOB_ID", "PBS_JOBID"] {
            tune.env_remove(batch);
        }
        let output = tune.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
    }
}

#[test]
fn a_program_over_tcp_gains_from_shared_memory() {
    let _turn = skip::turn();
    let Some(place) = place() else { return };
    let command = ["mpirun", "-n", "2", "--mca", "btl", "self,tcp", "PLANTED", "trips", "20000"];
    let (code, said, errors) = place.tune(&[], &command);
    assert_eq!(code, 0, "{said}{errors}");
    assert!(errors.starts_with("Tuning mpirun") && errors.contains("1. run the program once"), "{errors}");
    assert!(
        said.starts_with("Fastest: carrier vader, ") && said.contains(" faster than today. Paste this:\n"),
        "{said}"
    );
    let line = said.lines().nth(1).unwrap();
    assert!(line.starts_with("  OMPI_MCA_btl=self,vader OMPI_MCA_pml=ob1 mpirun -n 2 /"), "{line}");
    assert!(said.contains("Verified: the MPI says 'Using vader btl for send'."), "{said}");
    assert!(said.lines().any(|line| line.contains("carrier ucx") && line.contains("exit code 3")), "{said}");
    assert!(said.contains("What limits it today: "), "{said}");
    let (_, shown, _) = place.tune(&["--show"], &[]);
    assert!(said.starts_with(&shown), "{shown}");
    let ledger = Ledger::at(&ledger::file(&place.folder.path().join("plimsoll"))).unwrap();
    let is_vader = |of: &&Prediction| of.quantity.contains("btl=self,vader") && of.lever.as_deref() == Some("carrier");
    // Of a noisy recording nothing is predicted, which is said, and nothing is kept.
    let vader = ledger.predictions.iter().find(is_vader);
    let settled = vader.is_some_and(|vader| ledger.outcomes.iter().any(|outcome| outcome.id == vader.id));
    let told = !said.contains("nothing is predicted of carrier vader: ");
    assert!(vader.is_some() == told && settled == told, "{said}{errors}");
}

#[test]
fn what_cannot_be_tuned_is_refused_with_what_to_do() {
    let _turn = skip::turn();
    let Some(place) = place() else { return };
    let refused = |options: &[&str], command: &[&str], expected: &str| {
        let (code, said, errors) = place.tune(options, command);
        assert!(code != 0 && errors.contains(expected) && errors.contains("Next: "), "{command:?}: {said}{errors}");
    };
    refused(&["--show"], &[], "tune.json");
    refused(&[], &["mpirun", "-n", "2", "PLANTED"], "exit code 2 in the recorded run: say what to do");
    refused(&[], &["true"], "plimsoll try compares any commands");
    let long = ["mpirun", "-n", "2", "PLANTED", "compute", "100", "100"];
    refused(&["--budget", "6s"], &long, "plimsoll tune --profile .plimsoll/tune-profile --budget TIME");
    let (code, said, _) = place.tune(&["--dry-run"], &long);
    assert!(code == 0 && said.contains("3. run the most promising in turn"), "{said}");
}

#[test]
#[ignore = "make check"]
fn an_eager_limit_is_found_where_messages_wait_for_their_receivers() {
    let _turn = skip::turn().before_all();
    let Some(place) = place() else { return };
    let command = ["mpirun", "-n", "2", "--mca", "pml", "ob1", "--mca", "btl", "self,tcp", "PLANTED", "late", "60"];
    let (code, said, errors) = place.tune(&["--budget", "90s"], &command);
    // UCX sends such messages eagerly by itself, and may be as fast.
    let row = said.lines().find(|line| line.starts_with(" eager limit 256 KiB "));
    let predicted =
        row.and_then(|row| row["  eager limit 256 KiB".len()..].split('x').next()?.trim().parse::<f64>().ok());
    let gains = predicted.is_some_and(|times| times > 1.05);
    if !gains && is_taken(linux::affinity::allowed().unwrap()[1]) {
        return;
    }
    assert!(gains && (code == 0 || code == 3), "{said}{errors}");
    assert!(code == 3 || said.starts_with("Fastest: "), "{said}");
}

#[test]
#[ignore = "make check"]
fn a_mapping_is_found_where_other_work_takes_a_core() {
    let _turn = skip::turn().before_all();
    let Some(mut place) = place() else { return };
    let mpi = Mpi::system(Family::OpenMpi).unwrap();
    place.program = mpi.compile_text(UNEQUAL, &Path::new(env!("CARGO_TARGET_TMPDIR")).join("tune/unequal"));
    let cores = linux::affinity::allowed().unwrap();
    let hog = Hog::on(cores[0]);
    let command = ["mpirun", "-n", "2", "--bind-to", "core", "PLANTED", "60"];
    let (code, said, errors) = place.tune(&["--budget", "1m"], &command);
    drop(hog);
    if !said.contains("\n mapping ") && is_taken(cores[1]) {
        return;
    }
    assert!((code == 0 || code == 3) && said.contains("\n mapping "), "{said}{errors}");
    // Another carrier may be as fast where ranks wait for a core.
    if said.starts_with("Fastest: mapping, ") {
        assert!(said.contains("--rankfile"), "{said}");
        assert!(said.contains("Verified: 2 ranks read back that they are in their seats."), "{said}");
    }
}

#[test]
#[ignore = "make check"]
fn a_program_that_gains_from_nothing_is_kept_and_told_what_limits_it() {
    let _turn = skip::turn().before_all();
    let Some(place) = place() else { return };
    let options = ["--budget", "1m", "--metric", "mpi"];
    let (code, said, errors) = place.tune(&options, &["mpirun", "-n", "2", "PLANTED", "compute", "20", "70"]);
    assert!(code == 0 || code == 3, "{said}{errors}");
    assert!(!said.starts_with("Fastest") && said.contains("What limits it today: Rank 1 "), "{said}");
}

/// On a real Slurm, which ends the job before the ten minutes that tuning may usually take.
#[test]
#[ignore = "make check"]
fn a_batch_job_is_tuned_within_its_time() {
    let _turn = skip::turn().before_all();
    let Some(place) = place() else { return };
    let Some(cluster) = Cluster::start() else { return };
    let folder = place.folder.path().display();
    let script = format!(
        "#!/bin/sh\ncd {folder}\nexport XDG_STATE_HOME={folder} OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n\
         {} tune -- mpirun -n 2 --mca btl self,tcp {} trips 20000 >said 2>errors\necho $? >ended.part\nmv ended.part ended\n",
        env!("CARGO_BIN_EXE_plimsoll"),
        place.program.display()
    );
    let file = place.folder.path().join("job.sh");
    std::fs::write(&file, script).unwrap();
    let options = ["--nodelist=n1", "--ntasks=2", "--time=8", "--output=/dev/null"];
    let submitted = cluster.said("sbatch", &[&options[..], &[file.to_str().unwrap()]].concat());
    let read = |name: &str| std::fs::read_to_string(place.folder.path().join(name));
    let is_over = || cluster.said("squeue", &["--noheader"]).trim().is_empty();
    let code = within(skip::LIMIT, &format!("the end of the job ({submitted})"), || {
        read("ended").ok().or_else(|| is_over().then(|| read("ended").unwrap_or_else(|_| "killed".to_owned())))
    });
    let (said, errors) = (read("said").unwrap(), read("errors").unwrap());
    assert_eq!(code.trim(), "0", "{said}{errors}{}", cluster.logs());
    assert!(errors.contains("\nWithin 7 min"), "{errors}");
    assert!(said.starts_with("Fastest: carrier vader, "), "{said}{errors}");
}
