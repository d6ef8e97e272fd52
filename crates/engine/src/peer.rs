//! State of one peer. An idle peer costs this struct and no more.

use std::collections::VecDeque;

use machine::Bytes;
use machine::bounds::{ENGINE_ANSWERS, ENGINE_WIDENED};

use crate::config::LinkConfig;
use crate::copies::Copies;
use crate::reliability::Reliability;
use crate::request::{ReceiveKey, SendKey};
use crate::tag::Space;
use crate::unexpected::Claim;

/// The peer broke the protocol.
pub(crate) struct Violation;

/// A packet that is not part of the message stream.
#[derive(Clone, Copy)]
pub(crate) enum Control {
    Clear { sender: u64, receiver: u64 },
    Done { sender: u64 },
    Credit { messages: u32, bytes: u64, announce: bool },
    Withdrawn { receiver: u64 },
}

/// The destination of the rest of an eager message.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    Receive(ReceiveKey),
    Unexpected(u32),
    Claimed(Claim),
    /// None: the message was discarded.
    Nowhere,
}

/// An eager message of which `More` packets are still to come.
#[derive(Clone, Copy)]
pub(crate) struct Partial {
    pub target: Target,
    pub length: u64,
    pub got: u64,
}

/// The next packet to a peer; see [`crate::Engine::plan`].
#[derive(Clone, Copy)]
pub(crate) enum Plan {
    Resend { place: usize },
    Control,
    Eager { send: SendKey, payload: usize },
    More { send: SendKey, payload: usize },
    Request { send: SendKey },
    Data { send: SendKey, payload: usize },
    Acknowledge,
}

/// Most control packets that wait for one peer.
pub(crate) const MOST_ANSWERS: usize = ENGINE_ANSWERS.each.count();
/// Most unmatched messages that one peer is ever allowed; about 100 bytes each where they are long.
pub(crate) const MOST_MESSAGES: u32 = ENGINE_WIDENED.each.count() as u32;
/// Most messages that all peers together are allowed beyond their first credit.
pub(crate) const MOST_WIDENED: u32 = ENGINE_WIDENED.total.count() as u32;

/// The longest message whose length an eager packet can carry.
const EAGER_MOST: u64 = u32::MAX as u64;

pub(crate) struct Peer {
    pub config: LinkConfig,
    pub alive: bool,
    /// Whether reads of this peer's memory have failed: bytes move in packets.
    pub remote_read_closed: bool,
    pub reliability: Option<Reliability>,
    /// Whether the peer is listed among those that may have something to transmit.
    pub ready: bool,
    pub plan: Option<Plan>,

    // Outgoing.
    pub control: VecDeque<Control>,
    /// Sends in order; the first may be partly written.
    pub messages: VecDeque<SendKey>,
    /// Rendezvous messages that the peer is ready for.
    pub streaming: VecDeque<SendKey>,
    pub favour_streaming: bool,
    pub credit_messages: u32,
    pub credit_bytes: u64,
    /// Whether the peer has asked for announcements of messages without credit for their bytes.
    pub announce: bool,
    /// Speed of copies; of use where [`LinkConfig::eager_near`] is larger than the usual limit.
    pub copies: Copies,
    /// Whether the first message waits for credit.
    pub starved: bool,
    /// Number of `messages` of other spaces than [`Space::Tagged`].
    pub untagged: u32,

    // Incoming.
    pub partial: Option<Partial>,
    /// Messages that the peer may leave unmatched here; grows where a receive waits behind a flood.
    pub allowance: u32,
    /// Unmatched messages held here.
    pub held_messages: u32,
    pub held_bytes: u64,
    /// Messages matched since the last credit packet.
    pub freed_messages: u32,
    pub freed_bytes: u64,
    /// A quarter of the credit: the peer is told of that much.
    pub due_messages: u32,
    pub due_bytes: u64,
    /// Whether the last credit packet asked the peer to announce.
    pub asked: bool,
}

impl Peer {
    pub fn new(mut config: LinkConfig) -> Self {
        config.eager_limit.0 = config.eager_limit.0.min(EAGER_MOST);
        config.eager_near = config.eager_near.map(|near| Bytes(near.0.min(EAGER_MOST)));
        Peer {
            alive: true,
            remote_read_closed: !config.remote_read,
            reliability: config.reliability.clone().map(Reliability::new),
            ready: false,
            plan: None,
            control: VecDeque::new(),
            messages: VecDeque::new(),
            streaming: VecDeque::new(),
            favour_streaming: false,
            credit_messages: config.credit_messages,
            credit_bytes: config.credit_bytes.0,
            announce: false,
            copies: Copies::NEW,
            starved: false,
            untagged: 0,
            partial: None,
            allowance: config.credit_messages,
            held_messages: 0,
            held_bytes: 0,
            freed_messages: 0,
            freed_bytes: 0,
            due_messages: config.credit_messages.div_ceil(4),
            due_bytes: config.credit_bytes.0.div_ceil(4).max(1),
            asked: false,
            config,
        }
    }

    /// Payload bytes that fit a packet beside `header`.
    #[inline]
    pub fn room(&self, header: usize) -> usize {
        let sequencing = if self.reliability.is_some() { crate::wire::RELIABILITY_HEADER } else { 0 };
        self.config.mtu.0 as usize - sequencing - header
    }

    /// Whether a message of `length` that nobody waits to see matched goes eagerly, if there is credit.
    #[inline(always)]
    pub fn is_eager(&self, length: u64) -> bool {
        length <= self.config.eager_limit.0 || self.is_eager_near(length)
    }

    #[cold]
    fn is_eager_near(&self, length: u64) -> bool {
        // A quarter of the credit is left to short messages.
        self.may_be_eager(length)
            && length + self.config.credit_bytes.0 / 4 <= self.credit_bytes
            && self.copies.are_fast()
    }

    /// Whether the way of such a message depends on how fast copies are.
    #[inline]
    pub fn may_be_eager(&self, length: u64) -> bool {
        length > self.config.eager_limit.0 && self.config.eager_near.is_some_and(|near| length <= near.0)
    }

    /// Takes the first message out of the queue.
    #[inline]
    pub fn pop_message(&mut self, space: Space) {
        self.messages.pop_front();
        self.untagged -= u32::from(space != Space::Tagged);
    }

    /// Notes that nothing could leave; whether a message has begun to wait since credit last came.
    pub fn starves(&mut self) -> bool {
        !self.messages.is_empty() && !std::mem::replace(&mut self.starved, true)
    }

    pub fn is_quiet(&self) -> bool {
        self.control.is_empty()
            && self.messages.is_empty()
            && self.streaming.is_empty()
            && self.reliability.as_ref().is_none_or(Reliability::is_quiet)
    }
}
