//! A measured figure with its interval.

use machine::costs::Interval;
use serde::{Deserialize, Serialize};

/// A figure with its 95 % interval: a median, or the middle of differences.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    pub middle: f64,
    pub low: f64,
    pub high: f64,
    pub samples: usize,
}

impl Estimate {
    /// Fewest values that have a 95 % interval.
    pub const FEWEST: usize = 6;

    /// The ratio of an estimate in logarithms.
    pub fn exp(self) -> Estimate {
        Estimate { middle: self.middle.exp(), low: self.low.exp(), high: self.high.exp(), samples: self.samples }
    }

    pub fn interval(&self) -> Interval {
        Interval { low: self.low, middle: self.middle, high: self.high }
    }

    /// The ends of a ratio with so many decimals: `0.98 .. 1.07`. An end far away is shown as open.
    pub fn ends(&self, decimals: usize) -> String {
        let (least, most) = (0.1_f64.powi(decimals as i32), (10.0 * self.middle).max(100.0));
        let end = |end: f64| match end {
            end if end >= most => format!(">{most:.0}"),
            end if end < 0.5 * least => format!("<{least:.decimals$}"),
            end => format!("{end:.decimals$}"),
        };
        self.range(end)
    }

    /// A ratio with its ends: `1.02x (0.98 .. 1.07)`.
    pub fn ratio(&self, decimals: usize, unit: &str) -> String {
        format!("{:.decimals$}{unit} ({})", self.middle, self.ends(decimals))
    }

    /// The ends, formatted by `write`; too few rounds have none, and ends that are written alike say so.
    pub fn range(&self, write: impl Fn(f64) -> String) -> String {
        if self.samples < Estimate::FEWEST {
            return format!("cannot tell: {} of {} rounds", self.samples, Estimate::FEWEST);
        }
        let (low, high) = (write(self.low), write(self.high));
        if low == high { "all digits hold".to_owned() } else { format!("{low} .. {high}") }
    }
}
