//! Records of announced messages (rendezvous).

use machine::PeerIndex;

use crate::request::{Delivery, ReceiveKey};

/// The sender's part of an announcement: where the bytes are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offer {
    /// The send's key at the sender.
    pub sender: u64,
    /// Address in the sender's memory; 0 where the bytes cannot be read.
    pub address: u64,
    /// Whether the sender copies fast and lets the bytes be read while it sends them.
    pub fast: bool,
}

impl Offer {
    /// How the bytes come once the sender was asked for packets.
    pub fn packets(&self) -> Delivery {
        if self.fast { Delivery::Both { sender: self.sender } } else { Delivery::Data }
    }
}

/// A message to be fetched from a peer's memory.
pub(crate) struct Read {
    pub peer: PeerIndex,
    pub key: ReceiveKey,
    pub offer: Offer,
    /// End of the bytes still wanted. A read alone goes forward; beside packets, reads go backward from the message's end.
    pub upto: u64,
    /// Bytes that had come in packets at the last look.
    pub seen: u64,
    /// Further looks without new packets before the next read.
    pub patience: u8,
}

/// A message that was read whole while packets of it, with `left` bytes, may still be under way.
pub(crate) struct Overtaken {
    pub peer: PeerIndex,
    pub left: u64,
}
