//! Values with their provenance: never 0 for 'no sensor'.

use serde::{Deserialize, Serialize};

/// One value with its provenance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading<T> {
    /// Read from the machine.
    Measured(T),
    /// Computed by a model, not read.
    Modelled(T),
    /// The machine has no such thing.
    Absent {
        /// Why there is no value.
        reason: String,
    },
    /// The machine may have it, but this user may not look.
    NotPermitted {
        /// The refusal: what was refused, and by what.
        reason: String,
        /// The step that would permit it.
        next: String,
    },
}

impl<T> Reading<T> {
    /// An absent value: why there is none.
    pub fn absent(reason: impl Into<String>) -> Self {
        Reading::Absent { reason: reason.into() }
    }

    /// A value that this user may not read: why, and what would permit it.
    pub fn not_permitted(reason: impl Into<String>, next: impl Into<String>) -> Self {
        Reading::NotPermitted { reason: reason.into(), next: next.into() }
    }

    /// The value, measured or modelled.
    pub fn value(&self) -> Option<&T> {
        match self {
            Reading::Measured(v) | Reading::Modelled(v) => Some(v),
            Reading::Absent { .. } | Reading::NotPermitted { .. } => None,
        }
    }

    /// The same reading with its value changed.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Reading::Measured(v) => Reading::Measured(f(v)),
            Reading::Modelled(v) => Reading::Modelled(f(v)),
            Reading::Absent { reason } => Reading::Absent { reason },
            Reading::NotPermitted { reason, next } => Reading::NotPermitted { reason, next },
        }
    }
}
