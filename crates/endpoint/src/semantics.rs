//! The semantics between an application's messages and the packets (paper 004).

use serde::{Deserialize, Serialize};

machine::named! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Semantics ("semantics") {
        /// The engine: messages are addressed to a peer and matched there.
        #[default]
        Matched = "matched",
        /// A connected queue pair for each peer, receives posted for each, and MPI's matching above.
        QueuePair = "queue-pair",
        /// As `queue-pair`, with one shared receive queue for all peers.
        QueuePairShared = "queue-pair-shared",
    }
}
