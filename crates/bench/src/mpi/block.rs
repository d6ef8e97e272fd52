//! Results of starts of the ranks, with this machine's counts meanwhile.

use launch::report::Reports;
use machine::accounting::CoreCost;
use machine::{Nanoseconds, Probe, Reading};
use rounds::blocks::{Series, Taken};
use serde::Serialize;

use super::contender::{Contender, Seats};
use super::pattern::Task;
use super::result::Figures;

/// One task of a block.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    pub task: Task,
    /// The measured value, in the unit of the pattern.
    pub value: f64,
    pub messages: u64,
    pub ranks: [Figures; 2],
    /// Network softirqs by core of this machine: of both hosts, unless one is another machine.
    pub cores: Vec<CoreCost>,
    /// Softirqs of the other machine, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_cores: Option<Reading<Vec<CoreCost>>>,
}

impl Outcome {
    /// Distances of the ranks' cores, as they probed them before and after the task; else `beside`, the probes around their
    /// start.
    pub fn probes(&self, beside: [Option<Probe>; 2]) -> [Option<Probe>; 2] {
        match self.ranks[0].near {
            [0, _] | [_, 0] => beside,
            near => near.map(|half_round_trip_ps| Some(Probe { half_round_trip_ps })),
        }
    }

    /// Nanoseconds of network softirqs for each message, on all cores of both hosts.
    pub fn softirqs(&self) -> Reading<f64> {
        let there = match &self.remote_cores {
            None => &[][..],
            Some(Reading::Measured(cores) | Reading::Modelled(cores)) => cores,
            Some(none) => return none.clone().map(|_| 0.0),
        };
        if self.cores.is_empty() {
            return Reading::absent("no meter of this host could be opened");
        }
        let mut sum = 0.0;
        for reading in self.cores.iter().chain(there).flat_map(|core| [&core.net_rx, &core.net_tx]) {
            match reading {
                Reading::Measured(softirq) | Reading::Modelled(softirq) => sum += softirq.time.0 as f64,
                none => return none.clone().map(|_| 0.0),
            }
        }
        Reading::Measured(sum / self.messages.max(1) as f64)
    }
}

/// Results of one start.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Block {
    pub started: Nanoseconds,
    pub outcomes: Vec<Outcome>,
    pub reports: Reports,
    /// Whether MPI calls were timed.
    pub accounted: bool,
}

impl Block {
    /// The outcome of `task`, if the start had it.
    pub fn of(&self, task: &Task) -> Option<&Outcome> {
        self.outcomes.iter().find(|outcome| outcome.task == *task)
    }
}

/// A contender at a place, with all its blocks.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    pub seats: Seats,
    pub contender: Contender,
    #[serde(flatten)]
    pub series: Series<Block>,
    /// Blocks with timed MPI calls, one for each task; timing makes them slower.
    pub accounted: Vec<Taken<Block>>,
}
