//! One program, one verdict: a recording judged with its timeline and without. Both name the same hindrance, and the gain
//! that is told without the timeline has room for the one that the timeline shows.

use crate::synthetic::job;
use profile::job::Job;
use profile::profile::Profile;
use profile::summary::Summary;
use profile::verdict::{Answer, Cause, Judgement};
use record::functions::named;
use record::layout::Site;
use record::trace::peer;
use tempfile::TempDir;
use timeline::testing::{Lines, REALTIME, profile, sample_stops};

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const LARGE: u64 = 1 << 20;

/// Shares of the run that both views round differently.
const ROUNDING: f64 = 0.01;

/// The calls of ranks in so many rounds of a length; `of(rank, lines, base)` makes those of a round that begins at `base`.
fn program(ranks: usize, (rounds, length): (u64, u64), of: impl Fn(usize, &mut Lines, u64)) -> TempDir {
    let lines = (0..ranks).map(|rank| {
        let mut lines = Lines::default();
        (0..rounds).for_each(|round| of(rank, &mut lines, round * length));
        lines
    });
    let folder = profile(lines.collect());
    Job { started: REALTIME, ended: Some(REALTIME + rounds * length), ..job() }.write(folder.path()).unwrap();
    folder
}

/// The first hindrance, and the rank that it is of.
type First = Option<(Cause, Option<usize>)>;

fn first(summary: &Summary) -> First {
    summary.verdict.as_ref().unwrap().hindrances.first().map(|found| (found.cause, found.rank))
}

fn agree(folder: &TempDir, expected: First) {
    let traced = Summary::of(&Profile::open(folder.path()).unwrap());
    let plain = Summary::of(&Profile::without_timeline(folder.path()).unwrap());
    assert!(traced.timeline.is_some() && plain.timeline.is_none());
    let [with, without] = [&traced, &plain].map(|summary| summary.verdict.as_ref().unwrap());
    assert_eq!([first(&traced), first(&plain)], [expected; 2], "{with:#?}\n{without:#?}");
    for (traced, plain) in with.judgements.iter().zip(&without.judgements) {
        assert_eq!(traced.choice, plain.choice);
        assert!(is_within(traced, plain), "{traced:#?}\n{plain:#?}");
    }
}

/// Whether the plain view leaves room for what the timeline shows.
fn is_within(traced: &Judgement, plain: &Judgement) -> bool {
    let Some((least, most)) = plain.gain else {
        return plain.answer == traced.answer || plain.answer == Answer::CannotTell;
    };
    match traced.gain {
        Some(traced) => least <= traced.0 + ROUNDING && traced.1 <= most + ROUNDING,
        None => plain.answer == Answer::CannotTell || plain.answer == traced.answer,
    }
}

/// Rank 1 computes nine times as long, and rank 0 waits for it in each send.
#[test]
fn a_late_receiver_of_large_messages_is_named_in_both_views() {
    let folder = program(2, (100, MS), |rank, lines, base| match rank {
        0 => _ = lines.call("Send", (base + 100 * US, base + 1_000 * US), (1, 7, LARGE)),
        _ => _ = lines.call("Recv", (base + 900 * US, base + 1_000 * US), (0, 7, LARGE)),
    });
    agree(&folder, Some((Cause::Late, Some(1))));
}

#[test]
fn an_imbalance_is_named_in_both_views() {
    let folder = program(4, (100, MS), |rank, lines, base| {
        let computed = if rank == 3 { 900 * US } else { 400 * US };
        lines.collective("Allreduce", (base + computed, base + 950 * US), peer::NONE, 8);
    });
    agree(&folder, Some((Cause::Late, Some(3))));
}

/// Rank 0 is stopped for 2.5 ms of each 4 ms.
#[test]
fn a_stopped_rank_is_named_in_both_views() {
    let (rounds, length) = (100, 4 * MS);
    let folder = program(2, (rounds, length), |rank, lines, base| {
        let came = if rank == 0 { 3_500 * US } else { 1_000 * US };
        lines.collective("Allreduce", (base + came, base + 3_600 * US), peer::NONE, 8);
    });
    let stops: Vec<(u64, u64)> =
        (0..rounds).map(|round| round * length).map(|base| (base + 500 * US, base + 3_000 * US)).collect();
    sample_stops(folder.path(), 2, &stops, rounds * length);
    agree(&folder, Some((Cause::Stopped, Some(0))));
}

#[test]
fn tiny_messages_are_named_in_both_views() {
    let folder = program(2, (5_000, 10 * US), |rank, lines, base| {
        let other = 1 - rank as i32;
        lines.call("Send", (base, base + 3 * US), (other, 7, 8));
        lines.call("Recv", (base + 3 * US, base + 7 * US), (other, 7, 8));
    });
    agree(&folder, Some((Cause::TinyMessages, None)));
}

/// An item goes through four ranks of 5 ms each before the next begins.
#[test]
fn a_serialised_pipeline_is_named_in_both_views() {
    let folder = program(4, (50, 20 * MS), |rank, lines, base| {
        let (came, done) = (base + 5 * MS * rank as u64, base + 5 * MS * (rank as u64 + 1));
        if rank > 0 {
            // It waits from when it had handed the item before on.
            let handed_on = (done + 5 * US).saturating_sub(20 * MS);
            lines.call("Recv", (handed_on, came + 10 * US), (rank as i32 - 1, 7, 1000));
        }
        lines.call("Send", (done, done + 5 * US), ((rank as i32 + 1) % 4, 7, 1000));
        if rank == 0 {
            lines.call("Recv", (done + 5 * US, base + 20 * MS + 5 * US), (3, 7, 1000));
        }
        if lines.sites.is_empty() {
            let function = named("Recv").unwrap().id.0;
            lines.sites.push(Site {
                function,
                number: 1,
                calls: 50,
                ticks: 750 * MS,
                bytes: 50_000,
                ..Site::default()
            });
        }
    });
    agree(&folder, Some((Cause::Serialised, None)));
}

#[test]
fn balanced_computing_has_no_hindrance_in_either_view() {
    let folder = program(4, (100, MS), |rank, lines, base| {
        let computed = base + 950 * US + rank as u64 * 300;
        lines.collective("Allreduce", (computed, base + 960 * US), peer::NONE, 8);
    });
    agree(&folder, None);
}
