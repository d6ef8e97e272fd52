//! Tests under a stand-in MPI, for behaviour that a real MPI shows only some of the time.

use std::fs::{self, File};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use profile::profile::Profile;
use profile::summary::Summary;
use record::folder;
use record::functions::named;
use record::layout::{Cell, DIRECTORY, Peer, Region, Site, Thread, kind};
use record::rank::Rank;
use record::scale::size_class;
use testbed::Place;
use testbed::recording::{Recording, Recordings};
use zerocopy::FromBytes;

/// `None`, with a note, where there is no compiler.
fn program(place: &Place) -> Option<PathBuf> {
    let cc = skip::tool("cc")?;
    let source = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/process").join(name);
    place.compile(&cc, &[source("standin.c")], "libstandin.so", &["-shared", "-fPIC"]);
    Some(place.compile(&cc, &[source("standin_user.c")], "user", &["-L.", "-lstandin", "-Wl,-rpath,$ORIGIN"]))
}

fn run(place: &Place, program: &Path, what: &str, environment: &[(&str, &str)]) -> Recordings {
    let recording = Recording::new(vec![program.into(), what.into()]);
    let recording = environment.iter().fold(recording, |all, (name, value)| all.env(*name, value));
    recording.run(place, what, skip::LIMIT)
}

fn calls(rank: &Rank, name: &str) -> u64 {
    let id = named(name).unwrap().id;
    let rows = rank.rows.iter().filter(|row| row.function == id);
    rows.flat_map(|row| &row.cells).map(|cell| cell.calls).sum()
}

/// Threads open and close sessions, and the world, independently of each other.
#[test]
fn nothing_is_asked_about_what_is_not_open() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 100;
    const SENDS: u64 = 5;
    let place = Place::new();
    let Some(program) = program(&place) else { return };
    for (what, worlds) in [("sessions", 0), ("beside", 1)] {
        let [rank] = <[Rank; 1]>::try_from(run(&place, &program, what, &[]).well(what).ranks()).unwrap();
        let header = &rank.header;
        assert_eq!((header.placed, header.rank, header.size), (1, 0, 1), "{what}");
        assert_eq!(header.dropped, record::layout::Dropped::default(), "{what}");
        assert!(0 < header.initialized && header.initialized < header.finalized && header.finalized <= header.ended);
        let sessions = THREADS * ROUNDS;
        assert_eq!((calls(&rank, "Session_init"), calls(&rank, "Session_finalize")), (sessions, sessions), "{what}");
        let sends = (sessions + worlds * ROUNDS) * SENDS;
        assert_eq!((calls(&rank, "Send"), calls(&rank, "Finalize")), (sends, worlds), "{what}");
        assert_eq!((rank.peers[0].messages, rank.peers[0].bytes), (sends, 4 * sends), "{what}");
    }
}

/// Functions that are looked up in the MPI's library itself, and a plug-in that is bound to that library.
#[test]
fn calls_past_the_library_are_said_with_their_cause() {
    let place = Place::new();
    if program(&place).is_none() {
        return;
    }
    let Some(cc) = skip::tool("cc") else { return };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/process/past.c");
    let linked = ["-L.", "-lstandin", "-ldl", "-Wl,-rpath,$ORIGIN"];
    let compile = |into: &str, flags: &[&str]| place.compile(&cc, std::slice::from_ref(&source), into, flags);
    compile("libplugin.so", &[&["-DPLUGIN", "-shared", "-fPIC"][..], &linked].concat());

    let direct = compile("direct", &["-ldl"]);
    let ended = Recording::new(vec![direct.into()]).run(&place, "direct-run", skip::LIMIT).well("direct");
    assert!(ended.ranks().is_empty());
    let said = &ended.account;
    assert!(said.contains("libstandin.so") && said.contains("taken from it directly"), "{said}");
    assert!(!said.contains("not linked with MPI"), "{said}");

    let deep = compile("deep", &[&["-DLINKED"][..], &linked].concat());
    let ended = Recording::new(vec![deep.into()]).run(&place, "deep-run", skip::LIMIT).well("deep");
    let [rank] = <[Rank; 1]>::try_from(ended.ranks()).unwrap();
    assert_eq!((calls(&rank, "Init"), calls(&rank, "Send"), calls(&rank, "Finalize")), (1, 0, 1));
    assert!(ended.account.contains("libplugin.so calls MPI past the recorder"), "{}", ended.account);
}

/// Adds `more` sends of 4 bytes to the tables of a process that waits, as if the process had made them.
fn count_more_sends(ranks: &Path, more: u64) {
    let path = fs::read_dir(ranks).unwrap().next().unwrap().unwrap().path();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let send = named("Send").unwrap().id.0;
    let regions = |wanted: u16, function: u16| -> usize {
        let entry = |place: usize| {
            let mut bytes = [0; size_of::<Region>()];
            file.read_exact_at(&mut bytes, (DIRECTORY + place * size_of::<Region>()) as u64).unwrap();
            Region::read_from_bytes(&bytes).unwrap()
        };
        let is_wanted = |region: &Region| (region.kind, region.function) == (wanted, function);
        (0..64).map(entry).find(is_wanted).unwrap().offset as usize
    };
    let add = |at: usize, more: u64| {
        let mut word = [0; 8];
        file.read_exact_at(&mut word, at as u64).unwrap();
        file.write_all_at(&(u64::from_le_bytes(word) + more).to_le_bytes(), at as u64).unwrap();
    };
    let cell = regions(kind::ROW, send) + size_class(4) * size_of::<Cell>();
    let (thread, peer) = (regions(kind::THREAD, 0), regions(kind::PEERS, 0));
    let sites = Rank::open(&path).unwrap().sites;
    let site =
        regions(kind::SITES, 0) + sites.iter().position(|(_, site)| site.function == send).unwrap() * size_of::<Site>();
    for (calls, bytes) in [
        (cell + offset_of!(Cell, calls), cell + offset_of!(Cell, bytes)),
        (site + offset_of!(Site, calls), site + offset_of!(Site, bytes)),
        (thread + offset_of!(Thread, calls), thread + offset_of!(Thread, bytes)),
    ] {
        add(calls, more);
        add(bytes, 4 * more);
    }
    // The calls are of the shortest duration, so that the time in MPI does not exceed the rank's time.
    add(cell + offset_of!(Cell, histogram), more);
    add(thread + offset_of!(Thread, messages), more);
    add(peer + offset_of!(Peer, messages), more);
    add(peer + offset_of!(Peer, bytes), 4 * more);
}

#[test]
fn more_calls_than_32_bits_can_count_are_counted() {
    const MORE: u64 = u32::MAX as u64;
    const ALL: u64 = 3 + MORE + 5;
    let place = Place::new();
    let Some(program) = program(&place) else { return };
    let folder = place.path().join("many");
    let recordings = std::thread::scope(|scope| {
        scope.spawn(|| {
            let waits = || place.path().join("waits").exists();
            // A job that never waits ends at its limit.
            let begun = std::time::Instant::now();
            while !waits() && begun.elapsed() < skip::LIMIT {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            count_more_sends(&folder.join(folder::RANKS), MORE);
            File::create(place.path().join("goes-on")).unwrap();
        });
        run(&place, &program, "many", &[]).well("many")
    });
    let [rank] = <[Rank; 1]>::try_from(recordings.ranks()).unwrap();
    let send = named("Send").unwrap().id;
    let row = rank.rows.iter().find(|row| row.function == send).unwrap();
    let by_duration: u64 = row.cells.iter().flat_map(|cell| cell.histogram).sum();
    assert_eq!((calls(&rank, "Send"), by_duration, rank.peers[0].messages), (ALL, ALL, ALL));
    let summary = Summary::of(&Profile::open(&folder).unwrap());
    let sends = summary.functions.iter().find(|function| function.name == "MPI_Send");
    let sends = sends.unwrap_or_else(|| panic!("{:?}", summary.job.notes));
    assert_eq!((sends.calls, sends.times.iter().map(|class| class.calls).sum::<u64>()), (ALL, ALL));
    assert_eq!((summary.totals.calls, summary.totals.messages), (ALL, ALL));
}

/// A number from the MPI is out of range, at which the library panics in builds that check sums.
#[test]
fn a_defect_of_the_library_ends_recording_and_nothing_else() {
    if !cfg!(debug_assertions) {
        return skip::test("the library's defect that this provokes is one of builds that check sums");
    }
    let place = Place::new();
    let Some(program) = program(&place) else { return };
    let ended = run(&place, &program, "topology", &[("STANDIN_TOPOLOGY", "1")]);
    let outcome = &ended.outcome;
    assert!(outcome.succeeded() && outcome.out.ends_with("ended well\n"), "{outcome:?}");
    let [line] = outcome.errors.lines().collect::<Vec<_>>()[..] else { panic!("{}", outcome.errors) };
    assert!(line.starts_with("plimsoll: process ") && line.contains("the profiler failed") && line.contains("Next: "));
    let [rank] = <[Rank; 1]>::try_from(ended.ranks()).unwrap();
    assert!(rank.header.failed > rank.header.initialized && rank.header.ended > rank.header.failed);
    // Two sends of one thread and three of the other: all before the defect, none after.
    assert_eq!(calls(&rank, "Send"), 2 + 3);
}
