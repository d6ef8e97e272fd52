//! The observer of the measurements of one sitting.

use std::fmt;

use machine::Nanoseconds;

/// Progress of a sitting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The state in words, with what is left to do.
    pub state: String,
    /// What is measured now; `None` where that is not one thing.
    pub now: Option<String>,
    /// Time spent of the budget.
    pub spent: Nanoseconds,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.state)?;
        self.now.as_ref().map_or(Ok(()), |now| write!(f, ": {now}"))
    }
}

pub trait Observer {
    fn progress(&mut self, progress: &Progress);

    /// A failure or an omission, reported at once.
    fn note(&mut self, text: &str);
}
