//! What a study file would do, before it does it.

use machine::Nanoseconds;
use rounds::order::turns;

use super::conduct::{is_simulated, left_out};
use super::definition::{Campaign, Shard};
use super::store::Known;

/// What is known of a study before it is run.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub shard: Shard,
    /// By point: what is to become of it here.
    pub points: Vec<Planned>,
    /// The points of the first round, in their order.
    pub first_round: Vec<usize>,
    /// Runs that are done, and those to come at most.
    pub done: usize,
    pub to_come: usize,
    /// Time that the runs to come take.
    pub expected: Expected,
    /// Points that can be looked at only as long as the budget allows.
    pub budget: Option<Nanoseconds>,
}

/// What becomes of a point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Planned {
    /// Number of runs at most.
    Runs(usize),
    Done,
    /// Another shard has it.
    Elsewhere,
    /// Why it cannot run on this host.
    Cannot(String),
    /// Why it gets no more runs.
    Left(String),
}

/// How long the study takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// From runs of all points, or of some of each program.
    Takes { time: Nanoseconds, of_all: bool },
    /// Nothing was run of some program.
    NotKnown,
}

impl Plan {
    /// `cannot`: of each point, why it cannot run here. `usual`: how long a run of it takes, where that is known. Simulated
    /// points are shared by `cores`.
    pub fn of(
        campaign: &Campaign,
        shard: Shard,
        known: &[Known],
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
                _ => match left_out(campaign, &known[point]) {
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
