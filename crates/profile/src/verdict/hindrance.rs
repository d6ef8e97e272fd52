//! Causes that keep ranks from running. A rank that is off its core, or blocked, delays all ranks that wait for it, and no
//! placement of the protocol's work prevents such a delay.

use machine::{Reading, figure, named};
use serde::{Deserialize, Serialize};

use super::{Evidence, RankEvidence, shape, share};
use crate::summary::Stall;

/// Least share of a rank's time that is reported; any host takes less for threads of its own.
pub(super) const WORTH_SAYING: f64 = 0.05;

/// Classes of calls in which ranks wait for each other.
const WAITING: [&str; 8] =
    ["receive", "completion", "exchange", "collective", "neighbour", "probe", "synchronization", "send"];

named! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Cause {
        /// By a signal or a debugger.
        Stopped = "stopped",
        TooFewCores = "too_few_cores",
        /// Runnable while others had its core.
        RunDelay = "run_delay",
        /// A hypervisor gave its core to others.
        Stolen = "stolen",
        /// Outside MPI it was asleep, or waited for a lock, for storage or for another process.
        Blocked = "blocked",
        /// Nothing of these, and the others wait for it.
        Late = "late",
        /// Of the whole program: very many messages of a few bytes.
        TinyMessages = "tiny_messages",
        /// Of the whole program: one rank after the other works.
        Serialised = "serialised",
        /// Of the whole program: nothing is computed while large messages move.
        NoOverlap = "no_overlap",
    }
}

impl Cause {
    /// What to do, in a sentence.
    pub fn remedy(self) -> &'static str {
        match self {
            Cause::Stopped => "Find what stops it before trusting the rest.",
            Cause::TooFewCores => "Start fewer ranks there before trusting the rest.",
            Cause::RunDelay => "Free that core before trusting the rest.",
            Cause::Stolen => "Run it on a host of its own before trusting the rest.",
            Cause::Blocked => "See what it waits for: no other core shortens that.",
            Cause::Late => "Give it less to do, or see what slows its core.",
            Cause::TinyMessages => "Send together what goes to the same rank.",
            Cause::Serialised => "Hand the work on in smaller pieces.",
            Cause::NoOverlap => "Begin them before the computing that does not need them.",
        }
    }
}

/// What kept ranks, or the program, from being faster, and no placement mends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hindrance {
    /// `stopped`, `too_few_cores`, `run_delay`, `stolen`, `blocked`, `late`, `tiny_messages`, `serialised` or
    /// `no_overlap`.
    pub cause: Cause,
    /// Place in `ranks`; `None` of a host or the program.
    pub rank: Option<usize>,
    /// Name; empty of the program.
    pub host: String,
    /// Where the rank was seen most.
    pub core: Option<u32>,
    /// Of the rank's or host's time; `late`: of the others' time spent waiting for it; of the program, `cost`.
    pub share: f64,
    /// Share of all ranks' time, others' waits included as far as known; orders the list.
    #[serde(default)]
    pub cost: f64,
    /// The same in words.
    pub words: String,
    /// What to do about it.
    pub next: String,
}

/// Hindrances, the most costly first.
pub fn find(evidence: &Evidence) -> Vec<Hindrance> {
    if evidence.is_empty() {
        return Vec::new();
    }
    let crowded: Vec<Option<Hindrance>> = (0..evidence.hosts.len()).map(|host| crowded(evidence, host)).collect();
    let late = late(evidence);
    let ranks = (0..evidence.ranks.len()).filter_map(|place| {
        let is_crowded = crowded[evidence.ranks[place].host].is_some();
        of_rank(evidence, place, is_crowded, late.as_ref().filter(|late| late.place == place))
    });
    let mut found: Vec<Hindrance> = ranks.collect();
    found.extend(crowded.into_iter().flatten());
    found.extend(shape::find(evidence));
    found.sort_by(|a, b| b.cost.total_cmp(&a.cost));
    found
}

fn of_rank(evidence: &Evidence, place: usize, is_crowded: bool, late: Option<&Late>) -> Option<Hindrance> {
    let rank = &evidence.ranks[place];
    let of = |cause, reading: &Reading<f64>| {
        let share = reading.value().filter(|_| rank.runtime > 0.0).map(|seconds| seconds / rank.runtime)?;
        (share >= WORTH_SAYING).then_some((cause, share))
    };
    let delay = if is_crowded { None } else { of(Cause::RunDelay, &rank.denied()) };
    let (stopped, stolen) = (of(Cause::Stopped, &rank.stopped), of(Cause::Stolen, &rank.stolen));
    let blocked = rank.stall.and_then(|(seconds, _)| of(Cause::Blocked, &Reading::Modelled(seconds)));
    let mut found: Vec<(Cause, f64)> = [stopped, delay, stolen, blocked].into_iter().flatten().collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (cause, of_time) = match found.first() {
        Some(worst) => *worst,
        None => (Cause::Late, late?.share),
    };
    let mut words: Vec<String> = found
        .iter()
        .map(|(cause, of_time)| match cause {
            Cause::Stopped => format!("was stopped for {} of its time", share(*of_time)),
            Cause::RunDelay => {
                format!("lost {} of its time to other programs on its core{}", share(*of_time), beside(evidence, place))
            }
            Cause::Blocked => {
                let stall = rank.stall.map_or(Stall::Unknown, |(_, stall)| stall);
                format!("was {} for {} of its time", stall.words(), share(*of_time))
            }
            _ => format!("lost {} of its time to other virtual machines on its host", share(*of_time)),
        })
        .collect();
    words.extend(late.map(|late| if found.is_empty() { late.words.clone() } else { late.beside.clone() }));
    let what = match cause {
        Cause::Stopped => "find what stops it: a signal, a debugger, a batch system that suspends jobs",
        Cause::RunDelay if shares_core(evidence, place).is_empty() && !rank.moved => {
            "it kept to that core: see what else runs there, and move that or the rank to another one"
        }
        Cause::RunDelay => "see what else runs there, and bind each rank to a core of its own",
        Cause::Stolen => "have the host's cores to yourself, or run it where they are",
        Cause::Blocked => what_ends(rank.stall.map_or(Stall::Unknown, |(_, stall)| stall)),
        _ => "see what it has more to do than the others, and spread that, or what slows its core",
    };
    let lost = found.iter().map(|(_, share)| share).sum::<f64>().min(1.0) * rank.runtime;
    Some(Hindrance {
        cause,
        rank: Some(place),
        host: evidence.hosts[rank.host].name.clone(),
        core: rank.core,
        share: of_time,
        cost: cost(evidence, lost + caused(evidence, place, lost, late)),
        words: format!("{} {}", named(evidence, rank), super::list(&words, "and")),
        next: next(evidence, what),
    })
}

fn what_ends(stall: Stall) -> &'static str {
    match stall {
        Stall::Sleep => "see what it sleeps for: no core shortens that",
        Stall::Lock => "see who holds the lock that it waits for: no core shortens that",
        Stall::Storage => "put its files on faster storage, or read and write beside computing: no core shortens that",
        Stall::Unknown => "see what it waits for outside MPI (strace -f): no core shortens that",
    }
}

/// Seconds of ranks as a share of the time of all ranks.
fn cost(evidence: &Evidence, seconds: f64) -> f64 {
    (seconds / (evidence.runtime() * evidence.ranks.len() as f64)).min(1.0)
}

/// Seconds that others waited for a rank; without a timeline, at most what it lost, as far as they waited longer than it.
fn caused(evidence: &Evidence, place: usize, lost: f64, late: Option<&Late>) -> f64 {
    let rank = &evidence.ranks[place];
    let others = evidence.ranks.len() as f64 - 1.0;
    match (rank.caused.value(), late) {
        (Some(seconds), _) => *seconds,
        (None, Some(late)) => late.share * others * evidence.runtime(),
        (None, None) if others > 0.0 => {
            let waited: f64 = evidence.ranks.iter().map(|rank| rank.wait.least).sum::<f64>() - rank.wait.least;
            lost.min((waited / others - rank.wait.most).max(0.0)) * others
        }
        (None, None) => 0.0,
    }
}

/// Ranks that took turns on the cores of a host.
fn crowded(evidence: &Evidence, host: usize) -> Option<Hindrance> {
    let ranks: Vec<(usize, &RankEvidence)> = evidence.ranks_on(host).collect();
    let cores = *evidence.hosts[host].cores.value()?;
    if ranks.len() <= cores as usize {
        return None;
    }
    let name = &evidence.hosts[host].name;
    let delays = ranks
        .iter()
        .filter_map(|(_, rank)| Some((*rank, rank.run_delay.value()? / rank.runtime.max(f64::MIN_POSITIVE))));
    let delays: Vec<(&RankEvidence, f64)> = delays.collect();
    let most = delays.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let counts = format!("host {name} has {cores} cores for {} ranks", ranks.len());
    let (of_time, words) = match most.filter(|_| delays.len() == ranks.len()) {
        Some((rank, most)) => {
            let mean = delays.iter().map(|(_, delay)| delay).sum::<f64>() / delays.len() as f64;
            let most = format!("rank {} for {}", rank.rank, share(*most));
            (mean, format!("{counts}, which waited for a core for {} of their time ({most})", share(mean)))
        }
        None => (1.0 - f64::from(cores) / ranks.len() as f64, format!("{counts}; how long they had none is not known")),
    };
    let lost: f64 = ranks.iter().map(|(_, rank)| of_time * rank.runtime).sum();
    let caused: f64 = ranks.iter().filter_map(|(_, rank)| rank.caused.value()).sum();
    (of_time >= WORTH_SAYING).then(|| Hindrance {
        cause: Cause::TooFewCores,
        rank: None,
        host: name.clone(),
        core: None,
        share: of_time,
        cost: cost(evidence, lost + caused),
        words,
        next: next(evidence, &format!("start at most {cores} ranks there")),
    })
}

/// The rank that others wait for, for longer than for each other.
struct Late {
    place: usize,
    share: f64,
    words: String,
    /// A shorter form of `words`, used beside other causes.
    beside: String,
}

fn late(evidence: &Evidence) -> Option<Late> {
    let others = evidence.ranks.len().checked_sub(1).filter(|others| *others > 0)? as f64;
    let run = evidence.runtime();
    if is_traced(evidence) {
        let caused = |rank: &RankEvidence| rank.caused.value().copied();
        let all: f64 = evidence.ranks.iter().filter_map(caused).sum();
        let most = evidence.ranks.iter().enumerate().filter_map(|(place, rank)| Some((place, caused(rank)?)));
        let (place, seconds) = most.max_by(|a, b| a.1.total_cmp(&b.1))?;
        let of_time = (seconds - (all - seconds) / others) / others / run;
        let share = seconds / others / run;
        let waited = figure::nanoseconds(1e9 * seconds);
        let beside = format!("kept the others waiting for {waited}, {} of their time", super::share(share));
        let words = format!("{beside}{}", evidence.most_in(&WAITING));
        return (of_time >= WORTH_SAYING).then_some(Late { place, share, words, beside });
    }
    // The rank that is outside MPI most, if it surely waits less than the others.
    let most = evidence.ranks.iter().enumerate().max_by(|a, b| a.1.outside().total_cmp(&b.1.outside()));
    let (place, rank) = most?;
    let mean = |of: fn(&RankEvidence) -> f64| (evidence.ranks.iter().map(of).sum::<f64>() - of(rank)) / others / run;
    let (longer, wait) =
        (rank.outside() / run - mean(RankEvidence::outside), mean(|rank| rank.wait.least) - rank.wait.most / run);
    (longer >= WORTH_SAYING && wait >= WORTH_SAYING).then(|| Late {
        place,
        share: wait,
        words: format!(
            "computes for {} of the run, the others for {}: they wait for {} more than it, and it may be for it{}",
            share(rank.compute / run),
            share(mean(|rank| rank.compute)),
            share(wait),
            evidence.most_in(&WAITING)
        ),
        beside: format!("the others wait for {} more than it", share(wait)),
    })
}

/// Whether a timeline says who waited for whom.
fn is_traced(evidence: &Evidence) -> bool {
    !evidence.ranks.is_empty() && evidence.ranks.iter().all(|rank| rank.caused.value().is_some())
}

fn next(evidence: &Evidence, what: &str) -> String {
    match is_traced(evidence) {
        true => what.into(),
        false => format!("{what}; plimsoll profile --trace shows who waits for whom"),
    }
}

/// `rank 3 (core 1 of node-a)`.
fn named(evidence: &Evidence, rank: &RankEvidence) -> String {
    let host = &evidence.hosts[rank.host].name;
    match rank.core {
        Some(core) => format!("rank {} (core {core} of {host})", rank.rank),
        None => format!("rank {} (on {host})", rank.rank),
    }
}

/// Other ranks that were mostly on the core of a rank.
fn shares_core(evidence: &Evidence, place: usize) -> Vec<u32> {
    let rank = &evidence.ranks[place];
    let same = |(other, one): &(usize, &RankEvidence)| *other != place && one.core.is_some() && one.core == rank.core;
    evidence.ranks_on(rank.host).filter(same).map(|(_, one)| one.rank).collect()
}

fn beside(evidence: &Evidence, place: usize) -> String {
    let others = shares_core(evidence, place);
    match others.len() {
        0 => String::new(),
        1 => format!(" (rank {} is there too)", others[0]),
        _ => format!(" (ranks {} are there too)", crate::profile::ranges(others)),
    }
}
