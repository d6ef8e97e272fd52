//! One check and its answer.

use machine::Fault;
use machine::availability::Availability;
use serde::Serialize;

machine::named! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum State {
        Yes = "yes",
        No = "no",
        /// The thing is there, but not for this user.
        NotPermitted = "not permitted",
        /// Neither reading nor trying tells the state.
        Unknown = "unknown",
    }
}

/// A thing that can be used or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    pub name: String,
    pub state: State,
    /// What was found, or why it cannot be used.
    pub found: String,
    /// The use of the thing.
    pub gives: String,
    /// The loss without it.
    pub cost: String,
    /// The next step; `None` where the thing can be used.
    pub next: Option<String>,
}

/// The use of a thing, and the loss without it.
pub struct Worth {
    pub name: &'static str,
    pub gives: &'static str,
    pub cost: &'static str,
}

impl Worth {
    pub fn check(&self, state: State, found: impl Into<String>, next: Option<String>) -> Check {
        let Worth { name, gives, cost } = *self;
        Check { name: name.into(), state, found: found.into(), gives: gives.into(), cost: cost.into(), next }
    }

    pub fn yes(&self, found: impl Into<String>) -> Check {
        self.check(State::Yes, found, None)
    }

    pub fn no(&self, found: impl Into<String>, next: impl Into<String>) -> Check {
        self.check(State::No, found, Some(next.into()))
    }

    pub fn not_permitted(&self, found: impl Into<String>, next: impl Into<String>) -> Check {
        self.check(State::NotPermitted, found, Some(next.into()))
    }

    pub fn unknown(&self, found: impl Into<String>, next: impl Into<String>) -> Check {
        self.check(State::Unknown, found, Some(next.into()))
    }

    pub fn of(&self, availability: &Availability) -> Check {
        let state = match availability {
            Availability::Present { .. } => State::Yes,
            Availability::Absent { .. } => State::No,
            Availability::NotPermitted { .. } => State::NotPermitted,
        };
        self.check(state, availability.explanation(), availability.next().map(String::from))
    }

    /// The check's answer for a fault.
    pub fn failed(&self, fault: &Fault) -> Check {
        self.no(fault.cause(), fault.next())
    }
}
