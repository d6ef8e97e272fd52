//! What the runtime knows of an offcode that runs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use offcode::manifest::Requirement;
use offcode::{Attributes, Manifest, OBSOLETE_TIME};

use crate::application::OffcodeId;
use crate::gang::Seated;
use crate::possible::{End, Facts};
use crate::switchboard::BridgeId;

pub(crate) struct Live {
    /// Of the instance.
    pub name: String,
    /// For each peer of its manifest the one that meets it.
    pub peers: Vec<Option<OffcodeId>>,
    pub manifest: Arc<Manifest>,
    pub seated: Seated,
    pub attributes: Attributes,
    pub facts: Facts,
    /// Of its channels.
    pub ends: Vec<End>,
    /// What stands for its ends here since it moved to where memory is not shared, by their numbers.
    pub bridges: Vec<BridgeId>,
    /// Its uses where it was before.
    pub before: u64,
    /// Who has the other end of a channel, by the channel's name.
    pub others: HashMap<String, String>,
    /// Messages of its channels that were lost as it moved.
    pub lost_in_moves: HashMap<String, u64>,
    /// Its use when last looked at, and since when it is unchanged.
    pub used: (u64, Instant),
}

impl Live {
    /// What it requires, and who met that when it was created.
    pub fn requirements(&self) -> impl Iterator<Item = (&Requirement, OffcodeId)> {
        self.manifest.software.peers.iter().zip(&self.peers).filter_map(|(required, peer)| Some((required, (*peer)?)))
    }

    pub fn obsolete_after(&self) -> Option<Duration> {
        self.attributes.get(OBSOLETE_TIME).and_then(|ms| ms.parse().ok()).map(Duration::from_millis)
    }
}
