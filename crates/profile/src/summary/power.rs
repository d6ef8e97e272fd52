//! What a summary says of power.

use machine::Reading;
use serde::{Deserialize, Serialize};

/// What a sensor of power told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PowerSummary {
    /// Name of its host.
    pub host: String,
    /// Name of the sensor, such as `rapl:package-0`.
    pub sensor: String,
    /// What draws the power: node, package, cores, memory, device, or not stated.
    pub covers: String,
    /// Who measures: in-band, out-of-band, or not stated.
    pub band: String,
    /// The sensor that has this energy in its own; the two are never to be added.
    pub within: Option<String>,
    /// Watts of the lowest mean over a time of some samples, a second at least, in the whole recording.
    pub floor: Reading<f64>,
    /// The whole job, the time between MPI_Init and MPI_Finalize, then each phase.
    pub spans: Vec<PowerSpan>,
}

/// What a sensor of power told of a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PowerSpan {
    /// `job`, `run` (from the first return of MPI_Init to the last call of MPI_Finalize) or `phase`.
    pub what: String,
    /// Place in `phases`, of a phase.
    pub phase: Option<usize>,
    /// Joules of the covered time.
    pub joules: Reading<f64>,
    /// How many joules that may be off.
    pub error: Reading<f64>,
    /// Mean watts of the covered time.
    pub watts: Reading<f64>,
    /// Joules above the floor over the covered time.
    pub above: Reading<f64>,
    /// The share of the time that samples cover.
    pub coverage: f64,
    /// What is not covered, with its cause, longest first.
    pub gaps: Vec<String>,
}
