//! Memory per peer: computed from the structures, and measured at the allocator and in the process's pages.

use linux::accounting::{heap, resident};
use machine::{Bytes, Reading};
use serde::{Deserialize, Serialize};

use super::Semantics;

/// Memory of the hub's layer for each of its peers, without the port's own, which is the same for all layers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Footprint {
    pub semantics: Semantics,
    pub peers: u32,
    /// Memory by the sizes of one peer's structures.
    pub computed: Bytes,
    /// Growth of allocated memory while all peers were connected, per peer. Memory shared by all peers is in it, so that it
    /// tells of a peer where there are many.
    pub idle: Reading<Bytes>,
    /// Growth of resident memory, likewise; coarser, and pages resident before do not count again.
    pub resident: Reading<Bytes>,
    /// As `idle`, with [`ACTIVE_MESSAGES`] of [`ACTIVE_SIZE`] on their way to every peer.
    pub active: Reading<Bytes>,
}

/// Number of messages on their way to each peer of an active connection.
pub const ACTIVE_MESSAGES: u32 = 8;
pub const ACTIVE_SIZE: usize = 1000;

/// A reading of the memory before something is made.
pub struct Look {
    heap: Reading<Bytes>,
    resident: Reading<Bytes>,
}

/// Growth between two readings per peer.
fn growth(before: &Reading<Bytes>, after: Reading<Bytes>, peers: u32) -> Reading<Bytes> {
    match before.value() {
        Some(before) => after.map(|after| Bytes(after.0.saturating_sub(before.0).div_ceil(u64::from(peers)))),
        None => after,
    }
}

impl Footprint {
    pub fn look() -> Look {
        Look { heap: heap(), resident: resident() }
    }

    /// Notes the growth from idle connections to active ones.
    pub fn grown(&mut self, grown: Reading<Bytes>) {
        self.active = match (self.idle.value(), grown) {
            (Some(idle), Reading::Measured(grown)) => Reading::Measured(Bytes(idle.0 + grown.0)),
            (_, other) => other,
        };
    }
}

impl Look {
    /// The footprint, after the peers were connected.
    pub fn idle(&self, semantics: Semantics, peers: u32, computed: Bytes) -> Footprint {
        let now = Footprint::look();
        Footprint {
            semantics,
            peers,
            computed,
            idle: growth(&self.heap, now.heap, peers),
            resident: growth(&self.resident, now.resident, peers),
            active: Reading::absent("not measured over this port"),
        }
    }

    pub fn heap_growth(&self, peers: u32) -> Reading<Bytes> {
        growth(&self.heap, heap(), peers)
    }
}
