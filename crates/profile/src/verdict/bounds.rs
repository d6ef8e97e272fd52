//! Bounds of a quantity: least, most, and the reason why they differ.

use machine::Reading;

/// Seconds, or shares of the run. Where the two differ, `unknown` gives the reason.
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

    /// Bounds of a reading; a missing reading lies between 0 and `most`.
    pub fn of(reading: &Reading<f64>, most: f64) -> Bounds {
        match reading {
            Reading::Measured(value) | Reading::Modelled(value) => Bounds::exactly(*value),
            Reading::Absent { reason } | Reading::NotPermitted { reason, .. } => Bounds::between(0.0, most, reason),
        }
    }

    /// It is known to be at most this as well.
    pub fn narrow(&mut self, most: f64) {
        *self = Bounds { most: self.most.min(most).max(self.least), ..std::mem::take(self) };
        self.unknown = self.unknown.take().filter(|_| self.most > self.least);
    }

    /// The reason why a share of the run is not known, where the bounds differ enough to matter.
    pub fn unknown(&self) -> Option<&str> {
        self.unknown.as_deref().filter(|_| self.most - self.least > super::NOISE / 2.0)
    }
}
