//! A sample: what one block of a point gave.

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
    /// Place within the round; drawn at random.
    pub order: u32,
    /// Wall clock at the start, since the Unix epoch.
    pub started: Nanoseconds,
    pub messages: u64,
    pub elapsed: Nanoseconds,
    /// The value, in the unit of the pattern's metric.
    pub value: f64,
    /// Messages lost, where the stack may lose them.
    pub lost: u64,
    /// How far the cores of the two applications were from each other; `None` where both ends share a core or no probe could run.
    pub probe: Option<Probe>,
    /// Effective clocks of the cores of this host that do its work, before it; of blocks of earlier versions there are none.
    #[serde(default, skip_serializing_if = "Clocks::is_empty")]
    pub clocks: Clocks,
    pub accounting: Option<Accounting>,
    /// What ran, where it differs from what was asked or needs a word ("engine yields: core 1 is the peer's").
    pub notes: Vec<String>,
}

/// Measures points. The real one drives two processes; tests and the simulator bring their own.
pub trait Runner {
    /// Makes ready for blocks of `spec`: what the first block would otherwise do besides, so that it costs as much as
    /// those that follow.
    fn prepare(&mut self, _spec: &PointSpec) -> Result<()> {
        Ok(())
    }

    /// Measures one block of `spec`.
    fn run_block(&mut self, spec: &PointSpec, round: u32, order: u32) -> Result<Sample>;

    /// The clock that the budget is counted by.
    fn now(&self) -> Nanoseconds {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        Nanoseconds(START.elapsed().as_nanos() as u64)
    }
}
