//! Proof that an offcode works where the plan says: counters, and who counted them.

use machine::Nanoseconds;
use serde::{Deserialize, Serialize};

/// What `plimsoll ps` shows beside an offcode.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Where it is, as the operating system says: 'thread 812 on core 1', 'program 41, native mode, on eth0'.
    pub whereabouts: String,
    pub counters: Vec<Counter>,
    /// Calls, messages and packets that reached it: while this stands still, nobody uses it.
    pub uses: u64,
    /// Times of those that were timed; `None`: none was.
    pub timed: Option<Timed>,
    /// How many of them came on each channel, where the site tells them apart; the empty name: calls out of band.
    pub received: Vec<(String, u64)>,
}

/// Calls, messages or packets, and the core time that the offcode took for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timed {
    /// How many were timed; not 0.
    pub uses: u64,
    /// For all of these together.
    pub time: Nanoseconds,
}

impl Timed {
    /// For one, in nanoseconds.
    pub fn each(&self) -> f64 {
        self.time.0 as f64 / self.uses as f64
    }
}

/// One figure that can only grow where the offcode really runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// 'turns of the loop', 'runs of the program'.
    pub name: String,
    pub value: u64,
}
