//! Trials: whole runs of commands, interleaved, until it can be told which does better.
//!
//! A trial has arms, the first of which is what is used today. Each round runs every arm once, so that what changes on the
//! machine meets all alike; [`rounds::contrast`] decides.

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

/// One run of an arm that came to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Round from 0; `None` for a warm-up run.
    pub round: Option<u32>,
    /// Place within the round.
    pub place: u32,
    /// Wall clock at the start, since the Unix epoch.
    pub started: Nanoseconds,
    pub elapsed: Nanoseconds,
    /// CPU time of all its processes; `None` where it is not known.
    pub cpu: Option<Nanoseconds>,
    /// CPU time in the kernel.
    pub system: Option<Nanoseconds>,
    /// Its exit status; `None` where it is not known.
    pub status: Option<u8>,
    /// The figure of merit.
    pub value: f64,
    /// The distance of the cores before and after it.
    pub probes: [Option<Probe>; 2],
    /// Effective clocks of these cores before and after it.
    pub clocks: [Clocks; 2],
}

/// All that came of a trial so far, by arm.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Runs {
    /// Completed runs, in the order in which they ran.
    pub done: Vec<Vec<Run>>,
    /// Runs that failed, in words.
    pub failed: Vec<Vec<String>>,
    /// Why an arm's results are wrong, where they were compared.
    pub wrong: Vec<Option<String>>,
    /// What results are held against, once the first arm has run.
    pub reference: Option<String>,
    /// Time that all of it took, over all sittings.
    pub spent: Nanoseconds,
}

impl Runs {
    pub fn of(arms: usize) -> Runs {
        let (done, failed, wrong) = (vec![Vec::new(); arms], vec![Vec::new(); arms], vec![None; arms]);
        Runs { done, failed, wrong, ..Runs::default() }
    }

    /// Why the arm takes no part any more.
    pub fn left_out(&self, arm: usize) -> Option<String> {
        let failed = &self.failed[arm];
        let failing = || (failed.len() >= FAILURES).then(|| format!("failed: {}", failed[failed.len() - 1]));
        self.wrong[arm].as_ref().map(|why| format!("wrong: {why}")).or_else(failing)
    }

    /// The round that comes next: one that was cut short is not taken up again.
    pub fn next_round(&self) -> u32 {
        self.done.iter().flatten().filter_map(|run| run.round).max().map_or(0, |last| last + 1)
    }

    /// Runs that count.
    pub fn measured(&self, arm: usize) -> impl Iterator<Item = &Run> {
        self.done[arm].iter().filter(|run| run.round.is_some())
    }
}
