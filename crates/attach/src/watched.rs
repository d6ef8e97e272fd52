//! What an operator sees of a running offcode: what its channels carried and lost, and the calls that it gets.

use machine::Nanoseconds;
use machine::channel::Loss;
use serde::{Deserialize, Serialize};

/// What one channel carried, seen from its offcode. `None`: nobody counts that where the offcode is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// As the offcode knows the channel; empty for the one that calls come on out of band.
    pub channel: String,
    /// Who has its other end, where the runtime has joined the two.
    pub peer: Option<String>,
    /// Messages that the offcode wrote, and read.
    pub written: Option<u64>,
    pub read: Option<u64>,
    /// Writes of the offcode for which a reliable channel had no room, and such as no channel takes.
    pub full: Option<u64>,
    pub refused: Option<u64>,
    /// Messages that wait for room to go out.
    pub waiting: u64,
    /// Messages that were lost, by where; what nothing was lost at is not here.
    pub lost: Vec<(Loss, u64)>,
}

impl Carried {
    pub fn add_lost(&mut self, at: Loss, count: u64) {
        if count == 0 {
            return;
        }
        match self.lost.iter_mut().find(|(place, _)| *place == at) {
            Some((_, lost)) => *lost += count,
            None => self.lost.push((at, count)),
        }
        self.lost.sort();
    }
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The result, of so many bytes.
    Result(u64),
    Refused(String),
    /// Its caller wants no answer.
    OneWay,
}

/// A call that an offcode got while it was watched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// From 0 on, each one more than the one before.
    pub number: u64,
    /// When it came, since 1970.
    pub time: Nanoseconds,
    pub from: String,
    /// 'Interface.method', or their numbers where the manifest has no such interface.
    pub method: String,
    /// Of its arguments.
    pub bytes: u64,
    pub outcome: Outcome,
    /// Until its result was there; out of band with its way to the offcode and back. Absent where no answer is wanted.
    pub took: Option<Nanoseconds>,
}

/// The calls since the last look.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    pub calls: Vec<Call>,
    /// The number of the next.
    pub next: u64,
    /// What of its channels is not seen, and why.
    pub unseen: Option<String>,
}
