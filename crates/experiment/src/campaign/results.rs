//! Results of a study's runs, as an analysis reads them.

use machine::{Hertz, Nanoseconds};
use serde::{Deserialize, Serialize};

use crate::axes::Axes;

/// A quantity that each run gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figure {
    /// `time`, or the file's name for it; `watts` and `joules` are those of the machine over the run.
    pub name: String,
    pub unit: String,
    pub more_is_better: bool,
}

/// A finished run that counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Index into [`Results::points`].
    pub point: u32,
    /// Index into [`Results::hosts`].
    pub host: u32,
    /// Round on the host. Runs of one host and round can be compared.
    pub round: u32,
    /// Wall clock at the start, since the Unix epoch.
    pub started: Nanoseconds,
    pub elapsed: Nanoseconds,
    /// Values by [`Results::figures`]; `None` where a figure could not be read.
    pub values: Vec<Option<f64>>,
    /// The effective clock of the first core of the run.
    pub clock: Option<Hertz>,
}

/// All results of a study.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Results {
    pub figures: Vec<Figure>,
    pub points: Vec<Axes>,
    /// By point: whether it is simulated, with the same result in every run. Points without an entry are measured.
    pub simulated: Vec<bool>,
    pub hosts: Vec<String>,
    pub runs: Vec<Run>,
    /// Failed runs, each with the index of its point and the cause. Means leave them out.
    pub failures: Vec<(u32, String)>,
}
