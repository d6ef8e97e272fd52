//! Injected delays: as many as messages, none shorter than requested, all within their share of time, and outside the
//! recorded times of calls.

use std::path::PathBuf;

use record::blocks::{Blocks, Schedule};
use record::functions::{FunctionId, function};
use record::layout::{injected, perturbed};
use record::rank::Rank;
use testbed::recording::{Recording, Recordings};
use testbed::{Mpi, Place};
use timeline::Timeline;

use super::program;

const RANKS: usize = 2;
/// Few enough that all delays fit into a tenth of the time of MPI_Init.
const ROUNDS: u64 = 100;
const MESSAGES: u64 = 4 * ROUNDS;

fn delayed(place: &Place, mpi: &Mpi, rounds: u64) -> Recording {
    Recording::under(mpi, RANKS, built(place, mpi)).arguments(&[rounds.to_string()])
}

fn built(place: &Place, mpi: &Mpi) -> PathBuf {
    program(place, mpi, "delays.c")
}

/// Number and nanoseconds of a rank's delays.
fn given(rank: &Rank, kind: usize) -> (u64, f64) {
    let threads = rank.threads.values().map(|thread| thread.injected[kind]);
    let (count, ticks) = threads.fold((0, 0), |(count, ticks), of| (count + of.count, ticks + of.ticks));
    (count, rank.nanoseconds(ticks).unwrap())
}

fn counts(recordings: &Recordings) -> Vec<[u64; 3]> {
    recordings.ranks().iter().map(|rank| std::array::from_fn(|kind| given(rank, kind).0)).collect()
}

/// The requested delays of a rank take no more than a tenth of its time. The measured delays may: one in which the thread
/// loses its core is longer.
fn within_its_share(rank: &Rank, asked: [f64; 2]) {
    let all: f64 = asked.iter().enumerate().map(|(kind, delay)| given(rank, kind).0 as f64 * delay).sum();
    let lived = rank.nanoseconds(rank.header.latest.ticks - rank.header.started.ticks).unwrap();
    assert!(all <= 0.1 * lived, "{all} of {lived} ns");
}

/// Tolerance for rounding to ticks, and for the difference between a rank's and its reader's rate of the counter.
const ROUNDED: f64 = 0.99;

#[test]
fn every_message_is_delayed_once_at_each_end() {
    for mpi in Mpi::all() {
        let place = Place::new();
        let recording = delayed(&place, &mpi, ROUNDS).perturb("send=1us,receive=500ns", None);
        let recordings = recording.run(&place, "profile", skip::LIMIT).well(&mpi);
        for rank in recordings.ranks() {
            assert_eq!(rank.header.perturbed, perturbed::ASKED, "{mpi}");
            let sent: u64 = rank.threads.values().map(|thread| thread.messages).sum();
            let (sends, at_sends) = given(&rank, injected::SEND);
            let (receives, at_receives) = given(&rank, injected::RECEIVE);
            assert_eq!((sent, sends, receives), (MESSAGES, MESSAGES, MESSAGES), "{mpi}");
            assert!(at_sends >= ROUNDED * 1000.0 * sends as f64, "{mpi}: {at_sends}");
            assert!(at_receives >= ROUNDED * 500.0 * receives as f64, "{mpi}: {at_receives}");
            assert_eq!(given(&rank, injected::COMPUTE), (0, 0.0), "{mpi}");
            within_its_share(&rank, [1000.0, 500.0]);
        }
        assert!(recordings.account.contains("delayed on purpose: 800 delays at sends"), "{}", recordings.account);
    }
}

#[test]
fn bytes_and_computing_are_delayed_in_proportion() {
    for mpi in Mpi::all() {
        let place = Place::new();
        // Little enough that gaps and spins that lose their core do not use up a tenth of the time.
        let recording = delayed(&place, &mpi, ROUNDS).perturb("byte=100ns,compute=2%", None);
        for rank in recording.run(&place, "profile", skip::LIMIT).well(&mpi).ranks() {
            let (sends, took) = given(&rank, injected::SEND);
            assert!(sends == MESSAGES && took >= ROUNDED * 800.0 * sends as f64, "{mpi}: {sends}, {took}");
            let (gaps, _) = given(&rank, injected::COMPUTE);
            // Every call but MPI_Init and MPI_Finalize has a gap before it.
            let calls: u64 = rank.threads.values().map(|thread| thread.calls).sum();
            assert!((calls - 4..calls).contains(&gaps), "{mpi}: {gaps} of {calls}");
            assert_eq!(given(&rank, injected::RECEIVE).0, 0, "{mpi}");
        }
    }
}

#[test]
#[ignore = "make check"]
fn nothing_is_delayed_where_nothing_asks_for_it() {
    for mpi in Mpi::all() {
        let place = Place::new();
        let plain = delayed(&place, &mpi, ROUNDS);
        let unread = delayed(&place, &mpi, ROUNDS).env("PLIMSOLL_PROFILE_PERTURB", "latency=1us");
        let none = delayed(&place, &mpi, ROUNDS).perturb("send=0", None);
        for (recording, folder, marks) in
            [(plain, "plain", 0), (unread, "unread", perturbed::ASKED | perturbed::UNREAD)]
        {
            let recordings = recording.run(&place, folder, skip::LIMIT).well(&mpi);
            assert!(recordings.ranks().iter().all(|rank| rank.header.perturbed == marks), "{mpi}, {folder}");
            assert_eq!(counts(&recordings), [[0; 3]; RANKS], "{mpi}, {folder}");
        }
        let recordings = none.run(&place, "none", skip::LIMIT).well(&mpi);
        assert!(recordings.ranks().iter().all(|rank| given(rank, injected::SEND) == (MESSAGES, 0.0)), "{mpi}");
    }
}

#[test]
#[ignore = "make check"]
fn filters_choose_by_host_and_by_core() {
    for mpi in Mpi::all() {
        let place = Place::new();
        let plain = delayed(&place, &mpi, ROUNDS).run(&place, "plain", skip::LIMIT).well(&mpi);
        let all = [[MESSAGES, MESSAGES, 0]; RANKS];
        for (folder, filter, expected) in [
            ("same", "peers=same-host", all),
            ("other", "peers=other-host", [[0; 3]; RANKS]),
            ("core", "core=99999", [[0; 3]; RANKS]),
        ] {
            let what = format!("send=100ns,receive=100ns,{filter}");
            let recording = delayed(&place, &mpi, ROUNDS).perturb(&what, Some(&plain.folder));
            let recordings = recording.run(&place, folder, skip::LIMIT).well(&mpi);
            assert_eq!(counts(&recordings), expected, "{mpi}, {filter}");
        }
    }
}

#[test]
#[ignore = "make check"]
fn a_rank_that_is_not_where_it_was_said_to_be_is_not_delayed() {
    let Some(mpi) = Mpi::all().into_iter().next() else { return };
    let place = Place::new();
    // A job of three ranks, not two.
    let other =
        Recording::under(&mpi, 3, built(&place, &mpi)).arguments(&["1"]).run(&place, "other", skip::LIMIT).well(&mpi);
    let recording = delayed(&place, &mpi, ROUNDS).perturb("send=1us,peers=same-host", Some(&other.folder));
    let recordings = recording.run(&place, "profile", skip::LIMIT).well(&mpi);
    assert_eq!(counts(&recordings), [[0; 3]; RANKS]);
    assert!(recordings.ranks().iter().all(|rank| rank.header.perturbed & perturbed::MISPLACED != 0));
    assert!(recordings.account.contains("nothing was delayed"), "{}", recordings.account);
}

#[test]
fn a_threads_share_is_never_passed() {
    for mpi in Mpi::all() {
        let place = Place::new();
        // Without waits, the requested delays are far more than a tenth of the time, however long others have the core.
        let recording = delayed(&place, &mpi, 5000).arguments(&["alone"]).perturb("send=100us", None);
        let recordings = recording.run(&place, "profile", skip::LIMIT).well(&mpi);
        for rank in recordings.ranks() {
            assert!(rank.header.perturbed & perturbed::STOPPED != 0, "{mpi}");
            let sends = given(&rank, injected::SEND).0;
            assert!(sends > 0 && sends < 20_000, "{mpi}: {sends}");
            within_its_share(&rank, [100_000.0, 0.0]);
        }
        assert!(recordings.account.contains("a tenth"), "{}", recordings.account);
    }
}

/// In the timeline, the gap before each call that sends, and after each that received, has at least the delay's length.
#[test]
fn delays_lie_outside_of_calls() {
    for mpi in Mpi::all() {
        let place = Place::new();
        let recording = delayed(&place, &mpi, 50).trace(1 << 20).perturb("send=4us,receive=2us", None);
        let recordings = recording.run(&place, "profile", skip::LIMIT).well(&mpi);
        assert!(recordings.ranks().iter().all(|rank| rank.header.perturbed == perturbed::ASKED), "{mpi}");
        let timeline = Timeline::open(&recordings.folder).unwrap().unwrap();
        for place in 0..RANKS {
            let mut walk = timeline.walk(place);
            let (mut left, mut received, mut seen) = (i64::MIN / 2, false, 0);
            while let Some(step) = walk.step() {
                let name = function(step.event.call.function).unwrap().name;
                let nobody = step.event.call.peer == record::trace::peer::NULL;
                let sends = ["Send", "Isend", "Sendrecv", "Startall"].contains(&name) && !nobody;
                let least = if sends { 4000.0 } else { 0.0 } + if received { 2000.0 } else { 0.0 };
                let gap = (step.entered - left) as f64;
                assert!(gap >= ROUNDED * least, "{mpi}: {gap} ns before {name}, of {least}");
                seen += usize::from(least > 0.0);
                received = ["Sendrecv", "Waitall"].contains(&name);
                left = step.left;
            }
            assert!(seen >= 200, "{mpi}: {seen}");
        }
    }
}

/// A delay of computing comes before the call that ends it, whose wait would hide it: in the timeline the gap before that call is
/// longer by it.
#[test]
fn computing_is_delayed_before_the_call_that_ends_it() {
    for mpi in Mpi::all() {
        let place = Place::new();
        let recording = delayed(&place, &mpi, 50).arguments(&["work"]).trace(1 << 20).perturb("compute=2%", None);
        let recordings = recording.run(&place, "profile", skip::LIMIT).well(&mpi);
        let timeline = Timeline::open(&recordings.folder).unwrap().unwrap();
        for place in 0..RANKS {
            let mut walk = timeline.walk(place);
            let (mut left, mut barriers) = (i64::MIN / 2, 0);
            while let Some(step) = walk.step() {
                let name = function(step.event.call.function).unwrap().name;
                if name == "Barrier" && barriers % 2 == 0 {
                    let gap = (step.entered - left) as f64;
                    assert!(gap >= ROUNDED * 1.02e6, "{mpi}: {gap} ns before a barrier");
                }
                barriers += usize::from(name == "Barrier");
                left = step.left;
            }
            assert_eq!(barriers, 100, "{mpi}");
        }
    }
}

#[test]
#[ignore = "make check"]
fn a_killed_rank_leaves_its_delays_told_and_nothing_behind() {
    for mpi in Mpi::all() {
        let place = Place::new();
        let recording = delayed(&place, &mpi, ROUNDS).arguments(&["kill"]).perturb("send=1us", None);
        let recordings = recording.run(&place, "killed", skip::LIMIT);
        let ranks = recordings.ranks();
        assert_eq!((ranks[1].header.finalized, ranks[1].header.ended), (0, 0), "{mpi}");
        assert_eq!(given(&ranks[1], injected::SEND).0, MESSAGES / 2, "{mpi}");
        let next = delayed(&place, &mpi, ROUNDS).run(&place, "next", skip::LIMIT).well(&mpi);
        assert!(next.ranks().iter().all(|rank| rank.header.perturbed == 0), "{mpi}");
        assert_eq!(counts(&next), [[0; 3]; RANKS], "{mpi}");
    }
}

/// The marks of all ranks are those of the schedule; a column's dose grows in its own blocks alone.
fn marks_follow(recordings: &Recordings, schedule: &Schedule, passes: u64) {
    let Some(Blocks { every, guard, .. }) = schedule.blocks else { panic!("it has blocks") };
    let (every, guard) = (u64::from(every), u64::from(guard));
    let due = |count: &u64| count.is_multiple_of(every) || guard > 0 && count % every == guard;
    let counts: Vec<u64> = (1..=passes).filter(due).collect();
    for rank in recordings.ranks() {
        assert_eq!(rank.marks.iter().map(|mark| mark.count).collect::<Vec<_>>(), counts);
        let mut before = vec![0; schedule.columns.len()];
        for mark in &rank.marks {
            let block = (mark.count - 1) / every;
            assert_eq!(mark.on, schedule.on(block), "block {block}");
            for (column, (now, before)) in mark.doses.iter().zip(&before).enumerate() {
                let grows = mark.on >> column & 1 == 1 && schedule.columns[column].send > Some(0.0);
                assert_eq!(now > before, grows, "{mark:?}");
            }
            before.clone_from(&mark.doses);
        }
        let ticks = rank.marks.iter().map(|mark| mark.ticks);
        assert!(ticks.is_sorted());
    }
}

#[test]
fn delays_are_switched_in_the_same_blocks_in_all_ranks() {
    for mpi in Mpi::all() {
        let place = Place::new();
        let text = "progress=collectives,every=5,guard=1,seed=7/send=0ns/send=1us/send=500ns";
        let recordings =
            delayed(&place, &mpi, ROUNDS).perturb(text, None).run(&place, "barriers", skip::LIMIT).well(&mpi);
        assert!(recordings.ranks().iter().all(|rank| rank.header.perturbed == perturbed::ASKED), "{mpi}");
        marks_follow(&recordings, &text.parse().unwrap(), ROUNDS);
        // The same by a call site, which is at another address in each process.
        let first = &recordings.ranks()[0];
        let site = first.sites.iter().map(|(_, site)| site);
        let site = site.clone().find(|site| function(FunctionId(site.function)).unwrap().name == "Sendrecv").unwrap();
        let module = first.modules[site.module as usize - 1].identity();
        let text = format!("progress=Sendrecv+{:x}@{module:x},every=4,guard=0,seed=7/send=0ns/send=1us", site.offset);
        let recordings = delayed(&place, &mpi, ROUNDS).perturb(&text, None).run(&place, "site", skip::LIMIT).well(&mpi);
        marks_follow(&recordings, &text.parse().unwrap(), ROUNDS);
    }
}

#[test]
fn one_rank_alone_is_delayed() {
    for mpi in Mpi::all() {
        let place = Place::new();
        let recording = delayed(&place, &mpi, ROUNDS).perturb("send=1us,rank=1", None);
        let recordings = recording.run(&place, "profile", skip::LIMIT).well(&mpi);
        assert_eq!(counts(&recordings), [[0; 3], [MESSAGES, 0, 0]], "{mpi}");
    }
}
