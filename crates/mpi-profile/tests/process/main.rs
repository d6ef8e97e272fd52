//! The library preloaded into processes of each MPI of PATH: what it counts, and what processes may do to it.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use launch::installation::{Family, Installation};
use record::functions::{FunctionId, function};
use record::layout::THREADS;
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
    status(command, limit).success()
}

fn status(command: &mut Command, limit: Duration) -> ExitStatus {
    let mut child = command.stdin(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
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
    // One world of several ranks, whichever launcher started them.
    assert!(ranks.iter().all(|rank| rank.header.world[0] != 0 && rank.header.world == ranks[0].header.world), "{mpi}");
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

/// A program of one rank without a launcher.
struct Single<'a> {
    folder: &'a Path,
    program: PathBuf,
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
}

struct Ended {
    status: ExitStatus,
    out: String,
    errors: String,
    ranks: Vec<Rank>,
}

impl Single<'_> {
    fn run(&self) -> Ended {
        let profiled = self.folder.join("profile");
        let [out, errors] = ["out", "errors"].map(|name| self.folder.join(name));
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env("LD_PRELOAD", library()).env("PLIMSOLL_PROFILE", &profiled);
        command.env("TMPDIR", self.folder).envs(self.variables.clone());
        command.stdout(File::create(&out).unwrap()).stderr(File::create(&errors).unwrap());
        let status = status(&mut command, Duration::from_secs(60));
        let files = std::fs::read_dir(profiled.join("ranks"));
        let files = files.into_iter().flatten().map(|file| file.unwrap().path());
        let ranks = files.map(|file| Rank::open(&file).unwrap()).collect();
        let _ = std::fs::remove_dir_all(&profiled);
        let read = |file: &Path| std::fs::read_to_string(file).unwrap();
        Ended { status, out: read(&out), errors: read(&errors), ranks }
    }
}

impl Ended {
    /// The tables of the only rank, which ended well.
    fn rank(self, what: &str) -> Rank {
        assert!(self.status.success(), "{what}: {}{}{}", self.status, self.out, self.errors);
        let [rank] = <[Rank; 1]>::try_from(self.ranks).unwrap_or_else(|ranks| panic!("{what}: {} files", ranks.len()));
        assert!(rank.header.ended > 0 && rank.header.cost > 0, "{what}");
        rank
    }
}

fn compile(mpi: &Installation, folder: &Path, source: &str, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let Ok(compiler) = mpi.compiler() else {
        eprintln!("SKIPPED: {mpi} has no mpicc");
        return None;
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/process").join(source);
    let into = folder.join(name);
    let mut compile = Command::new(compiler);
    compile.args(["-w", "-D_GNU_SOURCE", "-pthread"]).arg(source).arg("-o").arg(&into).args(flags).arg("-ldl");
    assert!(run(&mut compile, Duration::from_secs(60)));
    Some(into)
}

/// What is dropped must be said, and everything else counted.
fn misbehave(mpi: &Installation, folder: &Path) {
    let Some(program) = compile(mpi, folder, "program.c", "program", &[]) else { return };
    let single =
        |what: &str| Single { folder, program: program.clone(), arguments: vec![what.into()], variables: vec![] };
    let rank = |what: &str| single(what).run().rank(what);

    let plain = rank("plain");
    assert_eq!(calls(&plain, "Send", 0), (1, 0));
    assert!(plain.header.world != rank("plain").header.world, "{mpi}: worlds of their own");
    assert_eq!(calls(&rank("fork"), "Send", 0).0, 3, "{mpi}: the child's calls are not the rank's");
    assert_eq!(calls(&rank("nested"), "Send", 0).0, 1, "{mpi}: only outermost calls count");
    let leapt = rank("leap");
    assert_eq!(calls(&leapt, "Send", 0).0, 4, "{mpi}: after a call was left by longjmp");

    let types = rank("types");
    assert_eq!(calls(&types, "Send", 0), (100, 5050), "{mpi}");
    assert_eq!(calls(&types, "Wait", 0), (100, 5050), "{mpi}");
    assert_eq!((types.peers[0].messages, types.peers[0].bytes), (100, 5050));

    let phased = rank("phases");
    assert_eq!(calls(&phased, "Send", 0).0, 2, "{mpi}");
    assert_eq!(phased.phases.iter().map(|phase| phase.level).collect::<Vec<_>>(), [0, 1, 7]);

    let many = rank("threads");
    assert_eq!(many.header.thread_level, 3);
    assert_eq!(many.threads.len(), THREADS);
    // The main thread has tables too.
    let beyond = 300 + 1 - THREADS as u64;
    assert_eq!(many.header.dropped.calls, 10 * beyond, "{mpi}");
    assert_eq!(calls(&many, "Send", 0).0 + many.header.dropped.calls, 300 * 10 + 300, "{mpi}");

    let killed = single("killed").run();
    assert_eq!(killed.status.signal(), Some(9));
    assert_eq!((calls(&killed.ranks[0], "Send", 0).0, killed.ranks[0].header.ended), (1, 0));

    let missing = single("absent").run();
    assert!(missing.status.success(), "{mpi}: {}", missing.errors);
    if missing.out.trim() != "0" {
        assert!(missing.errors.contains("has no PMPI_Psend_init"), "{mpi}: {}", missing.errors);
    }
}

fn run_out(mpi: &Installation, folder: &Path) {
    let Some(program) = compile(mpi, folder, "program.c", "program", &[]) else { return };
    let single =
        |what: &str| Single { folder, program: program.clone(), arguments: vec![what.into()], variables: vec![] };

    let least = (record::layout::FIRST_REGION + (256 << 10)).to_string();
    let scarce = Single { variables: vec![("PLIMSOLL_PROFILE_MEMORY", least)], ..single("threads") }.run();
    assert!(scarce.status.success(), "{mpi}: {}", scarce.errors);
    let [rank] = &scarce.ranks[..] else { panic!("{} files", scarce.ranks.len()) };
    let lost = rank.header.dropped;
    assert!(lost.rows + lost.sites > 0 && lost.calls > 0, "{mpi}: {lost:?}");
    let all: u64 = rank.threads.values().map(|thread| thread.calls).sum();
    assert_eq!(all + lost.calls, 300 * 10 + 300 + 2, "{mpi}: every call is counted somewhere");

    for (what, variables) in [
        ("plain", vec![("PLIMSOLL_PROFILE_MEMORY", "1000".into())]),
        ("plain", vec![("PLIMSOLL_PROFILE_MEMORY", "much".into())]),
        ("plain", vec![("PLIMSOLL_PROFILE", "/proc/nowhere".into())]),
    ] {
        let ended = Single { variables, ..single(what) }.run();
        assert!(ended.status.success() && ended.ranks.is_empty(), "{mpi}: {what}: {}", ended.errors);
        let said: Vec<&str> = ended.errors.lines().filter(|line| line.starts_with("plimsoll: ")).collect();
        assert!(said.len() == 1 && said[0].contains("is not profiled: ") && said[0].contains("Next: "), "{said:?}");
    }
    let idle = Single { variables: vec![("PLIMSOLL_PROFILE", String::new())], ..single("plain") }.run();
    assert!(idle.status.success() && idle.ranks.is_empty() && !idle.errors.contains("plimsoll"), "{}", idle.errors);
}

fn load(mpi: &Installation, folder: &Path) {
    let Some(library) = compile(mpi, folder, "program.c", "library.so", &["-DLIBRARY", "-shared", "-fPIC"]) else {
        return;
    };
    let loader = folder.join("loader");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/process/loader.c");
    assert!(run(Command::new("cc").arg(source).arg("-o").arg(&loader).arg("-ldl"), Duration::from_secs(60)));
    let arguments = vec!["plain".into(), library.display().to_string()];
    // Open MPI's own parts look for its symbols among the global ones.
    let loaded = Single { folder, program: loader, arguments, variables: vec![] }.run().rank("loaded");
    assert_eq!(calls(&loaded, "Send", 0).0, 1, "{mpi}");
    let modules: Vec<String> = loaded.modules.iter().map(|module| record::layout::words(&module.path)).collect();
    assert!(modules.iter().any(|path| *path == library.to_string_lossy()), "{mpi}: {modules:?}");
}

fn under_each(what: fn(&Installation, &Path)) {
    let found = Installation::all_in_path();
    if found.is_empty() {
        eprintln!("SKIPPED: PATH has no MPI (install openmpi-bin and libopenmpi-dev, or mpich and libmpich-dev)");
    }
    for mpi in found {
        let folder = tempfile::tempdir().unwrap();
        what(&mpi, &folder.path().canonicalize().unwrap());
    }
}

#[test]
fn what_a_program_calls_is_counted() {
    under_each(profile);
}

#[test]
fn nothing_that_a_process_does_disturbs_it() {
    under_each(misbehave);
}

#[test]
fn what_has_no_room_is_said() {
    under_each(run_out);
}

#[test]
fn an_mpi_that_is_loaded_for_one_library_alone_is_found() {
    under_each(load);
}
