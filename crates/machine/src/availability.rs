//! Whether a thing is there and may be used: three answers, each with the next step.

use serde::{Deserialize, Serialize};

/// Whether a site, port, control or sensor can be used.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Availability {
    /// The thing is there and this user may use it.
    Present {
        /// The thing, in words.
        detail: String,
    },
    /// The machine, its kernel or its configuration does not have it.
    Absent {
        /// Why it is not there.
        reason: String,
        /// The step that would bring it.
        next: String,
    },
    /// The thing is there, but not for this user.
    NotPermitted {
        /// The refusal: what was refused, and by what.
        reason: String,
        /// The step that would permit it.
        next: String,
    },
}

impl Availability {
    /// A thing that is there and may be used; `detail` says what it is.
    pub fn present(detail: impl Into<String>) -> Self {
        Availability::Present { detail: detail.into() }
    }

    /// A thing that is not there: why, and what would bring it.
    pub fn absent(reason: impl Into<String>, next: impl Into<String>) -> Self {
        Availability::Absent { reason: reason.into(), next: next.into() }
    }

    /// A thing that is there, but not for this user: why, and what would permit it.
    pub fn not_permitted(reason: impl Into<String>, next: impl Into<String>) -> Self {
        Availability::NotPermitted { reason: reason.into(), next: next.into() }
    }

    /// The detail or the reason, without the next step.
    pub fn explanation(&self) -> &str {
        match self {
            Availability::Present { detail } => detail,
            Availability::Absent { reason, .. } | Availability::NotPermitted { reason, .. } => reason,
        }
    }

    /// The next step for the reader, where it is not present.
    pub fn next(&self) -> Option<&str> {
        match self {
            Availability::Present { .. } => None,
            Availability::Absent { next, .. } | Availability::NotPermitted { next, .. } => Some(next),
        }
    }

    /// One line: the detail, or the word and the reason.
    pub fn summary(&self) -> String {
        match self {
            Availability::Present { detail } => detail.clone(),
            _ => format!("{}: {}", self.word(), self.explanation()),
        }
    }

    /// `present`, `absent` or `not permitted`.
    pub fn word(&self) -> &'static str {
        match self {
            Availability::Present { .. } => "present",
            Availability::Absent { .. } => "absent",
            Availability::NotPermitted { .. } => "not permitted",
        }
    }
}

/// One named site, port, control or sensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feature {
    /// The name as it is written in arguments: `core:3`, `afxdp:eth0`, `rps:eth0`.
    pub name: String,
    /// Whether it can be used.
    #[serde(flatten)]
    pub availability: Availability,
}

impl Feature {
    /// A feature of this name.
    pub fn new(name: impl Into<String>, availability: Availability) -> Feature {
        Feature { name: name.into(), availability }
    }
}
