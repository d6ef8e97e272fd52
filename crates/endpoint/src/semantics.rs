//! What stands between an application's messages and the packets (paper 004).

use std::fmt;
use std::str::FromStr;

use machine::Fault;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Semantics {
    /// The engine: messages go to an address and are matched by it.
    #[default]
    Matched,
    /// A connected queue pair for each peer, receives posted for each, and MPI's matching above.
    QueuePair,
    /// The same, with one shared receive queue for all peers.
    QueuePairShared,
}

impl Semantics {
    pub const ALL: [Semantics; 3] = [Semantics::Matched, Semantics::QueuePair, Semantics::QueuePairShared];

    pub fn name(self) -> &'static str {
        match self {
            Semantics::Matched => "matched",
            Semantics::QueuePair => "queue-pair",
            Semantics::QueuePairShared => "queue-pair-shared",
        }
    }
}

impl fmt::Display for Semantics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Semantics {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        Semantics::ALL.into_iter().find(|one| one.name() == text).ok_or_else(|| {
            let next = format!("choose {}", Semantics::ALL.map(Semantics::name).join(", "));
            Fault::new(format!("semantics '{text}'"), "there is no such", next)
        })
    }
}
