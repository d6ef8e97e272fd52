//! Requests of the application, and how they end.

use slotmap::Key;

use crate::buffer::Buffer;
use crate::matching::{Place, Posted};
use crate::tag::{Envelope, Label, Source, TagSelector};
use machine::port::Shared;
use machine::{Fault, PeerIndex};

slotmap::new_key_type! {
    /// Key of a send, for those who carry it out.
    pub struct SendKey;
    /// Key of a receive.
    pub struct ReceiveKey;
}

/// A request in progress; names nothing once its completion was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Request {
    /// A send.
    Send(SendKey),
    /// A receive.
    Receive(ReceiveKey),
    /// A numbered send that ended at once.
    Short(u64),
}

/// Direction in which a request moved bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the application's buffer to the peer.
    Send,
    /// From a peer into the application's buffer.
    Receive,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Sent (the buffer may be used again), or received whole.
    Done,
    /// The message was longer than the buffer: its first bytes are there, the rest is lost.
    Truncated,
    /// The application withdrew the request, or took the buffer of a send back, before the message had left whole.
    Cancelled,
    /// The peer died, or broke the protocol, before the request could end.
    PeerDead,
    /// The sender took the message back before all of it was here.
    Withdrawn,
}

impl Status {
    /// Status of a receive into `buffer` that has all of its message.
    #[inline]
    pub fn of<B: Buffer>(envelope: &Envelope, buffer: &B) -> Status {
        if envelope.length > buffer.length() as u64 { Status::Truncated } else { Status::Done }
    }
}

/// A request that has ended, with its buffer.
#[derive(Debug)]
pub struct Completion<B> {
    /// The request that ended.
    pub request: Request,
    /// The number that the application passed with the request.
    pub context: u64,
    /// Direction of the request.
    pub direction: Direction,
    /// The message. For a receive that ended without one: the peer named (or 0), tag and length 0.
    pub envelope: Envelope,
    /// How it ended.
    pub status: Status,
    /// The buffer that the application gave with the request.
    pub buffer: B,
}

/// A send that has not ended.
pub(crate) struct SendRequest<B> {
    pub context: u64,
    pub peer: PeerIndex,
    pub label: Label,
    pub buffer: B,
    /// Announced whatever its length, so that the receiver's answer proves the match.
    pub confirmed: bool,
    /// Whether bytes of packets in flight are in the buffer alone.
    pub stays: bool,
    /// The next packet, where it was made ahead.
    pub made: Option<Shared>,
    /// Bytes of `buffer` handed to the port.
    pub written: usize,
    /// Whether the message was announced.
    pub requested: bool,
    /// Whether the receiver may read the bytes beside the packets; it then ends the send.
    pub fast: bool,
    /// Receiver's key, once it asked for packets; else 0.
    pub receiver: u64,
    /// Whether the buffer was taken back: the receiver learns it when it asks for packets.
    pub withdrawn: bool,
}

impl<B: Buffer> SendRequest<B> {
    #[inline]
    pub fn length(&self) -> usize {
        self.buffer.length()
    }

    #[inline]
    pub fn envelope(&self) -> Envelope {
        Envelope::new(self.peer, self.label, self.length() as u64)
    }
}

/// A receive that has not ended.
pub(crate) struct ReceiveRequest<B> {
    pub context: u64,
    pub source: Source,
    pub selector: TagSelector,
    /// `None` only in a vacant slot.
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
        let (source, selector, state) = (Source::Any, TagSelector::any(), ReceiveState::Posted);
        ReceiveRequest { context: 0, source, selector, buffer: None, state, place: Place::default() }
    }
}

impl<B> ReceiveRequest<B> {
    #[inline]
    pub fn buffer(&mut self) -> &mut B {
        self.buffer.as_mut().expect("a request in progress has its buffer")
    }

    pub fn is_posted(&self) -> bool {
        matches!(self.state, ReceiveState::Posted)
    }

    /// Whether only this peer can end the receive.
    pub fn waits_for(&self, peer: PeerIndex) -> bool {
        match &self.state {
            ReceiveState::Posted => self.source == Source::Peer(peer),
            ReceiveState::Matched(matched) => matched.envelope.peer == peer,
        }
    }
}

pub(crate) enum ReceiveState {
    /// In the posted queue.
    Posted,
    /// Matched, with bytes still to come. Boxed, since most messages come whole and never are in this state.
    Matched(Box<Match>),
}

pub(crate) struct Match {
    pub envelope: Envelope,
    pub got: u64,
    pub way: Delivery,
}

impl ReceiveState {
    #[inline]
    pub fn matched(envelope: Envelope, got: u64, way: Delivery) -> Self {
        ReceiveState::Matched(Box::new(Match { envelope, got, way }))
    }
}

/// How the bytes of a matched message come; bytes that come another way are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// In `Eager` and `More` packets.
    Eager,
    /// Out of the peer's memory.
    Read,
    /// In `Data` packets.
    Data,
    /// In `Data` packets, and perhaps also by reads from the memory of the send `sender`, which the receiver ends.
    Both { sender: u64 },
}

/// A key as a number in packets.
pub fn to_wire(key: impl Key) -> u64 {
    key.data().as_ffi()
}

/// The key of [`to_wire`]'s number; any other number gives a key that names nothing.
pub fn from_wire<K: Key>(bits: u64) -> K {
    slotmap::KeyData::from_ffi(bits).into()
}

/// The fault of a peer that does not exist.
#[cold]
pub fn unknown_peer(peer: PeerIndex) -> Fault {
    Fault::new(format!("peer {}", peer.0), "no such peer was added to this endpoint", "use an index that adding gave")
}
