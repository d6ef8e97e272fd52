//! Ratios within a round: what was measured at about the same time is compared, and nothing else.

use experiment::findings::Interval;
use experiment::statistics::{median, median_interval};

use super::conduct::Measured;
use super::pattern::Task;

/// The value of each round that measured `task`.
fn values<'a>(measured: &'a Measured, task: &'a Task) -> impl Iterator<Item = (u32, f64)> + 'a {
    measured.blocks.iter().filter_map(move |block| {
        let outcome = block.outcomes.iter().find(|outcome| outcome.task == *task)?;
        Some((block.round, outcome.value))
    })
}

/// Median and 95 % interval; `None` where it was never measured.
pub fn value(measured: &Measured, task: &Task) -> Option<Interval> {
    median_interval(&values(measured, task).map(|(_, value)| value).collect::<Vec<_>>())
}

/// Whether `a` is the better value.
fn is_better(task: &Task, a: f64, b: f64) -> bool {
    if task.pattern.more_is_better() { a > b } else { a < b }
}

/// The best by median of those that `wanted` takes.
pub fn best<'a>(
    all: impl IntoIterator<Item = &'a Measured>,
    task: &Task,
    wanted: impl Fn(&Measured) -> bool,
) -> Option<&'a Measured> {
    let mut best: Option<(&Measured, f64)> = None;
    for measured in all.into_iter().filter(|measured| wanted(measured)) {
        let found: Vec<f64> = values(measured, task).map(|(_, value)| value).collect();
        if let Some(middle) = median(&found)
            && best.is_none_or(|(_, other)| is_better(task, middle, other))
        {
            best = Some((measured, middle));
        }
    }
    best.map(|(measured, _)| measured)
}

/// `of` over `peer` round by round, in the unit of the pattern: below 1 is better for a time, above 1 for a rate.
pub fn ratio(of: &Measured, peer: &Measured, task: &Task) -> Option<Interval> {
    let peers: Vec<(u32, f64)> = values(peer, task).collect();
    let ratios: Vec<f64> = values(of, task)
        .filter_map(|(round, value)| {
            let (_, other) = peers.iter().find(|(other, _)| *other == round)?;
            (*other > 0.0).then_some(value / other)
        })
        .collect();
    median_interval(&ratios)
}

#[cfg(test)]
pub(super) mod tests {
    use experiment::point::Receiver;
    use launch::carrier::Peer;
    use launch::report::Reports;
    use machine::{Bytes, CoreId, Nanoseconds, Site};

    use super::super::block::{Block, Outcome};
    use super::super::contender::{Contender, Hosts, Seats};
    use super::super::pattern::Pattern;
    use super::super::result::Figures;
    use super::*;

    pub const LATENCY: Task = Task { pattern: Pattern::Latency, size: Bytes(8), receiver: Receiver::Reads };

    pub fn engine() -> Contender {
        Contender::Engine { placement: Site::App, network: None }
    }

    /// A contender that gave `values` in rounds 0, 1, 2...
    pub fn measured(contender: Contender, task: Task, values: &[f64]) -> Measured {
        let seats = Seats { hosts: Hosts::One, cores: (CoreId(0), CoreId(1)), protocol_core: None };
        let block = |(round, value): (usize, &f64)| Block {
            round: round as u32,
            started: Nanoseconds(0),
            probes: [Some(50_000), None],
            outcomes: vec![Outcome {
                task,
                value: *value,
                messages: 100,
                ranks: [Figures::default(); 2],
                cores: Vec::new(),
            }],
            reports: Reports::default(),
            accounted: false,
        };
        let blocks = values.iter().enumerate().map(block).collect();
        Measured { seats, contender, blocks, accounted: Vec::new(), failures: Vec::new() }
    }

    #[test]
    fn ratios_are_taken_within_rounds_against_the_best_peer() {
        let all = [
            measured(engine(), LATENCY, &[100.0, 200.0, 400.0]),
            measured(Contender::Peer(Peer::SharedMemory), LATENCY, &[200.0, 400.0, 800.0]),
            measured(Contender::Peer(Peer::Tcp), LATENCY, &[4000.0, 5000.0, 6000.0]),
        ];
        let best = best(&all, &LATENCY, |measured| !measured.contender.is_engine()).unwrap();
        assert_eq!(best.contender, Contender::Peer(Peer::SharedMemory));
        let ratio = ratio(&all[0], best, &LATENCY).unwrap();
        assert_eq!((ratio.median, ratio.low, ratio.high), (0.5, 0.5, 0.5));
        assert_eq!(value(&all[0], &LATENCY).unwrap().median, 200.0);
    }

    #[test]
    fn more_is_better_for_rates() {
        let rate = Task { pattern: Pattern::Rate, ..LATENCY };
        let all =
            [measured(Contender::Peer(Peer::Ucx), rate, &[3.0]), measured(Contender::Peer(Peer::Tcp), rate, &[2.0])];
        assert_eq!(best(&all, &rate, |_| true).unwrap().contender, Contender::Peer(Peer::Ucx));
        assert!(best(&all, &LATENCY, |_| true).is_none());
    }
}
