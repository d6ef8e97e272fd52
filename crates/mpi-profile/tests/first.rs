//! A program whose calls are known, under each MPI of PATH, with the library preloaded.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use launch::installation::{Family, Installation};
use record::functions::{FunctionId, function};
use record::rank::Rank;

const PROGRAM: &str = r#"
#include <mpi.h>
int main(int argc, char **argv)
{
    int rank, size;
    double sent[100] = {0}, received[100];
    MPI_Request requests[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 10; i++) {
        MPI_Irecv(received, 100, MPI_DOUBLE, (rank + size - 1) % size, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(sent, 100, MPI_DOUBLE, (rank + 1) % size, 1, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, (MPI_Status *)MPI_STATUSES_IGNORE);
    }
    if (rank == 0)
        MPI_Send(sent, 3, MPI_INT, 1, 0, MPI_COMM_WORLD);
    else if (rank == 1)
        MPI_Recv(received, 5, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(sent, 3, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    MPI_Allreduce(sent, received, 5, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
"#;

/// Calls and bytes of a function, over all its cells.
fn calls(rank: &Rank, name: &str, group: u32) -> (u64, u64) {
    let is = |id: FunctionId| function(id).is_some_and(|function| function.name == name);
    let rows = rank.rows.iter().filter(|row| is(row.function) && row.group == group);
    rows.flat_map(|row| &row.cells).fold((0, 0), |(calls, bytes), cell| (calls + cell.calls, bytes + cell.bytes))
}

fn run(command: &mut Command, limit: Duration) -> bool {
    let mut child = command.stdin(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
    panic!("{command:?} took longer than {limit:?}");
}

fn library() -> PathBuf {
    // Cargo leaves it beside the test's own executable.
    let built = std::env::current_exe().unwrap().with_file_name("libplimsoll_profile.so");
    assert!(built.exists(), "{} was not built", built.display());
    built
}

fn profile(mpi: &Installation, folder: &Path) {
    let Ok(compiler) = mpi.compiler() else {
        eprintln!("SKIPPED: {mpi} has no mpicc");
        return;
    };
    let source = folder.join("program.c");
    let program = folder.join("program");
    std::fs::write(&source, PROGRAM).unwrap();
    let mut compile = Command::new(compiler);
    assert!(run(compile.arg("-w").arg(&source).arg("-o").arg(&program), Duration::from_secs(60)));

    let profiled = folder.join("profile");
    let mut job = Command::new(&mpi.launcher);
    job.env("PLIMSOLL_PROFILE", &profiled).env("TMPDIR", folder);
    match mpi.family {
        Family::OpenMpi => {
            job.args(["--oversubscribe", "-n", "3", "-x"]).arg(format!("LD_PRELOAD={}", library().display()));
            job.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        }
        _ => {
            job.args(["-n", "3", "-genv", "LD_PRELOAD"]).arg(library());
        }
    }
    assert!(run(job.arg(&program), Duration::from_secs(60)), "{mpi}");

    let files = std::fs::read_dir(profiled.join("ranks")).unwrap();
    let mut ranks: Vec<Rank> = files.map(|file| Rank::open(&file.unwrap().path()).unwrap()).collect();
    ranks.sort_by_key(|rank| rank.header.rank);
    assert_eq!(ranks.len(), 3, "{mpi}");
    for (at, rank) in ranks.iter().enumerate() {
        let header = &rank.header;
        assert_eq!((header.rank, header.size, header.placed), (at as u32, 3, 1), "{mpi}");
        assert!(header.initialized > 0 && header.finalized > header.initialized && header.ended > header.finalized);
        assert_eq!(header.dropped, record::layout::Dropped::default());
        let sent = if at == 0 { (2, 12) } else { (1, 0) };
        assert_eq!(calls(rank, "Send", 0), sent, "{mpi}");
        assert_eq!(calls(rank, "Recv", 0), if at == 1 { (1, 20) } else { (0, 0) });
        assert_eq!(calls(rank, "Irecv", 0), (10, 8000));
        assert_eq!(calls(rank, "Isend", 0), (10, 8000));
        assert_eq!(calls(rank, "Waitall", 0), (10, 16000));
        assert_eq!(calls(rank, "Allreduce", 3), (1, 40));
        assert_eq!((calls(rank, "Init", 0).0, calls(rank, "Finalize", 0).0), (1, 1));
        let all: u64 = rank.rows.iter().flat_map(|row| &row.cells).map(|cell| cell.calls).sum();
        assert_eq!(rank.threads[&0].calls, all);
        assert_eq!(rank.sites.iter().map(|site| site.calls).sum::<u64>(), all);
        let own = rank.sites.iter().all(|site| site.module == 1 && site.offset > 0);
        assert!(own && record::layout::words(&rank.modules[0].path) == program.to_string_lossy());
        for (to, peer) in rank.peers.iter().enumerate() {
            let extra = u64::from(at == 0 && to == 1);
            let expected = if to == (at + 1) % 3 { (10 + extra, 8000 + 12 * extra) } else { (0, 0) };
            assert_eq!((peer.messages, peer.bytes), expected, "{mpi}: {at} to {to}");
        }
        let tick = rank.tick().unwrap();
        assert!((0.05..=50.0).contains(&tick), "{tick}");
    }
}

#[test]
fn what_a_program_calls_is_counted() {
    let found = Installation::all_in_path();
    if found.is_empty() {
        eprintln!("SKIPPED: PATH has no MPI (install openmpi-bin and libopenmpi-dev, or mpich and libmpich-dev)");
    }
    for mpi in found {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        profile(&mpi, &folder);
    }
}
