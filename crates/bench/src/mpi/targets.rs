//! Targets of Open MPI over the engine, as ratios to the best peer in the same run.

use std::fmt;

use experiment::findings::Interval;
use experiment::point::Receiver;
use machine::Bytes;
use serde::Serialize;

use super::comparison::{best, ratio};
use super::conduct::Measured;
use super::contender::{Contender, Hosts};
use super::pattern::{Pattern, Task};

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::AtMost(bound) => f.pad(&format!("at most {bound:.1}x")),
            Bound::AtLeast(bound) => f.pad(&format!("at least {bound:.1}x")),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Met,
    Missed,
    /// The interval has the bound in it.
    CannotTell,
    /// One of the two was not measured.
    NotMeasured,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Met => "met",
            Verdict::Missed => "missed",
            Verdict::CannotTell => "cannot tell",
            Verdict::NotMeasured => "not measured",
        })
    }
}

impl Bound {
    fn judge(self, interval: Option<Interval>) -> Verdict {
        let Some(Interval { low, high, .. }) = interval else { return Verdict::NotMeasured };
        let (met, missed) = match self {
            Bound::AtMost(bound) => (high <= bound, low > bound),
            Bound::AtLeast(bound) => (low >= bound, high < bound),
        };
        match (met, missed) {
            (true, _) => Verdict::Met,
            (_, true) => Verdict::Missed,
            _ => Verdict::CannotTell,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    pub hosts: Hosts,
    pub task: Task,
    pub bound: Bound,
}

const fn target(hosts: Hosts, pattern: Pattern, size: u64, bound: Bound) -> Target {
    Target { hosts, task: Task { pattern, size: Bytes(size), receiver: Receiver::Reads }, bound }
}

pub const ALL: [Target; 6] = [
    target(Hosts::One, Pattern::Latency, 8, Bound::AtMost(1.0)),
    target(Hosts::One, Pattern::Rate, 8, Bound::AtLeast(1.0)),
    target(Hosts::One, Pattern::Bandwidth, 1 << 20, Bound::AtLeast(1.0)),
    target(Hosts::Lab, Pattern::Latency, 8, Bound::AtMost(0.6)),
    target(Hosts::Lab, Pattern::Rate, 8, Bound::AtLeast(4.0)),
    target(Hosts::Lab, Pattern::Bandwidth, 1 << 20, Bound::AtLeast(0.8)),
];

/// Each task of the targets once.
pub fn tasks() -> Vec<Task> {
    let mut tasks: Vec<Task> = Vec::new();
    for target in ALL {
        if !tasks.contains(&target.task) {
            tasks.push(target.task);
        }
    }
    tasks
}

/// How a target came out: the best placement of the engine against the best peer.
#[derive(Debug, Clone, Serialize)]
pub struct Judged<'a> {
    pub hosts: Hosts,
    pub task: Task,
    pub bound: Bound,
    pub engine: Option<&'a Contender>,
    pub peer: Option<&'a Contender>,
    pub ratio: Option<Interval>,
    pub verdict: Verdict,
}

/// Holds what was measured to all targets whose hosts were measured.
pub fn judge(all: &[Measured]) -> Vec<Judged<'_>> {
    let measured = ALL.into_iter().filter(|target| all.iter().any(|measured| measured.seats.hosts == target.hosts));
    measured
        .map(|Target { hosts, task, bound }| {
            // On the same cores; receive processing that is pinned is another question.
            let seats = all.iter().map(|m| m.seats).find(|seats| seats.hosts == hosts && seats.protocol_core.is_none());
            let here = || all.iter().filter(move |measured| Some(measured.seats) == seats);
            let engine = best(here(), &task, |measured| measured.contender.is_engine());
            let peer = best(here(), &task, |measured| !measured.contender.is_engine());
            let ratio = engine.zip(peer).and_then(|(engine, peer)| ratio(engine, peer, &task));
            let (engine, peer) = (engine.map(|m| &m.contender), peer.map(|m| &m.contender));
            Judged { hosts, task, bound, engine, peer, ratio, verdict: bound.judge(ratio) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use launch::carriers::named;

    use super::super::comparison::tests::{LATENCY, engine, measured};
    use super::*;

    #[test]
    fn a_bound_within_the_interval_is_not_decided() {
        let interval = |low, high| Some(Interval { median: (low + high) / 2.0, low, high, samples: 7 });
        assert_eq!(Bound::AtMost(1.0).judge(interval(0.8, 0.9)), Verdict::Met);
        assert_eq!(Bound::AtMost(1.0).judge(interval(0.9, 1.1)), Verdict::CannotTell);
        assert_eq!(Bound::AtMost(1.0).judge(interval(1.1, 1.2)), Verdict::Missed);
        assert_eq!(Bound::AtLeast(4.0).judge(interval(4.0, 5.0)), Verdict::Met);
        assert_eq!(Bound::AtLeast(4.0).judge(interval(3.0, 3.9)), Verdict::Missed);
        assert_eq!(Bound::AtLeast(4.0).judge(None), Verdict::NotMeasured);
    }

    #[test]
    fn targets_of_hosts_that_were_measured() {
        let all = [
            measured(engine(), LATENCY, &[100.0, 110.0]),
            measured(Contender::Peer(named("tcp").unwrap()), LATENCY, &[200.0, 220.0]),
        ];
        let judged = judge(&all);
        assert_eq!(
            judged.iter().map(|j| j.verdict).collect::<Vec<_>>(),
            [Verdict::Met, Verdict::NotMeasured, Verdict::NotMeasured]
        );
        assert!((judged[0].ratio.unwrap().median - 0.5).abs() < 1e-9);
        assert_eq!(tasks().len(), 3);
    }
}
