//! What stands between an application's messages and the packets (paper 004).

use serde::{Deserialize, Serialize};

machine::named! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Semantics ("semantics") {
        /// The engine: messages go to an address and are matched by it.
        #[default]
        Matched = "matched",
        /// A connected queue pair for each peer, receives posted for each, and MPI's matching above.
        QueuePair = "queue-pair",
        /// The same, with one shared receive queue for all peers.
        QueuePairShared = "queue-pair-shared",
    }
}
