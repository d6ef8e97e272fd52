//! Messages that arrived before their receives.

use machine::{Fault, PeerIndex};

use crate::announced::Offer;
use crate::request::{from_wire, to_wire};
use crate::tag::Label;

/// A message that arrived before its receive.
pub(crate) enum Unexpected {
    /// `data` grows to `length` as packets come.
    Eager {
        length: u64,
        data: Vec<u8>,
    },
    Request {
        length: u64,
        offer: Offer,
    },
    /// Claimed; its sender died before all of it was here.
    Lost {
        length: u64,
    },
}

impl Unexpected {
    pub fn length(&self) -> u64 {
        match self {
            Unexpected::Eager { length, .. } | Unexpected::Request { length, .. } | Unexpected::Lost { length } => {
                *length
            }
        }
    }
}

slotmap::new_key_type! {
    /// A message taken out of the matching, for a receive that names it. Give it back by [`crate::Engine::receive_claimed`] or
    /// [`crate::Engine::discard`].
    pub struct Claim;
}

impl Claim {
    /// The claim as a number, to pass it to another process; [`Claim::from_bits`] of any other number names no message.
    pub fn to_bits(self) -> u64 {
        to_wire(self)
    }

    /// The claim that [`Claim::to_bits`] was made from.
    pub fn from_bits(bits: u64) -> Claim {
        from_wire(bits)
    }
}

/// The fault of a claim that was received or discarded before.
#[cold]
pub fn unknown_claim() -> Fault {
    Fault::new("claimed message", "it was received or discarded already", "use what `claim` gave once")
}

pub(crate) struct Claimed {
    pub peer: PeerIndex,
    pub label: Label,
    pub message: Unexpected,
}
