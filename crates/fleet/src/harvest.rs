//! The summary of a job, from its profile.

use std::collections::BTreeMap;

use machine::Reading;
use profile::profile::Profile;
use profile::summary as profiled;
use profile::verdict::Choice;

use crate::summary::{End, Gain, Hindrance, Job, Lever, Owner, Program, Size, Summary, Unjudged, VERSION};

/// What a profile does not know of a job.
#[derive(Debug, Clone)]
pub struct Known {
    pub job: Job,
    pub owner: Owner,
    pub partition: String,
    pub program: Program,
    /// Cores that the job held.
    pub cores: u32,
    pub end: End,
    pub model: String,
}

/// Runs of one program differ by more than what a lever brings, where they are shorter.
pub(crate) const SHORTEST: f64 = 1.0;
/// What the lever `Clock` adds to a core's clock.
const CLOCK: f64 = 0.1;

/// Seconds up to which clocks of hosts count as one.
const ONE_CLOCK: f64 = 60.0;

/// The summary of a job that left this profile, whose own summary is `of`.
pub fn harvest(profile: &Profile, of: &profiled::Summary, known: Known) -> Summary {
    let Known { job, owner, partition, program, cores, end, model } = known;
    let totals = &of.totals;
    let time = totals.thread_seconds;
    let share = |seconds: f64| (time > 0.0).then(|| (seconds / time).clamp(0.0, 1.0));
    let verdict = of.verdict.as_ref();
    let (ranks, expected) = (of.job.ranks as u32, of.job.expected.max(of.job.ranks) as u32);
    let mut unjudged = match () {
        () if ranks == 0 => Some(Unjudged::NoTables),
        () if ranks < expected => Some(Unjudged::LostRanks),
        () if totals.seconds < SHORTEST => Some(Unjudged::TooShort),
        () => None,
    };
    let levers: Vec<Gain> = match unjudged {
        Some(_) => Vec::new(),
        None => judged(of).into_iter().flatten().collect(),
    };
    // A clock is no place: what it may bring is bounded for every job.
    if levers.iter().all(|gain| gain.lever == Lever::Clock) {
        unjudged.get_or_insert(Unjudged::CannotTell);
    }
    let hindrances = verdict.map(|verdict| &verdict.hindrances[..]).unwrap_or_default();
    Summary {
        version: VERSION,
        job,
        owner,
        partition,
        program,
        started: of.job.started / 1_000_000_000,
        seconds: of.job.seconds.unwrap_or(totals.seconds),
        nodes: of.job.hosts.len() as u32,
        cores,
        ranks,
        expected,
        end,
        library: of.job.libraries.first().cloned(),
        mpi: share(totals.mpi),
        wait: known_value(&totals.split.wait).and_then(share),
        sizes: of.sizes.iter().map(size).filter(|size| size.messages > 0).collect(),
        hindrances: hindrances.iter().map(hindrance).collect(),
        levers,
        unjudged,
        model,
        clocks_apart: clocks_apart(profile),
        unbound: unbound(profile.ranks.iter().map(|rank| (rank.host(), rank.header.first, rank.header.bound))),
    }
}

/// Ranks that may run on several cores, the first of which another rank of their host has too, from the host, first and only core
/// of each. Ranks that have several cores to themselves, as those with threads, do not count.
fn unbound(ranks: impl Iterator<Item = (String, u32, u32)>) -> Option<u32> {
    let mut of_first: BTreeMap<(String, u32), (u32, u32)> = BTreeMap::new();
    for (host, first, only) in ranks {
        if first == 0 {
            return None;
        }
        let (all, wide) = of_first.entry((host, first)).or_default();
        (*all, *wide) = (*all + 1, *wide + u32::from(only == 0));
    }
    let shared = of_first.values().filter(|(all, _)| *all > 1);
    (!of_first.is_empty()).then(|| shared.map(|(_, wide)| wide).sum())
}

fn clocks_apart(profile: &Profile) -> Option<u64> {
    let lives = profile.ranks.iter().map(|rank| {
        let (from, to) = rank.run();
        (rank.world, rank.host(), rank.realtime(from) / 1e9, rank.realtime(to) / 1e9)
    });
    Some(apart(lives)).filter(|apart| *apart > ONE_CLOCK).map(|apart| apart as u64)
}

/// Seconds by which clocks differ, from the world, host, beginning and end of each rank. MPI_Init returns and MPI_Finalize is called
/// at about one moment on all hosts of a world; another clock moves both by the same, and a rank that begins late or dies one.
fn apart(lives: impl IntoIterator<Item = (usize, String, f64, f64)>) -> f64 {
    let mut worlds: BTreeMap<usize, BTreeMap<String, (f64, f64)>> = BTreeMap::new();
    for (world, host, from, to) in lives {
        let life = worlds.entry(world).or_default().entry(host).or_insert((from, to));
        *life = (life.0.min(from), life.1.max(to));
    }
    let apart = worlds.values().filter_map(|hosts| {
        let first = hosts.values().next()?;
        let ahead = hosts.values().map(|life| match (life.0 - first.0, life.1 - first.1) {
            (from, to) if from.signum() != to.signum() => 0.0,
            (from, to) if from.abs() < to.abs() => from,
            (_, to) => to,
        });
        let (least, most) = ahead.fold((0.0_f64, 0.0_f64), |(least, most), ahead| (least.min(ahead), most.max(ahead)));
        Some(most - least)
    });
    apart.fold(0.0, f64::max)
}

fn known_value(of: &Reading<f64>) -> Option<f64> {
    match of {
        Reading::Measured(value) | Reading::Modelled(value) => Some(*value),
        _ => None,
    }
}

/// What each lever would save, where that is bounded.
fn judged(of: &profiled::Summary) -> [Option<Gain>; 4] {
    let judgements = of.verdict.iter().flat_map(|verdict| &verdict.judgements);
    let gain = |lever, choice| {
        let share = judgements.clone().find(|judgement| judgement.choice == choice)?.gain?;
        Some(Gain { lever, share: (share.0.clamp(-1.0, 1.0), share.1.clamp(share.0.max(-1.0), 1.0)) })
    };
    [
        gain(Lever::Offload, Choice::Offload),
        gain(Lever::DedicatedCore, Choice::DedicatedCore),
        gain(Lever::Mapping, Choice::Mapping),
        Some(Gain { lever: Lever::Clock, share: (0.0, running(of) * CLOCK / (1.0 + CLOCK)) }),
    ]
}

/// The share of the run that a faster clock may shorten: all but the time asleep outside MPI. A program that memory or its network
/// limits gains nothing of it.
fn running(of: &profiled::Summary) -> f64 {
    let asleep: f64 = of.ranks.iter().map(profiled::RankSummary::asleep).sum();
    let time = of.totals.thread_seconds;
    if time > 0.0 { (1.0 - asleep / time).clamp(0.0, 1.0) } else { 0.0 }
}

fn size(of: &profiled::SizeSummary) -> Size {
    Size { floor: of.floor, messages: of.messages, bytes: of.bytes }
}

fn hindrance(of: &profile::verdict::Hindrance) -> Hindrance {
    Hindrance { cause: of.cause.name().to_owned(), share: of.cost.clamp(0.0, 1.0) }
}

#[cfg(test)]
mod tests {
    use profile::verdict::{Answer, Judgement};

    use super::*;

    /// Of a job of two ranks and ten seconds, what bounds the gain of each other place.
    fn left(gain: Option<(f64, f64)>) -> Summary {
        let profile = Profile::default();
        let mut of = profiled::Summary::of(&profile);
        (of.job.ranks, of.job.expected, of.totals.seconds, of.totals.thread_seconds) = (2, 2, 10.0, 20.0);
        of.verdict.as_mut().unwrap().judgements = [Choice::Offload, Choice::DedicatedCore, Choice::Mapping]
            .map(|choice| Judgement { choice, answer: Answer::CannotTell, gain, why: Vec::new(), next: None })
            .into();
        let Summary { job, owner, partition, program, cores, end, model, .. } = crate::example::job(1, "solver");
        harvest(&profile, &of, Known { job, owner, partition, program, cores, end, model })
    }

    #[test]
    fn a_job_of_which_a_clock_alone_is_bounded_is_not_judged() {
        let judged = left(Some((0.0, 0.3)));
        assert_eq!((judged.unjudged, judged.levers.len()), (None, 4));
        let open = left(None);
        assert_eq!((open.unjudged, open.levers.len()), (Some(Unjudged::CannotTell), 1));
        assert!(open.gain(Lever::Clock).is_some());
    }

    fn of(lives: &[(usize, &str, f64, f64)]) -> f64 {
        apart(lives.iter().map(|(world, host, from, to)| (*world, (*host).to_owned(), *from, *to)))
    }

    #[test]
    fn clocks_are_apart_by_what_moves_beginning_and_end() {
        let apart =
            [(0, "a", 100.0, 400.0), (0, "b", 3_702.0, 4_000.0), (0, "b", 3_701.0, 3_999.0), (0, "c", 40.0, 341.0)];
        assert_eq!(of(&apart), 3_600.0 + 59.0);
        assert_eq!(of(&apart[..1]), 0.0);
        assert_eq!(of(&[]), 0.0);
    }

    #[test]
    fn ranks_that_share_their_first_core_and_may_run_on_others_are_unbound() {
        let unbound = |ranks: &[(&str, u32, u32)]| {
            unbound(ranks.iter().map(|(host, first, only)| ((*host).to_owned(), *first, *only)))
        };
        assert_eq!(unbound(&[("a", 1, 0), ("a", 1, 0), ("a", 1, 0), ("b", 1, 0)]), Some(3));
        assert_eq!(unbound(&[("a", 1, 1), ("a", 2, 2), ("b", 1, 1)]), Some(0));
        assert_eq!(unbound(&[("a", 1, 0), ("a", 5, 0)]), Some(0), "each has cores of its own");
        assert_eq!(unbound(&[("a", 1, 1), ("a", 1, 1)]), Some(0), "two on one core are too many, but bound");
        assert_eq!(unbound(&[("a", 1, 1), ("a", 1, 0)]), Some(1));
        assert_eq!([unbound(&[("a", 1, 0), ("a", 0, 0)]), unbound(&[])], [None, None]);
    }

    #[test]
    fn ranks_that_begin_late_or_die_are_no_clocks() {
        assert_eq!(of(&[(0, "a", 100.0, 400.0), (0, "b", 300.0, 400.5)]), 0.5);
        assert_eq!(of(&[(0, "a", 100.0, 400.0), (0, "b", 100.0, 130.0)]), 0.0);
        assert_eq!(of(&[(0, "a", 100.0, 400.0), (0, "b", 200.0, 300.0)]), 0.0);
        assert_eq!(of(&[(0, "a", 0.0, 100.0), (1, "b", 900.0, 999.0)]), 0.0, "worlds may follow one another");
    }
}
