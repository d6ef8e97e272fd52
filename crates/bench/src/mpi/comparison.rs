//! Ratios of values measured at about the same time, on cores equally near; nothing else is compared.

use rounds::blocks::Taken;
use rounds::comparison::Paired;
use rounds::estimate::Estimate;
use rounds::nearness::parted;
use rounds::statistics::{median, median_interval};

use machine::Probe;

use super::block::{Block, Measured};
use super::pattern::{Pattern, Task};

/// Median and 95 % interval; `None` if never measured.
pub fn value(measured: &Measured, task: &Task) -> Option<Estimate> {
    median_interval(&measured.series.values(|block| Some(block.of(task)?.value)))
}

/// Pairs of values of `of` and `peer` on cores equally near, by probes around the task that `there` accepts.
fn beside(of: &Measured, peer: &Measured, task: &Task, there: impl Fn(Probe) -> bool) -> Vec<(f64, f64)> {
    of.series.beside(&peer.series, |taken: &Taken<Block>| {
        let outcome = taken.block.of(task)?;
        let probes = outcome.probes(taken.probes);
        probes.iter().flatten().all(|probe| there(*probe)).then_some((probes, outcome.value))
    })
}

fn over(of: &Measured, peer: &Measured, task: &Task) -> Paired {
    Paired::ratios(beside(of, peer, task, |_| true))
}

/// The best of those that `wanted` accepts, each compared with the first of them round by round.
pub fn best<'a>(
    all: impl IntoIterator<Item = &'a Measured>,
    task: &Task,
    wanted: impl Fn(&Measured) -> bool,
) -> Option<&'a Measured> {
    let has_values = |measured: &&Measured| value(measured, task).is_some();
    let mut measured = all.into_iter().filter(|measured| wanted(measured)).filter(has_values);
    let first = measured.next()?;
    let over_first = |of: &'a Measured| Some((of, median(&over(of, first, task).ratios)?));
    let better = |one: f64, other: f64| if task.pattern.more_is_better() { one > other } else { one < other };
    let (best, _) = measured
        .filter_map(over_first)
        .fold((first, 1.0), |best, found| if better(found.1, best.1) { found } else { best });
    Some(best)
}

/// `of` minus `peer` round by round, in the unit of the pattern; `None` of fewer than two rounds.
pub fn difference(of: &Measured, peer: &Measured, task: &Task) -> Option<Estimate> {
    let both = beside(of, peer, task, |_| true);
    median_interval(&both.into_iter().map(|(one, other)| one - other).collect::<Vec<_>>())
}

/// `of` over `peer` round by round, in the unit of the pattern: below 1 is better for a time, above 1 for a rate.
pub fn ratio(of: &Measured, peer: &Measured, task: &Task) -> Option<Estimate> {
    over(of, peer, task).interval()
}

/// The rate of two threads of each rank over that of one, start by start; `None` where no start had both.
pub fn threads_over_one(of: &Measured, threads: &Task) -> Option<Estimate> {
    let one = Task { pattern: Pattern::Rate, ..*threads };
    median_interval(&of.series.values(|block| Some(block.of(threads)?.value / block.of(&one)?.value)))
}

/// [`ratio`] of the rounds on near cores, and of those on far ones; `None` if the cores did not move.
pub fn ratios_by_place(of: &Measured, peer: &Measured, task: &Task) -> Option<[Option<Estimate>; 2]> {
    let probes = |taken: &Taken<Block>| Some(taken.block.of(task)?.probes(taken.probes));
    let both = of.series.blocks.iter().chain(&peer.series.blocks).filter_map(probes);
    let limit = parted(&both.flatten().flatten().collect::<Vec<_>>())?;
    let there = |is_near| Paired::ratios(beside(of, peer, task, |probe| (probe <= limit) == is_near)).interval();
    Some([there(true), there(false)])
}

#[cfg(test)]
pub(super) mod tests {
    use launch::carriers::named;
    use launch::report::Reports;
    use machine::{Bytes, CoreId, Nanoseconds, Site};
    use rounds::blocks::Series;
    use rounds::point::Receiver;

    use super::super::block::{Block, Outcome};
    use super::super::contender::{Contender, Hosts, Seats};
    use super::super::result::Figures;
    use super::*;

    pub const LATENCY: Task = Task { pattern: Pattern::Latency, size: Bytes(8), receiver: Receiver::Reads };

    pub fn engine() -> Contender {
        Contender::Engine { placement: Site::App, network: None }
    }

    /// A contender that gave `values` in rounds 0, 1, 2...
    pub fn measured(contender: Contender, task: Task, values: &[f64]) -> Measured {
        let seats = Seats { hosts: Hosts::One, cores: (CoreId(0), CoreId(1)), protocol_core: None };
        let block = |value: f64| Block {
            started: Nanoseconds(0),
            outcomes: vec![Outcome {
                task,
                value,
                messages: 100,
                ranks: [Figures::default(); 2],
                cores: Vec::new(),
                remote_cores: None,
            }],
            reports: Reports::default(),
            accounted: false,
        };
        let probes = [Some(Probe { half_round_trip_ps: 50_000 }), None];
        let taken = |(round, value): (usize, &f64)| Taken {
            round: round as u32,
            probes,
            clocks: Default::default(),
            block: block(*value),
        };
        let blocks = values.iter().enumerate().map(taken).collect();
        Measured { seats, contender, series: Series { blocks, failures: Vec::new() }, accounted: Vec::new() }
    }

    #[test]
    fn ratios_are_taken_within_rounds_against_the_best_peer() {
        let all = [
            measured(engine(), LATENCY, &[100.0, 200.0, 400.0]),
            measured(Contender::Peer(named("vader").unwrap()), LATENCY, &[200.0, 400.0, 800.0]),
            measured(Contender::Peer(named("tcp").unwrap()), LATENCY, &[4000.0, 5000.0, 6000.0]),
        ];
        let best = best(&all, &LATENCY, |measured| !measured.contender.is_engine()).unwrap();
        assert_eq!(best.contender, Contender::Peer(named("vader").unwrap()));
        let ratio = ratio(&all[0], best, &LATENCY).unwrap();
        assert!([ratio.middle, ratio.low, ratio.high].iter().all(|end| (end - 0.5).abs() < 1e-9), "{ratio:?}");
        assert_eq!(value(&all[0], &LATENCY).unwrap().middle, 200.0);
        let more = difference(best, &all[0], &LATENCY).unwrap();
        assert_eq!((more.middle, more.samples), (200.0, 3), "{more:?}");
    }

    #[test]
    fn two_threads_are_compared_with_one_of_the_same_start() {
        let one = Task { pattern: Pattern::Rate, ..LATENCY };
        let threads = Task { pattern: Pattern::RateOfThreads, ..LATENCY };
        let mut of = measured(engine(), one, &[100.0, 200.0, 400.0]);
        assert_eq!(threads_over_one(&of, &threads), None);
        for (taken, value) in of.series.blocks.iter_mut().zip([50.0, 80.0, 240.0]) {
            let outcome = taken.block.outcomes[0].clone();
            taken.block.outcomes.push(Outcome { task: threads, value, ..outcome });
        }
        let ratio = threads_over_one(&of, &threads).unwrap();
        assert_eq!((ratio.middle, ratio.samples), (0.5, 3), "{ratio:?}");
    }

    #[test]
    fn rounds_of_near_and_of_far_cores_are_told_apart() {
        let mut all = [
            measured(engine(), LATENCY, &[100.0, 300.0, 100.0, 300.0, 100.0, 300.0]),
            measured(Contender::Peer(named("vader").unwrap()), LATENCY, &[50.0, 300.0, 50.0, 300.0, 50.0, 300.0]),
        ];
        assert_eq!(ratios_by_place(&all[0], &all[1], &LATENCY), None, "at one distance");
        for taken in all.iter_mut().flat_map(|of| &mut of.series.blocks).filter(|taken| taken.round % 2 == 1) {
            taken.probes = [Some(Probe { half_round_trip_ps: 240_000 }); 2];
        }
        let [near, far] = ratios_by_place(&all[0], &all[1], &LATENCY).unwrap().map(Option::unwrap);
        assert_eq!((near.middle, near.samples, far.middle, far.samples), (2.0, 3, 1.0, 3));
    }

    #[test]
    fn more_is_better_for_rates() {
        let rate = Task { pattern: Pattern::Rate, ..LATENCY };
        let all = [
            measured(Contender::Peer(named("ucx").unwrap()), rate, &[3.0]),
            measured(Contender::Peer(named("tcp").unwrap()), rate, &[2.0]),
        ];
        assert_eq!(best(&all, &rate, |_| true).unwrap().contender, Contender::Peer(named("ucx").unwrap()));
        assert!(best(&all, &LATENCY, |_| true).is_none());
    }
}
