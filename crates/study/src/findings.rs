//! What a study found: the shape that statistics fill and that every rendering (HTML, terminal, JSON) reads.

use machine::{Bytes, Nanoseconds, Reading};
use serde::{Deserialize, Serialize};

use crate::point::{Contender, Path, Pattern, PointKey, PointSpec};
use crate::sample::Sample;

/// A median with its 95 % bootstrap interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    pub median: f64,
    pub low: f64,
    pub high: f64,
    /// Samples behind it.
    pub samples: usize,
}

/// One point with all that was measured of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PointFindings {
    pub key: PointKey,
    pub spec: PointSpec,
    /// In the unit of the pattern's metric.
    pub value: Interval,
    /// CPU time per message, all participating threads and network softirqs of both ends.
    pub cpu_per_message: Reading<Interval>,
    pub samples: Vec<Sample>,
}

/// What a range of sizes calls for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    Place(Contender),
    /// The intervals overlap, or the machine was too noisy: no coin is tossed.
    CannotTell {
        between: Vec<Contender>,
        why: String,
    },
}

/// Why a contender was not taken for a range.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rejected {
    pub contender: Contender,
    pub why: String,
}

/// One row of the verdict: adjacent sizes with the same choice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SizeRange {
    pub pattern: Pattern,
    pub from: Bytes,
    pub to: Bytes,
    pub choice: Choice,
    /// Choice over the best other contender: a ratio above 1 in the choice's favour; paired by round.
    pub gain: Option<Interval>,
    /// CPU nanoseconds per message of the choice.
    pub cpu_per_message: Reading<Interval>,
    pub rejected: Vec<Rejected>,
    pub evidence: Vec<PointKey>,
}

/// How near the two application cores were while a study ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Nearness {
    /// One way, nanoseconds.
    pub one_way_ns: Interval,
    /// Share of blocks in which the cores were near (below 60 ns one way), 0 to 1.
    pub near_share: f64,
    /// "near throughout", "far throughout", "flipped between near and far".
    pub note: String,
}

/// The decision, in words and rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// One sentence that a reader can act on.
    pub sentence: String,
    pub ranges: Vec<SizeRange>,
    pub nearness: Option<Nearness>,
    pub warnings: Vec<String>,
}

/// One labelled line about the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    pub name: String,
    pub value: String,
}

/// Everything a report shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    pub title: String,
    pub path: Path,
    /// Since the Unix epoch.
    pub started: Nanoseconds,
    pub took: Nanoseconds,
    pub machine: Vec<Fact>,
    pub verdict: Verdict,
    pub points: Vec<PointFindings>,
    /// What was left out and why, what ran otherwise than asked.
    pub notes: Vec<String>,
}
