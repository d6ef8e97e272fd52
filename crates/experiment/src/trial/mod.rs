//! Trials: whole runs of commands, interleaved, until the better one is known.
//!
//! A trial has arms; the first is the command in use today. Each round runs every arm once, so that changes of the machine
//! affect all alike. [`rounds::contrast`] decides.

pub mod aside;
pub mod check;
pub mod conditions;
pub mod conduct;
pub mod design;
pub mod export;
pub mod judgement;
pub mod merit;
pub mod page;
pub mod spread;
pub mod store;
pub mod terminal;
mod words;

use machine::{Nanoseconds, Probe};
use serde::{Deserialize, Serialize};

use rounds::clocks::Clocks;
use rounds::sitting::FAILURES;

/// A completed run of an arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Round from 0; `None` for a warm-up run.
    pub round: Option<u32>,
    /// Place within the round.
    pub place: u32,
    /// Wall clock at the start, since the Unix epoch.
    pub started: Nanoseconds,
    pub elapsed: Nanoseconds,
    /// CPU time of all processes of the run; `None` where it is not known.
    pub cpu: Option<Nanoseconds>,
    /// Part of the CPU time in the kernel.
    pub system: Option<Nanoseconds>,
    /// Exit status; `None` where it is not known.
    pub status: Option<u8>,
    /// The figure of merit.
    pub value: f64,
    /// Distance of the cores before and after the run.
    pub probes: [Option<Probe>; 2],
    /// Effective clocks of these cores before and after the run.
    pub clocks: [Clocks; 2],
}

/// Results of a trial so far, by arm.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Runs {
    /// Completed runs, in the order in which they ran.
    pub done: Vec<Vec<Run>>,
    /// Faults of runs that failed.
    pub failed: Vec<Vec<String>>,
    /// Difference of an arm's results from the reference, where they are wrong.
    pub wrong: Vec<Option<String>>,
    /// Result of the first arm, with which others are compared.
    pub reference: Option<String>,
    /// Time spent on the trial, over all sittings.
    pub spent: Nanoseconds,
}

impl Runs {
    pub fn of(arms: usize) -> Runs {
        let (done, failed, wrong) = (vec![Vec::new(); arms], vec![Vec::new(); arms], vec![None; arms]);
        Runs { done, failed, wrong, ..Runs::default() }
    }

    /// Reason why the arm is left out.
    pub fn left_out(&self, arm: usize) -> Option<String> {
        let failed = &self.failed[arm];
        let failing = || (failed.len() >= FAILURES).then(|| format!("failed: {}", failed[failed.len() - 1]));
        self.wrong[arm].as_ref().map(|why| format!("wrong: {why}")).or_else(failing)
    }

    /// Number of the next round: an incomplete round is not resumed.
    pub fn next_round(&self) -> u32 {
        self.done.iter().flatten().filter_map(|run| run.round).max().map_or(0, |last| last + 1)
    }

    /// Runs that count: all but warm-up runs.
    pub fn measured(&self, arm: usize) -> impl Iterator<Item = &Run> {
        self.done[arm].iter().filter(|run| run.round.is_some())
    }
}
