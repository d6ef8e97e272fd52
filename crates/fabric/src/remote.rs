//! What is in progress of operations on memory of others, and of theirs on ours.

use endpoint::Request;
use machine::PeerIndex;
use slotmap::SlotMap;

use crate::object::Context;

slotmap::new_key_type! {
    pub struct Ticket;
    pub struct LeaseKey;
}

/// An operation that this endpoint has begun.
pub struct Operation {
    pub context: Context,
    pub peer: PeerIndex,
    pub wishes: u8,
    /// The flags of its completion.
    pub flags: u64,
    pub length: usize,
    pub answer: Option<Request>,
    /// Bytes of a good answer.
    pub answers: u64,
    /// Requests of the engine that belong to it and have not ended.
    pub pending: u8,
    pub error: i32,
    /// Of deferred work; else 0.
    pub deferred: u32,
}

/// A part of a region that the engine reads or writes for a peer: what is too long for a copy.
pub struct Lease {
    pub peer: PeerIndex,
    pub ticket: u64,
    /// `None`: it was closed, and its key may be another's.
    pub region: Option<u64>,
    pub request: Option<Request>,
    /// Of a write.
    pub landing: Option<Landing>,
    /// The region was closed, and the initiator was told.
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
    loads: Vec<Load>,
}

/// What is in progress with one peer.
#[derive(Default, Clone, Copy)]
pub struct Load {
    /// Operations begun here.
    pub begun: usize,
    /// Requests of the engine that serve the peer's operations.
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
