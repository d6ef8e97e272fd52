//! The state of a running offcode in the runtime.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use offcode::manifest::Requirement;
use offcode::{Attributes, Manifest, OBSOLETE_TIME};
use serde::{Deserialize, Serialize};

use crate::gang::Seated;
use crate::possible::{End, Facts};
use crate::switchboard::BridgeId;

/// An offcode that this runtime created; never used again after it was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OffcodeId(pub(crate) usize);

pub(crate) struct Live {
    /// The name of the instance.
    pub name: String,
    /// The offcode that meets each peer of its manifest.
    pub peers: Vec<Option<OffcodeId>>,
    pub manifest: Arc<Manifest>,
    pub seated: Seated,
    pub attributes: Attributes,
    pub facts: Facts,
    /// The ends of its channels.
    pub ends: Vec<End>,
    /// Bridges that stand for its ends here since it moved to where memory is not shared, by the ends' numbers.
    pub bridges: Vec<BridgeId>,
    /// Calls and messages that it was given at earlier places.
    pub before: u64,
    /// The party at the other end of each channel, by the channel's name.
    pub others: HashMap<String, String>,
    /// Messages lost in moves, by channel.
    pub lost_in_moves: HashMap<String, u64>,
    /// Calls and messages that it had been given at the last look, and the time since when that number stands.
    pub used: (u64, Instant),
}

impl Live {
    /// The requirements, each with the offcode that met it at creation.
    pub fn requirements(&self) -> impl Iterator<Item = (&Requirement, OffcodeId)> {
        self.manifest.software.peers.iter().zip(&self.peers).filter_map(|(required, peer)| Some((required, (*peer)?)))
    }

    pub fn obsolete_after(&self) -> Option<Duration> {
        self.attributes.get(OBSOLETE_TIME).and_then(|ms| ms.parse().ok()).map(Duration::from_millis)
    }
}
