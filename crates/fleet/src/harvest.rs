//! The summary of a job, from its profile.

use machine::Reading;
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
    pub carrier: Option<String>,
    pub end: End,
    pub model: String,
}

/// Runs of one program differ by more than what a lever brings, where they are shorter.
pub(crate) const SHORTEST: f64 = 1.0;
/// What the lever `Clock` adds to a core's clock.
const CLOCK: f64 = 0.1;

/// The summary of a job that left this profile.
pub fn harvest(of: &profiled::Summary, known: Known) -> Summary {
    let Known { job, owner, partition, program, cores, carrier, end, model } = known;
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
    if levers.is_empty() {
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
        carrier,
        mpi: share(totals.mpi),
        wait: known_value(&totals.split.wait).and_then(share),
        sizes: of.sizes.iter().map(size).filter(|size| size.messages > 0).collect(),
        hindrances: hindrances.iter().map(hindrance).collect(),
        levers,
        unjudged,
        model,
        clocks_apart: None,
    }
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
    let asleep: f64 = of.ranks.iter().filter_map(|rank| known_value(&rank.compute_off_core)).sum();
    let time = of.totals.thread_seconds;
    if time > 0.0 { (1.0 - asleep / time).clamp(0.0, 1.0) } else { 0.0 }
}

fn size(of: &profiled::SizeSummary) -> Size {
    Size { floor: of.floor, messages: of.messages, bytes: of.bytes }
}

fn hindrance(of: &profile::verdict::Hindrance) -> Hindrance {
    let cause = serde_json::to_value(of.cause).expect("a cause serializes");
    Hindrance { cause: cause.as_str().unwrap_or_default().to_owned(), share: of.cost.clamp(0.0, 1.0) }
}
