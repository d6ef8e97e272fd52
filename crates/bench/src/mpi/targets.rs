//! Targets for Open MPI over the engine, as ratios to the best peer in the same run.

use machine::Bytes;
use rounds::bound::{Bound, Verdict};
use rounds::estimate::Estimate;
use rounds::point::Receiver;
use serde::Serialize;

use super::block::Measured;
use super::comparison::{best, ratio, ratios_by_place};
use super::contender::{Contender, Hosts};
use super::pattern::{Pattern, Task};

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    pub hosts: Hosts,
    pub task: Task,
    pub bound: Bound,
}

const fn target(hosts: Hosts, pattern: Pattern, size: u64, bound: Bound) -> Target {
    Target { hosts, task: Task { pattern, size: Bytes(size), receiver: Receiver::Reads }, bound }
}

pub const ALL: [Target; 29] = [
    target(Hosts::One, Pattern::Latency, 8, Bound::AtMost(1.0)),
    target(Hosts::One, Pattern::Latency, 512, Bound::AtMost(1.0)),
    target(Hosts::One, Pattern::Rate, 8, Bound::AtLeast(1.0)),
    target(Hosts::One, Pattern::Bandwidth, 16 << 10, Bound::AtLeast(1.0)),
    target(Hosts::One, Pattern::Bandwidth, 128 << 10, Bound::AtLeast(1.0)),
    target(Hosts::One, Pattern::Bandwidth, 1 << 20, Bound::AtLeast(1.0)),
    target(Hosts::One, Pattern::Bandwidth, 4 << 20, Bound::AtLeast(1.0)),
    target(Hosts::One, Pattern::ColdBandwidth, 16 << 10, Bound::AtLeast(1.0)),
    target(Hosts::One, Pattern::ColdBandwidth, 128 << 10, Bound::AtLeast(1.0)),
    target(Hosts::One, Pattern::ColdBandwidth, 1 << 20, Bound::AtLeast(1.0)),
    target(Hosts::One, Pattern::ColdBandwidth, 4 << 20, Bound::AtLeast(1.0)),
    target(Hosts::Crowd(4), Pattern::Barrier, 0, Bound::AtMost(1.0)),
    target(Hosts::Crowd(4), Pattern::Ring, 1 << 10, Bound::AtMost(1.0)),
    target(Hosts::Crowd(4), Pattern::AllToAll, 8, Bound::AtMost(1.0)),
    target(Hosts::Crowd(4), Pattern::AllReduce, 8, Bound::AtMost(1.0)),
    target(Hosts::Crowd(8), Pattern::Barrier, 0, Bound::AtMost(1.0)),
    target(Hosts::Crowd(8), Pattern::Ring, 1 << 10, Bound::AtMost(1.0)),
    target(Hosts::Crowd(8), Pattern::AllToAll, 8, Bound::AtMost(1.0)),
    target(Hosts::Crowd(8), Pattern::AllReduce, 8, Bound::AtMost(1.0)),
    target(Hosts::Crowd(32), Pattern::Barrier, 0, Bound::AtMost(1.0)),
    target(Hosts::Crowd(32), Pattern::AllToAll, 8, Bound::AtMost(1.0)),
    target(Hosts::Crowd(32), Pattern::AllReduce, 8, Bound::AtMost(1.0)),
    target(Hosts::Lab, Pattern::Latency, 8, Bound::AtMost(0.5)),
    target(Hosts::Lab, Pattern::Latency, 512, Bound::AtMost(1.0)),
    target(Hosts::Lab, Pattern::Rate, 8, Bound::AtLeast(4.0)),
    target(Hosts::Lab, Pattern::Bandwidth, 16 << 10, Bound::AtLeast(1.0)),
    target(Hosts::Lab, Pattern::Bandwidth, 128 << 10, Bound::AtLeast(1.0)),
    target(Hosts::Lab, Pattern::Bandwidth, 1 << 20, Bound::AtLeast(1.0)),
    target(Hosts::Lab, Pattern::Bandwidth, 4 << 20, Bound::AtLeast(1.0)),
];

/// Whether there is a target for `task` on these hosts.
pub fn has(hosts: Hosts, task: &Task) -> bool {
    ALL.iter().any(|target| target.hosts == hosts && target.task == *task)
}

/// The tasks of all targets, each once.
pub fn tasks() -> Vec<Task> {
    let mut tasks: Vec<Task> = Vec::new();
    for target in ALL {
        if !tasks.contains(&target.task) {
            tasks.push(target.task);
        }
    }
    tasks
}

/// The result for a target: the best placement of the engine against the best peer.
#[derive(Debug, Clone, Serialize)]
pub struct Judged<'a> {
    pub hosts: Hosts,
    pub task: Task,
    pub bound: Bound,
    pub engine: Option<&'a Contender>,
    pub peer: Option<&'a Contender>,
    pub ratio: Option<Estimate>,
    /// Ratios of the rounds on near cores, and on far ones; `None` if the cores did not move.
    pub places: Option<[Option<Estimate>; 2]>,
    pub verdict: Verdict,
}

/// Judges all targets whose hosts were measured.
pub fn judge(all: &[Measured]) -> Vec<Judged<'_>> {
    let measured = ALL.into_iter().filter(|target| all.iter().any(|measured| measured.seats.hosts == target.hosts));
    measured
        .map(|Target { hosts, task, bound }| {
            // Seats without pinned receive processing, at one pair of cores: others answer another question.
            let seats = all.iter().map(|m| m.seats).find(|seats| seats.hosts == hosts && seats.protocol_core.is_none());
            let here = || all.iter().filter(move |measured| Some(measured.seats) == seats);
            let engine = best(here(), &task, |measured| measured.contender.is_engine());
            let peer = best(here(), &task, |measured| !measured.contender.is_engine());
            let both = engine.zip(peer);
            let ratio = both.and_then(|(engine, peer)| ratio(engine, peer, &task));
            let places = both.and_then(|(engine, peer)| ratios_by_place(engine, peer, &task));
            let (engine, peer) = (engine.map(|m| &m.contender), peer.map(|m| &m.contender));
            Judged { hosts, task, bound, engine, peer, ratio, places, verdict: bound.judge(ratio) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use launch::carriers::named;

    use super::super::comparison::tests::{LATENCY, engine, measured};
    use super::*;

    #[test]
    fn targets_of_hosts_that_were_measured() {
        let all = [
            measured(engine(), LATENCY, &[100.0, 110.0].repeat(3)),
            measured(Contender::Peer(named("tcp").unwrap()), LATENCY, &[200.0, 220.0].repeat(3)),
        ];
        let judged = judge(&all);
        assert_eq!(judged[0].verdict, Verdict::Met);
        assert!(judged[1..].iter().all(|judged| judged.verdict == Verdict::NotMeasured && judged.hosts == Hosts::One));
        assert!((judged[0].ratio.unwrap().middle - 0.5).abs() < 1e-9);
        assert!(tasks().len() < ALL.len(), "places share tasks");
    }
}
