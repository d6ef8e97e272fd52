//! What is kept of messages that are announced.

use machine::PeerIndex;

use crate::request::{ReceiveKey, Way};

/// What an announcement says of the bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offer {
    /// The send's key at the sender.
    pub sender: u64,
    /// 0 where they cannot be read.
    pub address: u64,
    /// The sender copies fast, and lets them be read while it sends them.
    pub fast: bool,
}

impl Offer {
    /// The way of bytes that the sender was asked for.
    pub fn packets(&self) -> Way {
        if self.fast { Way::Both { sender: self.sender } } else { Way::Data }
    }
}

/// A message to be fetched from a peer's memory.
pub(crate) struct Read {
    pub peer: PeerIndex,
    pub key: ReceiveKey,
    pub offer: Offer,
    /// Up to here bytes are wanted. Those behind were read, where others come in packets; a read alone goes forward.
    pub upto: u64,
    /// Bytes that had come in packets when last looked at.
    pub seen: u64,
    /// Looks that find no further ones before the next read.
    pub patience: u8,
}

/// A message that has ended, of which the sender may still have packets under way.
pub(crate) struct Overtaken {
    pub peer: PeerIndex,
    pub left: u64,
}
