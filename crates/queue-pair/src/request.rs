//! Requests of the MPI layer, and messages that arrived before their receives.

use engine::matching::{Place, Posted};
use engine::{Envelope, Label, Source};
use machine::PeerIndex;

use crate::memory::MemoryKey;

/// A message that arrived before its receive.
pub(crate) enum Unexpected {
    Eager(Vec<u8>),
    Rendezvous { length: u64, sender: u64 },
}

impl Unexpected {
    pub fn length(&self) -> u64 {
        match self {
            Unexpected::Eager(bytes) => bytes.len() as u64,
            Unexpected::Rendezvous { length, .. } => *length,
        }
    }
}

pub(crate) struct SendRequest<B> {
    pub context: u64,
    pub envelope: Envelope,
    /// `None` while the buffer is registered.
    pub buffer: Option<B>,
    /// Whether the receiver is asked first.
    pub by_request: bool,
    /// Whether it was asked.
    pub requested: bool,
    pub registered: Option<MemoryKey>,
}

pub(crate) struct ReceiveRequest<B> {
    pub context: u64,
    pub source: Source,
    pub buffer: Option<B>,
    pub state: ReceiveState,
    pub place: Place,
}

impl<B> Posted for ReceiveRequest<B> {
    #[inline(always)]
    fn place(&mut self) -> &mut Place {
        &mut self.place
    }
}

impl<B> Default for ReceiveRequest<B> {
    fn default() -> Self {
        ReceiveRequest::new(0, Source::Any, None)
    }
}

impl<B> ReceiveRequest<B> {
    pub fn new(context: u64, source: Source, buffer: Option<B>) -> Self {
        ReceiveRequest { context, source, buffer, state: ReceiveState::Posted, place: Place::default() }
    }

    pub fn is_posted(&self) -> bool {
        matches!(self.state, ReceiveState::Posted)
    }

    /// Whether only this peer can end the receive.
    pub fn waits_for(&self, peer: PeerIndex) -> bool {
        match self.state {
            ReceiveState::Posted => self.source == Source::Peer(peer),
            ReceiveState::Written { envelope, .. } => envelope.peer == peer,
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) enum ReceiveState {
    Posted,
    /// The peer writes into the buffer registered under this key.
    Written {
        envelope: Envelope,
        key: MemoryKey,
    },
}

/// A message that was taken out of the matching.
pub(crate) struct Claimed {
    pub peer: PeerIndex,
    pub label: Label,
    pub message: Unexpected,
}
