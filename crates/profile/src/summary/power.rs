//! Power in a summary.

use machine::Reading;
use serde::{Deserialize, Serialize};

/// A sensor of power.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PowerSummary {
    /// Name.
    pub host: String,
    /// Such as `rapl:package-0`.
    pub sensor: String,
    /// Node, package, cores, memory, device, or not stated.
    pub covers: String,
    /// In-band, out-of-band, or not stated.
    pub band: String,
    /// The sensor whose energy includes this: never add them.
    pub within: Option<String>,
    /// Watts: the lowest mean over a second or more.
    pub floor: Reading<f64>,
    /// The job, the run, each phase.
    pub spans: Vec<PowerSpan>,
}

/// A sensor over a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PowerSpan {
    /// `job`, `run` (first MPI_Init to last MPI_Finalize) or `phase`.
    pub what: String,
    /// Place in `phases`.
    pub phase: Option<usize>,
    /// Of the covered time.
    pub joules: Reading<f64>,
    /// How far `joules` may be off.
    pub error: Reading<f64>,
    /// Mean of the covered time.
    pub watts: Reading<f64>,
    /// Joules above `floor`.
    pub above: Reading<f64>,
    /// Share that samples cover.
    pub coverage: f64,
    /// Not covered, with cause, longest first.
    pub gaps: Vec<String>,
}
