//! What the engine keeps for one peer. An idle peer costs this struct and no more.

use std::collections::VecDeque;

use machine::bounds::{ENGINE_ANSWERS, ENGINE_WIDENED};

use crate::config::LinkConfig;
use crate::reliability::Reliability;
use crate::request::{ClaimKey, ReceiveKey, SendKey};

/// A packet that is not part of the message stream.
#[derive(Clone, Copy)]
pub(crate) enum Control {
    Clear { sender: u64, receiver: u64 },
    Done { sender: u64 },
    Credit { messages: u32, bytes: u64 },
    Withdrawn { receiver: u64 },
}

/// Where the rest of an eager message goes.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    Receive(ReceiveKey),
    Unexpected(u32),
    Claimed(ClaimKey),
    /// The message was discarded.
    Nowhere,
}

/// An eager message of which `More` packets are still to come.
#[derive(Clone, Copy)]
pub(crate) struct Partial {
    pub target: Target,
    pub length: u64,
    pub got: u64,
}

/// What the next packet to a peer will be; see [`crate::Engine::plan`].
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

/// Unmatched messages of one peer that are ever allowed; about 100 bytes each where they are long.
pub(crate) const MOST_MESSAGES: u32 = ENGINE_WIDENED.each.count() as u32;
/// Of all peers beyond their first credit.
pub(crate) const MOST_WIDENED: u32 = ENGINE_WIDENED.total.count() as u32;
/// Packets of control that wait for one peer.
pub(crate) const MOST_ANSWERS: usize = ENGINE_ANSWERS.each.count();

/// The longest message whose length an eager packet can carry.
const EAGER_MOST: u64 = u32::MAX as u64;

pub(crate) struct Peer {
    pub config: LinkConfig,
    pub alive: bool,
    /// Reads of this peer's memory have failed: bytes move in packets.
    pub remote_read_closed: bool,
    pub reliability: Option<Reliability>,
    /// Listed among the peers that may have something to transmit.
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

    // Incoming.
    pub partial: Option<Partial>,
    /// Messages that the peer may leave unmatched here; grows where a receive waits behind a flood.
    pub allowance: u32,
    /// Unmatched here.
    pub held_messages: u32,
    pub held_bytes: u64,
    /// Matched since the last credit packet.
    pub freed_messages: u32,
    pub freed_bytes: u64,
}

impl Peer {
    pub fn new(mut config: LinkConfig) -> Self {
        config.eager_limit.0 = config.eager_limit.0.min(EAGER_MOST);
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
            partial: None,
            allowance: config.credit_messages,
            held_messages: 0,
            held_bytes: 0,
            freed_messages: 0,
            freed_bytes: 0,
            config,
        }
    }

    /// Payload bytes that fit a packet beside `header`.
    #[inline]
    pub fn room(&self, header: usize) -> usize {
        let sequencing = if self.reliability.is_some() { crate::wire::RELIABILITY_HEADER } else { 0 };
        self.config.mtu.0 as usize - sequencing - header
    }

    /// A message has left the unexpected state, or never entered it. Tells the peer once a quarter of the credit
    /// has come together.
    #[inline]
    pub fn free(&mut self, messages: u32, bytes: u64) {
        self.freed_messages += messages;
        self.freed_bytes += bytes;
        if self.freed_messages >= self.config.credit_messages.div_ceil(4)
            || self.freed_bytes >= self.config.credit_bytes.0.div_ceil(4).max(1)
        {
            if let Some(Control::Credit { messages, bytes }) = self.control.back_mut() {
                *messages = messages.saturating_add(self.freed_messages);
                *bytes = bytes.saturating_add(self.freed_bytes);
            } else {
                self.control.push_back(Control::Credit { messages: self.freed_messages, bytes: self.freed_bytes });
            }
            self.freed_messages = 0;
            self.freed_bytes = 0;
        }
    }

    /// The peer may have no credit left, as far as is known here.
    #[inline]
    pub fn is_tight(&self) -> bool {
        self.held_messages + self.freed_messages >= self.allowance
    }

    /// Doubles the allowance, as far as there are `left` to give, and tells the peer, with whatever else has come together.
    /// How many messages were added.
    pub fn widen(&mut self, left: u32) -> u32 {
        let more = self.allowance.min(MOST_MESSAGES.saturating_sub(self.allowance)).min(left);
        self.allowance += more;
        let messages = self.freed_messages + more;
        if messages > 0 {
            self.control.push_back(Control::Credit { messages, bytes: self.freed_bytes });
            (self.freed_messages, self.freed_bytes) = (0, 0);
        }
        more
    }

    pub fn is_quiet(&self) -> bool {
        self.control.is_empty()
            && self.messages.is_empty()
            && self.streaming.is_empty()
            && self.reliability.as_ref().is_none_or(Reliability::is_quiet)
    }
}

#[cfg(test)]
mod tests {
    use machine::Bytes;

    use super::*;

    #[test]
    fn what_peers_may_leave_unmatched_grows_within_a_total() {
        let credit_messages = 1000;
        let config = LinkConfig {
            mtu: Bytes(1500),
            eager_limit: Bytes(500),
            remote_read: false,
            credit_messages,
            credit_bytes: Bytes(4000),
            reliability: None,
        };
        let mut left = MOST_WIDENED;
        let mut peers: Vec<Peer> = (0..40).map(|_| Peer::new(config.clone())).collect();
        for _ in 0..20 {
            for peer in &mut peers {
                left -= peer.widen(left);
            }
        }
        assert_eq!(left, 0);
        assert!(peers.iter().all(|peer| peer.allowance <= MOST_MESSAGES));
        let widened: u32 = peers.iter().map(|peer| peer.allowance - credit_messages).sum();
        assert_eq!(widened, MOST_WIDENED);
    }
}
