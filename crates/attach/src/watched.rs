//! What an operator sees of a running offcode: what its channels carried and lost, and the calls that it gets.

use machine::Nanoseconds;
use machine::channel::Loss;
use serde::{Deserialize, Serialize};

/// Traffic of one channel, seen from its offcode. `None` where nobody counts it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// The channel's name at the offcode; empty for the out-of-band channel.
    pub channel: String,
    /// The party at the other end, where the runtime has joined the two.
    pub peer: Option<String>,
    /// Messages that the offcode wrote, and read.
    pub written: Option<u64>,
    pub read: Option<u64>,
    /// Failed writes: a reliable channel was full, or the message was one that no channel takes.
    pub full: Option<u64>,
    pub refused: Option<u64>,
    /// Messages that wait for room to go out.
    pub waiting: u64,
    /// Messages that were lost, by place; places without a loss are left out.
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

/// Outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// A result of this many bytes.
    Result(u64),
    Refused(String),
    /// The caller wants no answer.
    OneWay,
}

/// A call that an offcode got while it was watched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Consecutive number, from 0 on.
    pub number: u64,
    /// Time of arrival, since 1970.
    pub time: Nanoseconds,
    pub from: String,
    /// 'Interface.method', or their numbers where the manifest has no such interface.
    pub method: String,
    /// Bytes of the arguments.
    pub bytes: u64,
    pub outcome: Outcome,
    /// Time until the result was there, out of band with both ways. `None` where no answer is wanted.
    pub took: Option<Nanoseconds>,
}

/// The calls since the last look.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    pub calls: Vec<Call>,
    /// The number of the next call.
    pub next: u64,
    /// Channels whose calls are not seen, and why.
    pub unseen: Option<String>,
}
