//! The timeline of a program whose calls are known, under each MPI: every call, in order, with its arguments; every message
//! and collective operation matched.

use std::path::{Path, PathBuf};

use record::functions::function;
use record::layout::Thread;
use record::rank::Rank;
use record::trace::{Event, communicator, peer, tag};
use testbed::recording::Recording;
use testbed::{Mpi, Place};
use timeline::Timeline;

const RANKS: i32 = 3;

/// Runs the program of this folder, with timelines of at most `limit` bytes; returns its profile.
fn traced(place: &Place, mpi: &Mpi, limit: u64) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/timeline/calls.c");
    let program = place.compile(&mpi.compiler, &[source], "calls", &["-w"]);
    let recording = Recording::under(mpi, RANKS as usize, program).trace(limit);
    let ended = recording.run(place, "profile", skip::LIMIT);
    assert!(ended.outcome.succeeded(), "{mpi}: {:?}", ended.outcome);
    ended.folder
}

/// A call as a line, with world ranks and numbers of communicators.
fn line(event: &Event) -> String {
    let call = &event.call;
    let mut line = function(call.function).unwrap().name.to_owned();
    let mut word = |there: bool, text: String| {
        if there {
            line += &text;
        }
    };
    let name = |rank: i32| match rank {
        peer::ANY => "any".into(),
        peer::NULL => "null".into(),
        rank => rank.to_string(),
    };
    word(call.communicator != communicator::NONE, format!(" c{}", call.communicator));
    word(call.peer != peer::NONE, format!(" to {}", name(call.peer)));
    word(call.tag != tag::NONE, format!(" tag {}", call.tag));
    word(call.bytes > 0, format!(" {} B", call.bytes));
    word(
        call.source != peer::NONE,
        format!(" from {} tag {} {} B", name(call.source), call.source_tag, call.source_bytes),
    );
    let ordinals: Vec<_> = event.references.iter().map(|reference| reference.ordinal).collect();
    word(!ordinals.is_empty(), format!(" {ordinals:?}"));
    for got in &event.matched {
        word(true, format!(" got {}:{} {} B", got.source, got.tag, got.bytes));
    }
    line
}

/// The calls of this rank in `calls.c`. `win` is the number of the window's communicator.
fn expected(rank: i32, win: u32) -> Vec<String> {
    let (right, left) = ((rank + 1) % RANKS, (rank + RANKS - 1) % RANKS);
    let mut lines = vec!["Init".to_owned()];
    let mut add = |line: String| lines.push(line);
    add("Send c0 to null tag 1".into());
    add(format!("Sendrecv c0 to {right} tag 2 20 B from {left} tag 2 24 B"));
    add("Irecv c0 to any tag 3 40 B".into());
    add(format!("Irecv c0 to {left} tag 4 80 B"));
    add(format!("Isend c0 to {right} tag 4 16 B"));
    add(format!("Send c0 to {right} tag 3 28 B"));
    add(format!("Waitall 136 B [0, 1, 2] got {left}:3 28 B"));
    add("Comm_dup c0".into());
    add("Comm_split c0".into());
    match rank {
        0 => {
            add("Send c3 to 1 tag 5 4 B".into());
            add("Recv c2 to any tag -1 32 B got 2:6 8 B".into());
        }
        1 => {
            add("Send c2 to 2 tag 6 4 B".into());
            add("Recv c3 to any tag -1 32 B got 0:5 4 B".into());
        }
        _ => {
            add("Send c2 to 0 tag 6 8 B".into());
            add("Recv c2 to 1 tag 6 32 B".into());
        }
    }
    add(format!("Send_init c0 to {right} tag 7 8 B"));
    add(format!("Recv_init c0 to {left} tag 7 8 B"));
    for start in [5, 7, 9] {
        add("Startall 16 B [3, 4]".into());
        add(format!("Waitall 16 B [{start}, {}]", start + 1));
    }
    for line in ["Start 8 B [4]", "Start 8 B [3]", "Wait 8 B [12]", "Wait 8 B [11]", "Request_free", "Request_free"] {
        add(line.into());
    }
    add(format!("Isend c0 to {right} tag 8 36 B"));
    add(format!("Mprobe c0 to any tag 8 got {left}:8 36 B"));
    add("Mrecv 36 B".into());
    add("Wait 36 B [13]".into());
    add(format!("Irecv c0 to {left} tag 10 4 B"));
    add("Cancel [14]".into());
    add("Wait 4 B [14]".into());
    add(format!("Isend c0 to {right} tag 9 44 B"));
    add(format!("Recv c0 to {left} tag 9 44 B"));
    add("Test 44 B [15]".into());
    add("Allreduce c0 40 B".into());
    // The root, rank 0 of the reversed communicator, is world rank 2.
    add("Bcast c3 to 2 40 B".into());
    add("Ibarrier c2".into());
    add("Reduce c0 to 1 16 B".into());
    add("Wait [16]".into());
    add("Win_create c0".into());
    add(format!("Win_fence c{win}"));
    add(format!("Put c{win} to {right} 12 B"));
    add(format!("Win_fence c{win}"));
    for line in ["Win_free", "Comm_free", "Comm_free", "Finalize"] {
        add(line.into());
    }
    lines
}

#[test]
fn a_timeline_has_every_call_in_order_and_matches_all_messages() {
    for mpi in Mpi::all() {
        let folder = Place::new();
        let profile = traced(&folder, &mpi, 1 << 20);
        let timeline = Timeline::open(&profile).unwrap().unwrap();
        assert_eq!(timeline.notes, Vec::<String>::new(), "{mpi}");
        assert_eq!(timeline.ranks.len() as i32, RANKS);
        for (place, rank) in timeline.ranks.iter().enumerate() {
            let mut walk = timeline.walk(place);
            let (mut lines, mut left) = (Vec::new(), i64::MIN);
            while let Some(step) = walk.step() {
                assert!(step.entered >= left && step.left >= step.entered);
                left = step.left;
                // The number of Tests without a completion depends on the network.
                let asked_in_vain = line(step.event) == "Test";
                if !asked_in_vain {
                    lines.push(line(step.event));
                }
            }
            let fence = lines.iter().find_map(|line| line.strip_prefix("Win_fence c")?.parse().ok()).unwrap();
            assert_eq!(lines, expected(rank.rank as i32, fence), "{mpi}, rank {place}");
        }
        let matches = &timeline.matches;
        // Per rank: exchange, wildcard, named source, other communicators, four restarts, matched probe, last send.
        assert_eq!((matches.messages, matches.unmatched), (3 * (1 + 1 + 1 + 1 + 4 + 1 + 1), 0), "{mpi}");
        assert_eq!(matches.operations, 2 + 1 + 1 + 1 + 1 + 1 + 2, "{mpi}");
        let waits = timeline.waits();
        let undivided: Vec<_> = waits.ranks[0].functions.iter().filter(|(_, waits)| waits.undivided > 0.0).collect();
        let named = |name: &str| undivided.iter().any(|((id, _), _)| function(*id).unwrap().name == name);
        for name in ["Sendrecv", "Waitall", "Recv", "Allreduce", "Reduce", "Comm_split", "Win_fence", "Mprobe"] {
            assert!(!named(name), "{mpi}: waiting in {name} is not seen");
        }
    }
}

#[test]
fn messages_of_coupled_parts_find_each_other() {
    for mpi in Mpi::all().into_iter().take(1) {
        let folder = Place::new();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/timeline/coupled.c");
        let program = folder.compile(&mpi.compiler, &[source], "coupled", &["-w"]);
        let recording = Recording::under(&mpi, RANKS as usize, program).trace(1 << 20);
        let ended = recording.run(&folder, "profile", skip::LIMIT).well(&mpi);
        let timeline = Timeline::open(&ended.folder).unwrap().unwrap();
        assert_eq!((timeline.matches.messages, timeline.matches.unmatched), (2, 0), "{mpi}");
    }
}

#[test]
fn a_timeline_that_reaches_its_limit_is_whole_until_there_and_says_so() {
    for mpi in Mpi::all().into_iter().take(1) {
        let folder = Place::new();
        let profile = traced(&folder, &mpi, 400);
        let timeline = Timeline::open(&profile).unwrap().unwrap();
        assert!(timeline.notes.iter().any(|note| note.contains("complete up to")), "{:?}", timeline.notes);
        for (place, rank) in timeline.ranks.iter().enumerate() {
            let (mut walk, mut calls) = (timeline.walk(place), 0);
            let all = expected(rank.rank as i32, 0);
            while let Some(step) = walk.step() {
                assert_eq!(line(step.event), all[calls]);
                calls += 1;
            }
            assert!(calls > 5 && calls < all.len(), "{calls}");
            let files = std::fs::read_dir(profile.join("ranks")).unwrap().map(|file| file.unwrap().path());
            let of = |path: &PathBuf| path.to_string_lossy().contains(&format!(".{}.", rank.pid));
            let tables = files.filter(of).find(|path| path.extension().is_some_and(|suffix| suffix == "rank")).unwrap();
            let tables = Rank::open(&tables).unwrap();
            let thread: &Thread = &tables.threads[&0];
            assert_eq!(thread.calls, calls as u64 + tables.header.dropped.events);
            assert!(thread.traced <= 400);
        }
    }
}
