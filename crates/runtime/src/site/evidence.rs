//! Proof that an offcode works where the plan says: counters, and who counted them.

use serde::{Deserialize, Serialize};

/// What `plimsoll ps` shows beside an offcode.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Where it is, as the operating system says: 'thread 812 on core 1', 'program 41, native mode, on eth0'.
    pub whereabouts: String,
    pub counters: Vec<Counter>,
    /// Calls, messages and packets that reached it: while this stands still, nobody uses it.
    pub uses: u64,
}

/// One figure that can only grow where the offcode really runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// 'turns of the loop', 'runs of the program'.
    pub name: String,
    pub value: u64,
}
