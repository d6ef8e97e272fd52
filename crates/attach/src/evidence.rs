//! Proof that an offcode works where the plan says: counters, and who counted them.

use machine::Nanoseconds;
use serde::{Deserialize, Serialize};

/// What `plimsoll ps` shows beside an offcode.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The place as the operating system names it: 'thread 812 on core 1', 'program 41, native mode, on eth0'.
    pub whereabouts: String,
    pub counters: Vec<Counter>,
    /// Calls, messages and packets that reached the offcode: nobody uses it while this stands still.
    pub uses: u64,
    /// Time of the uses that were timed; `None` where none was.
    pub timed: Option<Timed>,
    /// Uses by channel, where the site tells channels apart; the empty name stands for calls out of band.
    pub received: Vec<(String, u64)>,
}

/// Calls, messages or packets that were timed, and the core time that the offcode took for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timed {
    /// Number of uses that were timed; not 0.
    pub uses: u64,
    /// Core time of all of these together.
    pub time: Nanoseconds,
}

impl Timed {
    /// Mean core time of one use, in nanoseconds.
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
