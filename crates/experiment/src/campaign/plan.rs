//! The plan of a study before it runs.

use machine::Nanoseconds;
use rounds::order::turns;

use super::conduct::{final_failure, is_simulated};
use super::definition::{Campaign, Shard};
use super::store::PointRuns;

/// The plan of a shard: states of points, order, number of runs and time.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub shard: Shard,
    /// By point: its state on this host.
    pub points: Vec<Planned>,
    /// The points of the first round, in their order.
    pub first_round: Vec<usize>,
    /// Runs that are done, and those to come at most.
    pub done: usize,
    pub to_come: usize,
    /// Expected time of the runs to come.
    pub expected: Expected,
    /// Time for all runs of the store; `None`: no limit.
    pub budget: Option<Nanoseconds>,
}

/// State of a point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Planned {
    /// Number of runs at most.
    Runs(usize),
    Done,
    /// The point is in another shard.
    Elsewhere,
    /// The reason why the point cannot run on this host.
    Cannot(String),
    /// The reason why the point gets no more runs.
    Left(String),
}

/// Expected time of a study.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Time by earlier runs; `of_all`: each point has runs of its own.
    Takes { time: Nanoseconds, of_all: bool },
    /// Some program has no earlier run.
    NotKnown,
}

impl Plan {
    /// `cannot`: by point, the reason why it cannot run here. `usual`: time of a run of a point, where known. Simulated
    /// points are divided among `cores`.
    pub fn of(
        campaign: &Campaign,
        shard: Shard,
        known: &[PointRuns],
        cannot: Vec<Option<String>>,
        usual: &dyn Fn(usize) -> Option<Nanoseconds>,
        cores: usize,
    ) -> Plan {
        let mine = campaign.of_shard(shard);
        let settled = super::stop::settled(campaign, known);
        let runs = |point: usize| match is_simulated(campaign, point) {
            true => 1,
            false => campaign.stop.repetitions as usize,
        };
        let planned = |(point, cannot): (usize, Option<String>)| {
            let left = runs(point).saturating_sub(known[point].done.len());
            match (mine[point], cannot) {
                (false, _) => Planned::Elsewhere,
                _ if left == 0 || settled[point] => Planned::Done,
                (_, Some(why)) => Planned::Cannot(why),
                _ => match final_failure(campaign, &known[point]) {
                    Some(failure) => Planned::Left(failure.to_string()),
                    None => Planned::Runs(left),
                },
            }
        };
        let points: Vec<Planned> = cannot.into_iter().enumerate().map(planned).collect();
        let order = turns(&campaign.groups(), campaign.seed, 0).into_iter();
        let order = order.map(|turn| campaign.blocks[turn.group][turn.member]);
        let first_round = order.filter(|&point| matches!(points[point], Planned::Runs(_))).collect();
        let done = mine.iter().zip(known).filter(|(mine, _)| **mine).map(|(_, known)| known.done.len()).sum();
        let (mut to_come, mut time, mut of_all, mut all_known) = (0, 0.0, true, true);
        for (point, planned) in points.iter().enumerate() {
            let Planned::Runs(runs) = planned else { continue };
            to_come += runs;
            of_all &= !known[point].done.is_empty();
            match usual(point) {
                Some(takes) if is_simulated(campaign, point) => time += takes.0 as f64 / cores.max(1) as f64,
                Some(takes) => time += takes.0 as f64 * *runs as f64,
                None => all_known = false,
            }
        }
        let expected = match all_known {
            true => Expected::Takes { time: Nanoseconds(time as u64), of_all },
            false => Expected::NotKnown,
        };
        Plan { shard, points, first_round, done, to_come, expected, budget: campaign.stop.budget }
    }
}
