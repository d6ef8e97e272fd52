//! What changes over a run, in columns of equal length.

use serde::{Deserialize, Serialize};

/// Columns of equal length; null without a sample.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Begin of the first column.
    pub from: f64,
    /// Seconds a column.
    pub step: f64,
    /// Number of columns.
    pub columns: usize,
    /// One row a core.
    pub cores: Vec<CoreSeries>,
    /// One row a rank.
    pub ranks: Vec<RankSeries>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CoreSeries {
    /// Name of the host.
    pub host: String,
    /// Number of the core on its host.
    pub core: u32,
    /// Share of time not idle.
    pub busy: Vec<Option<f32>>,
    /// Share in network softirqs.
    pub softirq: Vec<Option<f32>>,
    /// Network softirqs a second.
    pub softirqs: Vec<Option<f32>>,
    /// Hardware interrupts a second.
    pub interrupts: Vec<Option<f32>>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RankSeries {
    /// Place in `ranks`.
    pub rank: usize,
    /// Share inside MPI.
    pub mpi: Vec<Option<f32>>,
    /// Calls a second.
    pub calls: Vec<Option<f32>>,
    /// The core it was on.
    pub core: Vec<Option<u32>>,
}

/// Coarse enough to draw; `plimsoll report DIR --export` has all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Begin of the first column.
    pub from: f64,
    /// Seconds a column.
    pub step: f64,
    /// Number of columns.
    pub columns: usize,
    /// Functions, with `MPI_`, to which lanes refer by place.
    pub names: Vec<String>,
    /// Threads of ranks, one a lane.
    pub lanes: Vec<Lane>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lane {
    /// Place in `ranks`.
    pub rank: usize,
    /// Number in its rank.
    pub thread: u16,
    /// Function with most of the column, a place in `names`; `None`: outside MPI.
    pub most: Vec<Option<u16>>,
    /// Share inside MPI.
    pub mpi: Vec<f32>,
}
