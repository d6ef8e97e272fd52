//! The record of a move of a running offcode.

use machine::{Nanoseconds, Site};
use serde::{Deserialize, Serialize};

/// The record of a move, step by step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// The offcodes that moved together, by name with version.
    pub offcodes: Vec<String>,
    pub from: Site,
    pub to: Site,
    pub steps: Vec<(Step, Nanoseconds)>,
    /// Time from the end of the old bodies' work until the new ones could work.
    pub pause: Nanoseconds,
    /// Bytes of state.
    pub state: u64,
    /// Messages in flight on unreliable channels that were lost.
    pub lost: u64,
}

/// A step of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// The new bodies are there, initialized; the old ones work.
    Prepare,
    /// Where messages to the old bodies are relayed: no more of them are, and those under way have arrived.
    Quiesce,
    /// The old bodies stand still and have saved their state. The pause begins.
    Snapshot,
    /// The new bodies have the channels.
    Rebind,
    /// The new bodies have the state.
    Restore,
    /// The new bodies work. The pause ends; nothing is taken back any more.
    Commit,
    /// The old bodies are gone.
    Release,
}

impl Step {
    /// All steps, in order.
    pub const ALL: [Step; 7] =
        [Step::Prepare, Step::Quiesce, Step::Snapshot, Step::Rebind, Step::Restore, Step::Commit, Step::Release];
}
