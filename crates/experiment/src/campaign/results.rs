//! What the runs of a study file gave, in columns that an analysis walks.

use machine::{Hertz, Nanoseconds};
use serde::{Deserialize, Serialize};

use crate::axes::Axes;

/// What is read off a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figure {
    /// `time`, or as the file names it; `watts` and `joules` are the machine's over the run.
    pub name: String,
    pub unit: String,
    pub more_is_better: bool,
}

/// One run that came to its end and is to be counted.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Index into [`Results::points`].
    pub point: u32,
    /// Index into [`Results::hosts`].
    pub host: u32,
    /// Runs of one host and round met the same machine.
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
    /// Points that are simulated, by their index: the same run every time. Those without an entry are measured.
    pub simulated: Vec<bool>,
    pub hosts: Vec<String>,
    pub runs: Vec<Run>,
    /// Points or runs that failed, with the cause: never averaged in.
    pub failures: Vec<(u32, String)>,
}
