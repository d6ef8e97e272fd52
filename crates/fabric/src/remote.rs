//! Remote operations in progress: this endpoint's on peers' memory, and peers' on its own.

use endpoint::Request;
use machine::PeerIndex;
use serde::Serialize;
use slotmap::SlotMap;

use crate::object::Context;

slotmap::new_key_type! {
    pub struct Ticket;
    pub struct LeaseKey;
}

/// An operation begun by this endpoint.
pub struct Operation {
    pub context: Context,
    pub peer: PeerIndex,
    pub wishes: u8,
    /// The flags of its completion.
    pub flags: u64,
    pub length: usize,
    pub answer: Option<Request>,
    /// Length of a good answer, bytes.
    pub answers: u64,
    /// Number of the operation's engine requests that have not ended.
    pub pending: u8,
    pub error: i32,
    /// Ticket of deferred work; else 0.
    pub deferred: u32,
}

/// A part of a region that the engine reads or writes for a peer, too long for a copy.
pub struct Lease {
    pub peer: PeerIndex,
    pub ticket: u64,
    /// `None` once it was closed, since its key may be another's.
    pub region: Option<u64>,
    pub request: Option<Request>,
    /// The landing of a write.
    pub landing: Option<Landing>,
    /// Whether the region was closed and the initiator told.
    pub revoked: bool,
}

#[derive(Clone, Copy)]
pub struct Landing {
    pub length: usize,
    pub data: Option<u64>,
}

#[derive(Default)]
pub struct Remote {
    pub operations: SlotMap<Ticket, Operation>,
    pub leases: SlotMap<LeaseKey, Lease>,
    pub begun: Begun,
    loads: Vec<Load>,
}

/// Operations that the endpoint has begun on peers' memory, for its report.
#[derive(Default, Clone, Copy, Serialize)]
pub struct Begun {
    pub writes: u64,
    pub reads: u64,
    pub atomics: u64,
    /// Bytes of that memory.
    pub bytes: u64,
}

/// Operations in progress with one peer.
#[derive(Default, Clone, Copy)]
pub struct Load {
    /// Number of operations begun here.
    pub begun: usize,
    /// Number of engine requests that serve the peer's operations.
    pub served: usize,
}

impl Remote {
    pub fn load(&mut self, peer: PeerIndex) -> &mut Load {
        let at = peer.0 as usize;
        if self.loads.len() <= at {
            self.loads.resize(at + 1, Load::default());
        }
        &mut self.loads[at]
    }
}
