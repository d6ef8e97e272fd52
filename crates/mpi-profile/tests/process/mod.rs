//! The library in processes of each installed MPI: its counts, also where a process forks, jumps or dies.

mod standin;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use record::functions::{FunctionId, function};
use record::layout::THREADS;
use record::live::Live;
use record::rank::Rank;
use testbed::recording::Recording;
use testbed::{Mpi, Outcome, Place};

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

fn profile(mpi: &Mpi, place: &Place) {
    let source = place.path().join("program.c");
    std::fs::write(&source, PROGRAM).unwrap();
    let program = place.compile(&mpi.compiler, &[source], "program", &["-w"]);
    let ranks = Recording::under(mpi, 3, &program).run(place, "profile", skip::LIMIT).well(mpi).ranks();
    assert_eq!(ranks.len(), 3, "{mpi}");
    // The ranks are in one world, under every launcher.
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
        assert_eq!(rank.sites.iter().map(|(_, site)| site.calls).sum::<u64>(), all);
        let own = rank.sites.iter().all(|(_, site)| site.module == 1 && site.offset > 0);
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

/// A program of one rank, started without a launcher.
struct Single<'a> {
    mpi: &'a Mpi,
    place: &'a Place,
    program: &'a Path,
    arguments: Vec<&'a str>,
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
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("profile-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let recording = Recording::new(vec![self.program.into()]).arguments(&self.arguments);
        let recording = self.mpi.environment().iter().fold(recording, |all, (name, value)| all.env(name, value));
        let recording = self.variables.iter().fold(recording, |all, (name, value)| all.env(*name, value));
        let recordings = recording.run(self.place, &name, skip::LIMIT);
        let ranks = recordings.ranks();
        let Outcome { status, out, errors } = recordings.outcome;
        Ended { status: status.unwrap_or_else(|| panic!("it hangs: {out}{errors}")), out, errors, ranks }
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

fn compile(mpi: &Mpi, place: &Place, name: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/process/program.c");
    place.compile(&mpi.compiler, &[source], name, &[&["-w"], flags, &["-ldl"]].concat())
}

/// Calls that are dropped must be counted as dropped, and all others counted.
fn misbehave(mpi: &Mpi, place: &Place) {
    let program = &compile(mpi, place, "program", &[]);
    let single = |what| Single { mpi, place, program, arguments: vec![what], variables: vec![] };
    let rank = |what| single(what).run().rank(what);

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
    // The main thread is one of the threads with tables.
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

fn run_out(mpi: &Mpi, place: &Place) {
    let program = &compile(mpi, place, "program", &[]);
    let single = |what| Single { mpi, place, program, arguments: vec![what], variables: vec![] };

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

fn load(mpi: &Mpi, place: &Place) {
    let library = compile(mpi, place, "library.so", &["-DLIBRARY", "-shared", "-fPIC"]);
    let Some(cc) = skip::tool("cc") else { return };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/process/loader.c");
    let program = &place.compile(&cc, &[source], "loader", &["-w", "-ldl"]);
    let arguments = vec!["plain", library.to_str().unwrap()];
    // The program loads the library, and with it the MPI, outside the global scope.
    let loaded = Single { mpi, place, program, arguments, variables: vec![] }.run().rank("loaded");
    assert_eq!(calls(&loaded, "Send", 0).0, 1, "{mpi}");
    let modules: Vec<String> = loaded.modules.iter().map(|module| record::layout::words(&module.path)).collect();
    assert!(modules.iter().any(|path| *path == library.to_string_lossy()), "{mpi}: {modules:?}");
}

fn under_each(what: fn(&Mpi, &Place)) {
    for mpi in Mpi::all() {
        what(&mpi, &Place::new());
    }
}

/// The tables are read while the process's threads count as fast as they can, and new threads come.
#[test]
#[ignore = "make check"]
fn tables_that_are_being_written_are_no_damage() {
    let Some(mpi) = Mpi::all().into_iter().next() else { return };
    let place = Place::new();
    let program = compile(&mpi, &place, "program", &[]);
    let (ranks, over) = (place.path().join("profile/ranks"), AtomicBool::new(false));
    let looks = std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let (mut looks, mut calls) = (0, 0);
            while !over.load(Ordering::Relaxed) {
                let file = std::fs::read_dir(&ranks).ok().and_then(|mut files| Some(files.next()?.ok()?.path()));
                let begun = file.filter(|file| Live::open(file).is_ok_and(|live| live.is_some()));
                let Some(file) = begun else { continue };
                let rank = Rank::open(&file).unwrap_or_else(|fault| panic!("look {looks}: {fault}"));
                assert_eq!(rank.doubt, None, "look {looks}");
                let now = rank.threads.values().map(|thread| thread.calls).sum();
                assert!(now >= calls, "look {looks}: {now} calls after {calls}");
                (looks, calls) = (looks + 1, now);
            }
            looks
        });
        let recording = Recording::new(vec![program.into()]).arguments(&["busy"]);
        let recording = mpi.environment().iter().fold(recording, |all, (name, value)| all.env(name, value));
        let ended = recording.run(&place, "profile", skip::LIMIT);
        over.store(true, Ordering::Relaxed);
        ended.well(&mpi);
        looking.join().unwrap()
    });
    assert!(looks > 10, "{looks} looks");
}

#[test]
#[ignore = "make check"]
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
#[ignore = "make check"]
fn an_mpi_that_is_loaded_for_one_library_alone_is_found() {
    under_each(load);
}
