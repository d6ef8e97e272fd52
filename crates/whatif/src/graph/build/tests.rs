//! Timelines of programs whose critical path is planted.

use record::trace::peer;
use timeline::testing::{Lines, Written, profile, write};

use super::*;
use crate::answer::walk;
use crate::model::Progress;
use crate::path::Path;
use crate::replay::PS;

fn path(folder: &tempfile::TempDir) -> Path {
    let timeline = Timeline::open(folder.path()).unwrap().unwrap();
    walk(&Graph::of(&timeline, 0).unwrap(), None, Progress::Calls).unwrap()
}

/// The computing of each rank on the path, ns.
fn computing(path: &Path, ranks: u32) -> Vec<i64> {
    let by_rank = path.by(|spot| spot.rank);
    (0..ranks).map(|rank| by_rank.get(&rank).map_or(0, |of| of.computing / PS)).collect()
}

const NOBODY: (i32, i32, u64) = (peer::NONE, 0, 0);
const BEGUN: u64 = 1_000;
const ROUNDS: u64 = 10;

fn begin() -> Lines {
    let mut lines = Lines::default();
    lines.call("Init_thread", (0, BEGUN), NOBODY);
    lines
}

/// A message from `peer`, for which the rank waits in some way.
fn receive(lines: &mut Lines, way: &str, (from, until): (u64, u64), peer: i32) {
    let to = (peer, 1, 8);
    match way {
        "Recv" => _ = lines.call("Recv", (from, until), to),
        "Probe" => {
            lines.call("Probe", (from, until - 40), to);
            lines.call("Recv", (until - 30, until), to);
        }
        "Iprobe" => {
            (from..until - 60).step_by(400).for_each(|at| _ = lines.call("Iprobe", (at, at + 10), to));
            lines.call("Recv", (until - 30, until), to);
        }
        _ => {
            let begun = lines.call("Irecv", (from, from + 10), to);
            match way {
                "Wait" => lines.complete("Wait", (from + 20, until), &[begun]),
                _ => {
                    (from + 20..until - 60).step_by(400).for_each(|at| lines.complete("Test", (at, at + 10), &[]));
                    lines.complete("Test", (until - 30, until), &[begun]);
                }
            }
        }
    }
}

/// Two ranks compute in turn, 3 us and 1 us; a message takes 100 ns.
#[test]
fn a_path_of_three_to_one_is_three_to_one_however_it_is_waited() {
    for way in ["Recv", "Probe", "Iprobe", "Wait", "Test"] {
        let (mut first, mut second) = (begin(), begin());
        let mut free = BEGUN;
        for base in (0..ROUNDS).map(|round| BEGUN + 4_200 * round) {
            first.call("Send", (base + 3_000, base + 3_050), (1, 1, 8));
            receive(&mut second, way, (free, base + 3_100), 0);
            second.call("Send", (base + 4_100, base + 4_150), (0, 1, 8));
            receive(&mut first, way, (base + 3_050, base + 4_200), 1);
            free = base + 4_150;
        }
        let end = BEGUN + 4_200 * ROUNDS;
        first.call("Finalize", (end, end + 10), NOBODY);
        second.call("Finalize", (end - 40, end + 10), NOBODY);
        let path = path(&profile(vec![first, second]));
        let rounds = ROUNDS as i64;
        assert_eq!(computing(&path, 2), [3_000 * rounds, 1_000 * rounds], "{way}");
        assert_eq!(path.parts.total(), 4_200 * rounds * PS, "{way}");
        assert_eq!((path.parts.opaque, path.parts.unexplained), (0, 200 * rounds * PS), "{way}");
    }
}

/// Ranks compute in turn, 6 us and 2 us, and whoever sends meanwhile waits in its send for the receiver.
#[test]
fn a_path_of_three_to_one_leads_through_late_receivers() {
    for (way, bytes) in [("Send", 1 << 20), ("Ssend", 8), ("Wait", 1 << 20)] {
        let send = |lines: &mut Lines, (from, until): (u64, u64), to: i32| match way {
            "Wait" => {
                let begun = lines.call("Isend", (from, from + 10), (to, 1, bytes));
                lines.complete("Wait", (from + 20, until), &[begun]);
            }
            _ => _ = lines.call(way, (from, until), (to, 1, bytes)),
        };
        let (mut first, mut second) = (begin(), begin());
        for base in (0..ROUNDS).map(|round| BEGUN + 8_200 * round) {
            send(&mut second, (base, base + 6_100), 0);
            first.call("Recv", (base + 6_000, base + 6_100), (1, 1, bytes));
            send(&mut first, (base + 6_100, base + 8_200), 1);
            second.call("Recv", (base + 8_100, base + 8_200), (0, 1, bytes));
        }
        let end = BEGUN + 8_200 * ROUNDS;
        first.call("Finalize", (end, end + 10), NOBODY);
        second.call("Finalize", (end, end + 10), NOBODY);
        let path = path(&profile(vec![first, second]));
        let rounds = ROUNDS as i64;
        assert_eq!(computing(&path, 2), [6_000 * rounds, 2_000 * rounds], "{way} {:?}", path.parts);
        assert_eq!(path.parts.total(), 8_200 * rounds * PS, "{way}");
    }
}

/// Rank 1 receives a late message from rank 0, and one from rank 2 that came early.
#[test]
fn a_path_goes_over_to_a_rank_whose_message_is_late_and_not_to_one_whose_is_early() {
    let (mut first, mut second, mut third) = (begin(), begin(), begin());
    for base in (0..ROUNDS).map(|round| BEGUN + 4_200 * round) {
        // The first is late by 3 us; the third had sent long before.
        first.call("Send", (base + 3_000, base + 3_050), (1, 1, 8));
        third.call("Send", (base + 500, base + 550), (1, 2, 8));
        second.call("Recv", (base, base + 3_100), (0, 1, 8));
        second.call("Recv", (base + 4_100, base + 4_110), (2, 2, 8));
        for (rank, lines) in [&mut first, &mut second, &mut third].into_iter().enumerate() {
            let entered = base + [3_060, 4_110, 560][rank];
            lines.collective("Barrier", (entered, base + 4_200), peer::NONE, 0);
        }
    }
    let end = BEGUN + 4_200 * ROUNDS;
    for lines in [&mut first, &mut second, &mut third] {
        lines.call("Finalize", (end, end + 10), NOBODY);
    }
    let path = path(&profile(vec![first, second, third]));
    let rounds = ROUNDS as i64;
    assert_eq!(computing(&path, 3), [3_000 * rounds, 1_000 * rounds, 0], "{:?}", path.parts);
}

/// A thread of each rank exchanges while the main one waits for its end: the path leads through the slower rank's thread. With a
/// call of the main thread before, the threads are started after it.
#[test]
fn the_path_leads_through_threads_that_are_joined() {
    for called_before in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let start = BEGUN + if called_before { 500 } else { 0 };
        let end = start + 3_100 * ROUNDS;
        for rank in 0..2u32 {
            let (mut main, mut worker) = (begin(), Lines { thread: 1, ..Lines::default() });
            if called_before {
                main.collective("Barrier", (BEGUN + 400, start), peer::NONE, 0);
            }
            let other = (1 - rank as i32, 1, 8);
            for base in (0..ROUNDS).map(|round| start + 3_100 * round) {
                let computes = if rank == 0 { 3_000 } else { 1_000 };
                worker.exchange((base + computes, base + 3_100), other, other);
            }
            main.call("Finalize", (end + 1_000, end + 1_100), NOBODY);
            let written = Written { rank, threads: vec![main, worker] };
            write(folder.path(), 2, &written, &[(0, vec![0, 1])]);
        }
        let timeline = Timeline::open(folder.path()).unwrap().unwrap();
        let graph = Graph::of(&timeline, 0).unwrap();
        assert!(graph.notes.iter().any(|note| note.starts_with("2 threads ended")), "{:?}", graph.notes);
        let path = path(&folder);
        let (rounds, before) = (ROUNDS as i64, if called_before { 400 } else { 0 });
        let parts = path.parts;
        assert_eq!(parts.total(), (end + 1_000 - BEGUN) as i64 * PS);
        assert_eq!(parts.computing, (3_000 * rounds + 1_000 + before) * PS, "{parts:?}");
        assert!(computing(&path, 2)[0] >= 3_000 * rounds, "{parts:?}");
        assert_eq!(parts.opaque, 0, "{parts:?}");
    }
}
