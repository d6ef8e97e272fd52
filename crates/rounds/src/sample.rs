//! A sample: the result of one block of a point.

use std::sync::LazyLock;
use std::time::Instant;

use machine::accounting::Accounting;
use machine::{Nanoseconds, Probe, Result};
use serde::{Deserialize, Serialize};

use crate::clocks::Clocks;
use crate::point::PointSpec;

/// One block: many messages, one value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Round of the interleaved design, from 0.
    pub round: u32,
    /// Position within the round, drawn at random.
    pub order: u32,
    /// Wall clock at the start, since the Unix epoch.
    pub started: Nanoseconds,
    pub messages: u64,
    pub elapsed: Nanoseconds,
    /// The value, in the unit of the pattern's metric.
    pub value: f64,
    /// Messages lost, where the stack may lose messages.
    pub lost: u64,
    /// Distance between the cores of the two applications; `None` where both ends share a core or no probe could run.
    pub probe: Option<Probe>,
    /// Effective clocks, before the block, of this host's cores that do its work; none in blocks of earlier versions.
    #[serde(default, skip_serializing_if = "Clocks::is_empty")]
    pub clocks: Clocks,
    pub accounting: Option<Accounting>,
    /// Remarks on what ran, where it differs from what was asked for ("engine yields: core 1 is the peer's").
    pub notes: Vec<String>,
}

/// Measures points: the real one drives two processes; tests and the simulator have their own.
pub trait Runner {
    /// Prepares for blocks of `spec`, so that the first block costs as much as those that follow.
    fn prepare(&mut self, _spec: &PointSpec) -> Result<()> {
        Ok(())
    }

    fn run_block(&mut self, spec: &PointSpec, round: u32, order: u32) -> Result<Sample>;

    /// The clock by which the budget is counted.
    fn now(&self) -> Nanoseconds {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        Nanoseconds(START.elapsed().as_nanos() as u64)
    }
}
