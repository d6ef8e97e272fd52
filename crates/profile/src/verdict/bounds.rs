//! Bounds of a quantity: at least, at most, and why no more is known.

use machine::Reading;

/// Seconds, or a share of the run. Where the two differ `unknown` says why.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bounds {
    pub least: f64,
    pub most: f64,
    pub unknown: Option<String>,
}

impl Bounds {
    pub fn exactly(value: f64) -> Bounds {
        Bounds { least: value, most: value, unknown: None }
    }

    pub fn between(least: f64, most: f64, unknown: impl Into<String>) -> Bounds {
        match most > least {
            true => Bounds { least, most, unknown: Some(unknown.into()) },
            false => Bounds::exactly(least),
        }
    }

    /// Bounds of a reading; a missing one may be anything up to `most`.
    pub fn of(reading: &Reading<f64>, most: f64) -> Bounds {
        match reading {
            Reading::Measured(value) | Reading::Modelled(value) => Bounds::exactly(*value),
            Reading::Absent { reason } | Reading::NotPermitted { reason, .. } => Bounds::between(0.0, most, reason),
        }
    }

    /// Why a share of the run is not known, where that makes a difference.
    pub fn unknown(&self) -> Option<&str> {
        self.unknown.as_deref().filter(|_| self.most - self.least > super::NOISE / 2.0)
    }
}
