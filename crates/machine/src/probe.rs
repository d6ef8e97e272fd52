//! How far two cores are from each other, as measured.

use serde::{Deserialize, Serialize};

/// Core-to-core latency of two cores, one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Probe {
    /// Half the median round trip of a raw cache-line ping-pong, in picoseconds to keep its precision.
    pub half_round_trip_ps: u64,
}

impl Probe {
    /// The same in nanoseconds.
    pub fn nanoseconds(self) -> f64 {
        self.half_round_trip_ps as f64 / 1e3
    }
}
