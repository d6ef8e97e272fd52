//! In which order the hub deals with its peers.

use std::fmt;
use std::str::FromStr;

use experiment::random::Random;
use machine::{Fault, Result};
use serde::{Deserialize, Serialize};

use super::named;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Peer after peer, again and again.
    RoundRobin,
    /// The same peers as often, shuffled.
    Random,
}

named!(Order, "order", [(RoundRobin, "round-robin"), (Random, "random")]);

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
