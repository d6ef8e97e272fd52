//! The order in which the hub deals with its peers.

use rounds::random::Random;
use serde::{Deserialize, Serialize};

machine::named! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Order ("order") {
        /// All peers in turn, again and again.
        RoundRobin = "round-robin",
        /// The same peers as often, shuffled.
        Random = "random",
    }
}

impl Order {
    /// `each` messages of every peer.
    pub fn sequence(self, peers: u32, each: u32, seed: u64) -> Vec<u32> {
        let mut sequence: Vec<u32> = (0..each).flat_map(|_| 0..peers).collect();
        if self == Order::Random {
            Random::new(seed).shuffle(&mut sequence);
        }
        sequence
    }
}
