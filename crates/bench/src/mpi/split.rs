//! Division of a rank's CPU time: application, MPI, protocol. Each value says how it was got.

use machine::Reading;
use rounds::statistics::median;
use serde::Serialize;

use super::block::{Block, Measured, Outcome};
use super::pattern::Task;

/// ns per message of one rank, and of the whole machine for softirqs: medians over blocks with timed MPI calls.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Split {
    pub rank: usize,
    /// All CPU time of the process.
    pub cpu: Reading<f64>,
    /// Time outside MPI calls.
    pub application: Reading<f64>,
    /// Time inside MPI calls, but outside the carrier.
    pub mpi: Reading<f64>,
    /// CPU time in the carrier: the provider's own time, waiting by polling included.
    pub protocol: Reading<f64>,
    /// CPU time in the kernel on behalf of the rank; a part of the values above.
    pub kernel: Reading<f64>,
    /// Network softirqs on all cores of both hosts; those that ran on top of a rank are part of its values as well.
    pub softirq: Reading<f64>,
}

/// The split of both ranks of `measured` for `task`; `None` without a block that timed its calls.
pub fn of(measured: &Measured, task: &Task) -> Option<[Split; 2]> {
    let blocks = measured.accounted.iter().map(|taken| &taken.block);
    let found: Vec<(&Block, &Outcome)> = blocks.filter_map(|block| Some((block, block.of(task)?))).collect();
    (!found.is_empty()).then(|| [0, 1].map(|rank| rank_of(rank, measured.contender.is_engine(), &found)))
}

fn rank_of(rank: usize, is_engine: bool, found: &[(&Block, &Outcome)]) -> Split {
    let middle = |value: &dyn Fn(&Block, &Outcome) -> Option<f64>| {
        let values: Vec<f64> = found
            .iter()
            .filter_map(|(block, outcome)| Some(value(block, outcome)? / outcome.messages.max(1) as f64))
            .collect();
        median(&values)
    };
    let measured = |value: &dyn Fn(&Block, &Outcome) -> Option<f64>, reason: &str| {
        middle(value).map_or_else(|| Reading::absent(reason), Reading::Measured)
    };
    let timed = |outcome: &Outcome| outcome.ranks[rank].in_calls as f64;
    let outside = |outcome: &Outcome| (outcome.ranks[rank].elapsed as f64 - timed(outcome)).max(0.0);
    // A rank that polls is busy all the time; one that sleeps in a call is not.
    let in_calls = |outcome: &Outcome| (outcome.ranks[rank].cpu as f64 - outside(outcome)).clamp(0.0, timed(outcome));
    let share = |block: &Block| share(block, rank);
    let unknown = if is_engine {
        "the provider reported no time of its own (FI_PLIMSOLL_ACCOUNT)"
    } else {
        "this transport is part of the MPI library and has no counter of its time"
    };
    let of_share = |value: &dyn Fn(&Block, &Outcome) -> Option<f64>| match middle(value) {
        // The share is that of the whole run, calibration included.
        Some(value) => Reading::Modelled(value),
        None => Reading::absent(unknown),
    };
    Split {
        rank,
        cpu: measured(&|_, outcome| Some(outcome.ranks[rank].cpu as f64), "the kernel gives no CPU time"),
        application: measured(&|_, outcome| Some(outside(outcome)), "no call was timed"),
        mpi: match middle(&|block, outcome| Some(in_calls(outcome) * (1.0 - share(block)?))) {
            Some(value) => Reading::Modelled(value),
            None => measured(&|_, outcome| Some(in_calls(outcome)), "no call was timed"),
        },
        protocol: of_share(&|block, outcome| Some(in_calls(outcome) * share(block)?)),
        kernel: measured(&|_, outcome| Some(outcome.ranks[rank].system as f64), "the kernel gives no system time"),
        softirq: softirq(found),
    }
}

/// The provider's part of the time that a rank spent in MPI calls, over its whole run.
fn share(block: &Block, rank: usize) -> Option<f64> {
    let all: u64 = block.outcomes.iter().map(|outcome| outcome.ranks[rank].in_all_calls).max()?;
    let reports = &block.reports.endpoints;
    let mine = |report: &&launch::report::Report| report.rank == Some(rank as u32);
    let own: Option<u64> =
        reports.iter().filter(mine).filter_map(|report| report.account_nanoseconds).reduce(|a, b| a + b);
    // If the launcher does not tell ranks: an equal part of the sum over all.
    let account = own.or_else(|| Some(block.reports.account_nanoseconds()? / block.reports.ranks().max(1) as u64))?;
    (all > 0).then(|| (account as f64 / all as f64).min(1.0))
}

fn softirq(found: &[(&Block, &Outcome)]) -> Reading<f64> {
    let mut values = Vec::new();
    for (_, outcome) in found {
        match outcome.softirqs() {
            Reading::Measured(value) | Reading::Modelled(value) => values.push(value),
            none => return none,
        }
    }
    median(&values).map_or_else(|| Reading::absent("no block"), Reading::Measured)
}

#[cfg(test)]
mod tests {
    use launch::carriers::named;
    use launch::report::{Report, Reports};

    use super::super::comparison::tests::{LATENCY, engine, measured};
    use super::super::contender::Contender;
    use super::super::result::Figures;
    use super::*;

    fn accounted(contender: Contender, account: Option<u64>) -> Measured {
        let mut measured = measured(contender, LATENCY, &[100.0]);
        let mut taken = measured.series.blocks.pop().unwrap();
        taken.block.outcomes[0].ranks = [Figures {
            elapsed: 10_000,
            cpu: 9_000,
            in_calls: 8_000,
            in_all_calls: 16_000,
            system: 1_000,
            ..Figures::default()
        }; 2];
        let report =
            |rank| Report { rank: Some(rank), account_nanoseconds: account, process: rank, ..Report::default() };
        taken.block.reports = Reports { endpoints: vec![report(0), report(1)], damaged: 0 };
        measured.accounted.push(taken);
        measured
    }

    #[test]
    fn the_parts_of_an_engines_rank_add_up_to_its_cpu() {
        let split = &of(&accounted(engine(), Some(12_000)), &LATENCY).unwrap()[1];
        // 2000 of 9000 ns CPU are outside of calls; of the 7000 inside, three quarters are the provider's.
        assert_eq!(split.application, Reading::Measured(20.0));
        assert_eq!(split.mpi, Reading::Modelled(17.5));
        assert_eq!(split.protocol, Reading::Modelled(52.5));
        assert_eq!((split.cpu.clone(), split.kernel.clone()), (Reading::Measured(90.0), Reading::Measured(10.0)));
        assert!(matches!(&split.softirq, Reading::Absent { .. }));
    }

    #[test]
    fn what_is_not_counted_is_absent_and_not_zero() {
        let peer = &of(&accounted(Contender::Peer(named("tcp").unwrap()), None), &LATENCY).unwrap()[0];
        assert!(matches!(&peer.protocol, Reading::Absent { reason } if reason.contains("part of the MPI library")));
        assert_eq!(peer.mpi, Reading::Measured(70.0));
        assert!(of(&measured(engine(), LATENCY, &[1.0]), &LATENCY).is_none());
    }
}
