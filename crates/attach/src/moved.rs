//! What a move of a running offcode was.

use machine::{Nanoseconds, Site};
use serde::{Deserialize, Serialize};

/// What a move was, step by step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Those that moved together, by name with version.
    pub offcodes: Vec<String>,
    pub from: Site,
    pub to: Site,
    pub steps: Vec<(Step, Nanoseconds)>,
    /// From the last that the old bodies did until the new ones could work.
    pub pause: Nanoseconds,
    /// Bytes of state.
    pub state: u64,
    /// Messages of unreliable channels that were on their way.
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
    /// All, in their order.
    pub const ALL: [Step; 7] =
        [Step::Prepare, Step::Quiesce, Step::Snapshot, Step::Rebind, Step::Restore, Step::Commit, Step::Release];
}
