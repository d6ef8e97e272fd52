//! Which share of a core ranks can have.
//!
//! Something always takes part of a core: receive work of the network, file systems' threads, a busy sibling, a lower clock
//! (paper 002, section 3: 'effective capability').

use serde::{Deserialize, Serialize};

use crate::reading::Reading;
use crate::site::CoreId;

/// What of one core ranks cannot have, over the time that it was looked at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CoreCapability {
    /// The host, by its name.
    pub host: String,
    /// The core.
    pub core: CoreId,
    /// Share of the time that it was busy with other than the job's ranks, 0 to 1.
    pub taken: Reading<f64>,
    /// Of `taken`: softirqs of the network.
    pub softirq: Reading<f64>,
    /// Its clock over that of the fastest core of all hosts.
    pub clock: Reading<f64>,
    /// Share of the time that another thread of the same core (SMT) was busy; 0 where it has none.
    pub sibling: Reading<f64>,
}

/// What a thread computes at least while its sibling is busy, over what it computes alone.
const BESIDE_SIBLING: f64 = 0.5;

impl CoreCapability {
    /// What ranks can have of the core, from and to: `(1 - taken) x clock`, less what a busy sibling may take. What is not known widens
    /// it, except for the clock, which is taken for full.
    pub fn range(&self) -> (f64, f64) {
        let clock = self.clock.value().copied().unwrap_or(1.0);
        let free = |taken: f64| (1.0 - taken).clamp(0.0, 1.0) * clock;
        let (low, high) = self.taken.value().map_or((0.0, clock), |taken| (free(*taken), free(*taken)));
        let beside = self.sibling.value().copied().unwrap_or(1.0).clamp(0.0, 1.0);
        (low * (1.0 - beside * (1.0 - BESIDE_SIBLING)), high)
    }
}
