//! What keeps ranks from running. A rank that is off its core holds up all that wait for it, and no placement of the
//! protocol's work helps against that.

use machine::Reading;
use serde::{Deserialize, Serialize};

use super::{Evidence, RankEvidence, share};

/// Of a rank's time: less than this any host takes for threads of its own.
const WORTH_SAYING: f64 = 0.05;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// By a signal or a debugger.
    Stopped,
    TooFewCores,
    /// Runnable while others had its core.
    RunDelay,
    /// A hypervisor gave its core to others.
    Stolen,
    /// Nothing of these, and the others wait for it.
    Late,
}

/// What kept a rank, or the ranks of a host, from running.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hindrance {
    /// `stopped`, `too_few_cores`, `run_delay`, `stolen` or `late`.
    pub cause: Cause,
    /// Place of the rank in [`Summary::ranks`]; `None` where a whole host is hindered.
    pub rank: Option<usize>,
    /// The name of the rank's host.
    pub host: String,
    /// The core that the rank was seen on most.
    pub core: Option<u32>,
    /// Share of the time of the rank or of the host's ranks; for `late`, the share of their time that the others waited
    /// for it.
    pub share: f64,
    /// The same in words.
    pub words: String,
    /// What to do about it.
    pub next: String,
}

/// The worst first. A stop comes before all: it is never how a program is meant to run.
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
    let order = |one: &Hindrance| (one.cause != Cause::Stopped, one.cause == Cause::Late);
    found.sort_by(|a, b| order(a).cmp(&order(b)).then(b.share.total_cmp(&a.share)));
    found
}

fn of_rank(evidence: &Evidence, place: usize, is_crowded: bool, late: Option<&Late>) -> Option<Hindrance> {
    let rank = &evidence.ranks[place];
    let of = |cause, reading: &Reading<f64>| {
        let share = reading.value().filter(|_| rank.runtime > 0.0).map(|seconds| seconds / rank.runtime)?;
        (share >= WORTH_SAYING).then_some((cause, share))
    };
    let delay = if is_crowded { None } else { of(Cause::RunDelay, &rank.denied()) };
    let found: Vec<(Cause, f64)> =
        [of(Cause::Stopped, &rank.stopped), delay, of(Cause::Stolen, &rank.stolen)].into_iter().flatten().collect();
    let worse = |a: (Cause, f64), b: (Cause, f64)| if a.0 == Cause::Stopped || a.1 >= b.1 { a } else { b };
    let (cause, of_time) = match found.iter().copied().reduce(worse) {
        Some(worst) => worst,
        None => (Cause::Late, late?.share),
    };
    let mut words: Vec<String> = found
        .iter()
        .map(|(cause, of_time)| match cause {
            Cause::Stopped => format!("was stopped for {} of its time", share(*of_time)),
            Cause::RunDelay => {
                format!(
                    "was runnable while others had its core for {} of its time{}",
                    share(*of_time),
                    beside(evidence, place)
                )
            }
            _ => format!("lost {} of its time to other guests of the hypervisor", share(*of_time)),
        })
        .collect();
    words.extend(late.map(|late| late.words.clone()));
    let what = match cause {
        Cause::Stopped => "find what stops it: a signal, a debugger, a batch system that suspends jobs",
        Cause::RunDelay => "see what else runs there, and bind each rank to a core of its own",
        Cause::Stolen => "have the host's cores to yourself, or run it where they are",
        _ => "see what it has more to do than the others, or what slows its core",
    };
    Some(Hindrance {
        cause,
        rank: Some(place),
        host: evidence.hosts[rank.host].name.clone(),
        core: rank.core,
        share: of_time,
        words: format!("{} {}", named(evidence, rank), super::list(&words, "and")),
        next: next(evidence, what),
    })
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
            let most = format!("{} for {} of its time, the most", named(evidence, rank), share(*most));
            (mean, format!("{counts}, which were runnable without a core for {} of their time: {most}", share(mean)))
        }
        None => (1.0 - f64::from(cores) / ranks.len() as f64, format!("{counts}; how long they had none is not known")),
    };
    (of_time >= WORTH_SAYING).then(|| Hindrance {
        cause: Cause::TooFewCores,
        rank: None,
        host: name.clone(),
        core: None,
        share: of_time,
        words,
        next: next(evidence, &format!("start at most {cores} ranks there")),
    })
}

/// The rank that others wait for, for longer than for each other.
struct Late {
    place: usize,
    share: f64,
    words: String,
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
        let words =
            format!("kept the others waiting for {seconds:.3} s, {} of their time", share(seconds / others / run));
        return (of_time >= WORTH_SAYING).then_some(Late { place, share: seconds / others / run, words });
    }
    // Who computes most, where it surely waits less than the others.
    let most = evidence.ranks.iter().enumerate().max_by(|a, b| a.1.compute.total_cmp(&b.1.compute));
    let (place, rank) = most?;
    let mean = |of: fn(&RankEvidence) -> f64| (evidence.ranks.iter().map(of).sum::<f64>() - of(rank)) / others / run;
    let (compute, wait) =
        (rank.compute / run - mean(|rank| rank.compute), mean(|rank| rank.wait.least) - rank.wait.most / run);
    (compute >= WORTH_SAYING && wait >= WORTH_SAYING).then(|| Late {
        place,
        share: wait,
        words: format!(
            "computes for {} of the run, the others for {} in the mean, and they wait for {} more than it: it may be what they \
             wait for",
            share(rank.compute / run),
            share(mean(|rank| rank.compute)),
            share(wait)
        ),
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

/// Who else was mostly on the core of a rank.
fn beside(evidence: &Evidence, place: usize) -> String {
    let rank = &evidence.ranks[place];
    let same = |(other, one): &(usize, &RankEvidence)| *other != place && one.core.is_some() && one.core == rank.core;
    let others: Vec<u32> = evidence.ranks_on(rank.host).filter(same).map(|(_, one)| one.rank).collect();
    match others.len() {
        0 => String::new(),
        1 => format!(" (rank {} is there too)", others[0]),
        _ => format!(" (ranks {} are there too)", crate::profile::ranges(others)),
    }
}
