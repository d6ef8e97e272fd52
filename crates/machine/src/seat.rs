//! Where the ranks of a job are to run.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cpuset::CpuSet;

/// The place of one rank.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Seat {
    /// The host, by the name that its launcher knows.
    pub host: String,
    /// The logical CPUs that the rank's threads may run on.
    pub cores: CpuSet,
}

/// The places of all ranks, by rank.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seats(pub Vec<Seat>);

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.cores)
    }
}
