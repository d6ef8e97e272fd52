//! The measured latency between two cores.

use serde::{Deserialize, Serialize};

/// Core-to-core latency, one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Probe {
    /// Half the median round trip of a cache-line ping-pong, in picoseconds to keep its precision.
    pub half_round_trip_ps: u64,
}

impl Probe {
    /// The latency in nanoseconds.
    pub fn nanoseconds(self) -> f64 {
        self.half_round_trip_ps as f64 / 1e3
    }
}
