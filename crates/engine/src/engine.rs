//! The engine's state, and the requests that an application makes.

use std::collections::{HashMap, VecDeque};

use machine::{Nanoseconds, PeerIndex};
use slotmap::SlotMap;

use crate::announced::{Overtaken, Read};
use crate::buffer::Buffer;
use crate::config::LinkConfig;
use crate::matching::{PostedQueue, UnexpectedQueue};
use crate::peer::{Control, MOST_WIDENED, Peer, Target};
use crate::reliability::Due;
use crate::request::{
    Completion, Direction, ReceiveKey, ReceiveRequest, ReceiveState, Request, SendKey, SendRequest, Status,
};
use crate::slots::Slots;
use crate::spares::Spares;
use crate::tag::{Envelope, Label, Source, Space, TagSelector};
use crate::unexpected::{Claim, Claimed, Unexpected};
use crate::wire::LARGEST_HEADER;

/// Events counted by an engine; for evidence, not for control.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counters {
    /// Packets handed to the port, retransmissions included.
    pub packets_sent: u64,
    /// Packets that the port delivered from living peers.
    pub packets_received: u64,
    /// Packets dropped because they broke the wire format or the protocol.
    pub malformed: u64,
    /// Packets dropped because they named another session.
    pub other_session: u64,
    /// Packets dropped because they had been received before or lay beyond the window.
    pub duplicates: u64,
    /// Packets that arrived before an earlier one and were kept until it came.
    pub out_of_order: u64,
    /// Packets sent again because they count as lost.
    pub retransmitted: u64,
    /// Packets sent only to acknowledge.
    pub acknowledgements: u64,
    /// Most messages that ever waited unmatched.
    pub unexpected_most: u64,
    /// Messages that were announced to their receiver (rendezvous).
    #[serde(default)]
    pub announced: u64,
    /// Times that a peer's allowance of unmatched messages was doubled, for a receive that waited behind them.
    pub widened: u64,
    /// Times that the messages to a peer began to wait for credit, at first or after credit came that did not suffice.
    #[serde(default)]
    pub credit_waits: u64,
    /// Rendezvous messages fetched from the sender's memory.
    pub single_copies: u64,
    /// Fetches that failed; the bytes then came in packets.
    pub reads_refused: u64,
    /// Messages sent, by the number of binary digits of their size; the last class holds all larger ones.
    pub messages: [u64; SIZES],
    /// Bytes of those messages, by the same classes.
    pub message_bytes: [u64; SIZES],
}

/// Number of classes of message sizes: 0, 1, 2 to 3, 4 to 7 and so on.
pub const SIZES: usize = 32;

impl Counters {
    /// Counts a message of this length as sent.
    #[inline]
    pub fn count_message(&mut self, length: u64) {
        let class = ((u64::BITS - length.leading_zeros()) as usize).min(SIZES - 1);
        self.messages[class] += 1;
        self.message_bytes[class] = self.message_bytes[class].wrapping_add(length);
    }
}

/// The refusal of a request because there is no such peer; it gives the buffer back.
#[derive(Debug)]
pub struct Refusal<B> {
    /// The peer that was named.
    pub peer: PeerIndex,
    /// The buffer of the request that was not made.
    pub buffer: B,
}

/// The message engine of one endpoint; the crate's documentation shows how a driver runs it. `B` is the type of a
/// message's memory, a [`Buffer`]: it is given to the engine with the request and comes back with the completion.
pub struct Engine<B> {
    pub(crate) peers: Vec<Peer>,
    pub(crate) sends: SlotMap<SendKey, SendRequest<B>>,
    pub(crate) receives: Slots<ReceiveKey, ReceiveRequest<B>>,
    pub(crate) posted: PostedQueue,
    pub(crate) unexpected: UnexpectedQueue<Unexpected>,
    pub(crate) claimed: SlotMap<Claim, Claimed>,
    pub(crate) reads: VecDeque<Read>,
    /// Overtaken messages, by the receives that they ended.
    pub(crate) overtaken: HashMap<ReceiveKey, Overtaken>,
    pub(crate) spares: Spares,
    pub(crate) bounce: Vec<u8>,
    pub(crate) ready: VecDeque<u32>,
    pub(crate) completions: VecDeque<Completion<B>>,
    /// Sends of which all packets were written and which have not ended.
    pub(crate) departed: Vec<SendKey>,
    pub(crate) short_sends: u64,
    next_timeout: Option<Nanoseconds>,
    /// Half of the fewest messages that any peer may leave unmatched.
    pub(crate) half_credit: u32,
    /// Peers whose unmatched messages hold more than half of their credit for bytes.
    pub(crate) half_filled: usize,
    /// Messages that peers may still be allowed beyond their credit.
    pub(crate) widening: u32,
    pub(crate) counters: Counters,
}

impl<B: Buffer> Default for Engine<B> {
    fn default() -> Self {
        Engine::new()
    }
}

impl<B: Buffer> Engine<B> {
    /// Bytes of memory that an idle peer takes.
    pub const BYTES_PER_PEER: usize = size_of::<Peer>();

    /// An engine without peers.
    pub fn new() -> Self {
        Engine {
            peers: Vec::new(),
            sends: SlotMap::with_key(),
            receives: Slots::new(),
            posted: PostedQueue::new(),
            unexpected: UnexpectedQueue::new(),
            claimed: SlotMap::with_key(),
            reads: VecDeque::new(),
            overtaken: HashMap::new(),
            spares: Spares::default(),
            bounce: Vec::new(),
            ready: VecDeque::new(),
            completions: VecDeque::new(),
            departed: Vec::new(),
            short_sends: 0,
            next_timeout: None,
            half_credit: u32::MAX,
            half_filled: 0,
            widening: MOST_WIDENED,
            counters: Counters::default(),
        }
    }

    /// Adds the next peer. Peers are numbered from 0 in the order added.
    ///
    /// # Panics
    /// If the link's packets are too small for the engine's headers, there is no credit for a single message, or the
    /// window is not within 1 to 65,536 packets.
    pub fn add_peer(&mut self, config: LinkConfig) -> PeerIndex {
        let headers = LARGEST_HEADER + if config.reliability.is_some() { crate::wire::RELIABILITY_HEADER } else { 0 };
        assert!(config.mtu.0 as usize > headers, "a packet of {} cannot carry the engine's headers", config.mtu);
        assert!(config.credit_messages > 0, "without credit no message could ever be sent");
        let window = config.reliability.as_ref().map_or(1, |reliability| reliability.window);
        assert!((1..=1 << 16).contains(&window), "a window of {window} packets is not within 1 to 65,536");
        self.half_credit = self.half_credit.min(config.credit_messages / 2);
        self.peers.push(Peer::new(config));
        PeerIndex((self.peers.len() - 1) as u32)
    }

    /// Number of peers added.
    #[inline]
    pub fn peers(&self) -> usize {
        self.peers.len()
    }

    /// Events counted since the engine was made.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether the peer exists and has not died.
    pub fn is_alive(&self, peer: PeerIndex) -> bool {
        self.peers.get(peer.0 as usize).is_some_and(|link| link.alive)
    }

    /// Whether every send has ended, nothing is queued for any living peer, all that was sent has arrived and the peers
    /// were told of all that arrived here. On unreliable ports the last acknowledgement may be lost: drive the engine
    /// on until the peers have been silent for a few round trips; otherwise they may take the closed port for a dead
    /// peer.
    pub fn is_quiet(&self) -> bool {
        self.sends.is_empty() && self.reads.is_empty() && self.peers.iter().all(|link| !link.alive || link.is_quiet())
    }

    /// Whether everything that has left has arrived, and nothing is about to leave. Unlike [`Engine::is_quiet`] it does
    /// not wait for rendezvous messages that no receive has matched yet, so that an endpoint can close.
    pub fn is_flushed(&self) -> bool {
        self.peers.iter().all(|link| !link.alive || link.is_quiet())
    }

    /// The unexpected message that a receive would take.
    fn look(&mut self, source: Source, selector: TagSelector) -> Option<u32> {
        let found = self.unexpected.find(source, selector);
        if found.is_none() {
            self.relieve_senders(source);
        }
        found
    }

    /// Numbers of receives that wait for a message and of messages that wait for a receive.
    pub fn queue_lengths(&self) -> (usize, usize) {
        (self.posted.len(), self.unexpected.len())
    }

    /// Payload of the messages that wait for a receive; never more than the credit given to all peers.
    pub fn unexpected_bytes(&self) -> u64 {
        self.peers.iter().map(|link| link.held_bytes).sum()
    }

    /// Sends the whole of `buffer`. Messages to one peer are matched in the order sent. A send to a dead peer
    /// completes as [`Status::PeerDead`].
    #[inline]
    pub fn send(
        &mut self,
        peer: PeerIndex,
        label: impl Into<Label>,
        buffer: B,
        context: u64,
    ) -> Result<Request, Refusal<B>> {
        self.send_as(peer, label.into(), buffer, context, false)
    }

    /// Sends `buffer` such that the completion proves that the receiver has matched the message and has all of it.
    pub fn send_confirmed(
        &mut self,
        peer: PeerIndex,
        label: impl Into<Label>,
        buffer: B,
        context: u64,
    ) -> Result<Request, Refusal<B>> {
        self.send_as(peer, label.into(), buffer, context, true)
    }

    #[inline]
    fn send_as(
        &mut self,
        peer: PeerIndex,
        label: Label,
        buffer: B,
        context: u64,
        confirmed: bool,
    ) -> Result<Request, Refusal<B>> {
        let Some(link) = self.peers.get_mut(peer.0 as usize) else {
            return Err(Refusal { peer, buffer });
        };
        self.counters.count_message(buffer.length() as u64);
        let request = SendRequest {
            context,
            peer,
            label,
            buffer,
            confirmed,
            written: 0,
            requested: false,
            receiver: 0,
            withdrawn: false,
            stays: false,
            fast: false,
            made: None,
        };
        let key = self.sends.insert(request);
        if link.alive {
            link.messages.push_back(key);
            link.untagged += u32::from(label.space != Space::Tagged);
            self.mark_ready(peer);
        } else {
            self.finish_send(key, Status::PeerDead);
        }
        Ok(Request::Send(key))
    }

    /// The message that a receive of `source` and `selector` would take now, left where it is.
    pub fn probe(&mut self, source: Source, selector: TagSelector) -> Option<Envelope> {
        let node = self.look(source, selector)?;
        let (peer, label, message) = self.unexpected.get(node);
        Some(Envelope::new(peer, label, message.length()))
    }

    /// Takes the message that [`Engine::probe`] would name out of the matching: no other receive gets it.
    pub fn claim(&mut self, source: Source, selector: TagSelector) -> Option<(Envelope, Claim)> {
        let node = self.look(source, selector)?;
        let (peer, label, message) = self.unexpected.remove(node);
        let envelope = Envelope::new(peer, label, message.length());
        let claim = self.claimed.insert(Claimed { peer, label, message });
        if let Some(partial) = &mut self.peers[peer.0 as usize].partial
            && matches!(partial.target, Target::Unexpected(at) if at == node)
        {
            partial.target = Target::Claimed(claim);
        }
        Some((envelope, claim))
    }

    /// Receives the claimed message into `buffer`; the buffer comes back where the claim was given back before.
    pub fn receive_claimed(&mut self, claim: Claim, buffer: B, context: u64) -> Result<Request, B> {
        let Some(Claimed { peer, label, message }) = self.claimed.remove(claim) else { return Err(buffer) };
        let source = Source::Peer(peer);
        let selector = TagSelector::exactly(label.tag).within(label.space);
        let key = self.new_receive(source, selector, buffer, context);
        if let Some(partial) = &mut self.peers[peer.0 as usize].partial
            && matches!(partial.target, Target::Claimed(at) if at == claim)
        {
            partial.target = Target::Receive(key);
        }
        self.give(key, peer, label, message);
        Ok(Request::Receive(key))
    }

    /// Drops the claimed message; its sender takes it for received. False where the claim was given back before.
    pub fn discard(&mut self, claim: Claim) -> bool {
        let Some(Claimed { peer, label, message }) = self.claimed.remove(claim) else { return false };
        let link = &mut self.peers[peer.0 as usize];
        if let Some(partial) = &mut link.partial
            && matches!(partial.target, Target::Claimed(at) if at == claim)
        {
            partial.target = Target::Nowhere;
        }
        self.release_held(peer, label.space, &message);
        if let Unexpected::Request { offer, .. } = message {
            self.peers[peer.0 as usize].control.push_back(Control::Done { sender: offer.sender });
            self.mark_ready(peer);
        }
        true
    }

    /// A request in progress that was made with `context`; of several, one that can still be withdrawn. Walks all
    /// requests.
    pub fn find(&self, context: u64) -> Option<Request> {
        let receives = self.receives.iter().filter(|(_, receive)| receive.context == context);
        let receive = receives.max_by_key(|(_, receive)| receive.is_posted()).map(|(key, _)| Request::Receive(key));
        let send = || self.sends.iter().find(|(_, send)| send.context == context).map(|(key, _)| Request::Send(key));
        receive.or_else(send)
    }

    /// Withdraws a receive that has no message yet, or a send of which nothing has left. It then completes as
    /// [`Status::Cancelled`]. False if it is too late, or the request has ended.
    pub fn cancel(&mut self, request: Request) -> bool {
        match request {
            Request::Receive(key) if self.receives.get(key).is_some_and(ReceiveRequest::is_posted) => {
                self.end_receive(key, Status::Cancelled);
                true
            }
            Request::Send(key) => match self.sends.get(key) {
                Some(send) if send.written == 0 && !send.requested => {
                    let link = &mut self.peers[send.peer.0 as usize];
                    let Some(place) = link.messages.iter().position(|&queued| queued == key) else { return false };
                    link.messages.remove(place);
                    link.untagged -= u32::from(send.label.space != Space::Tagged);
                    link.plan = None;
                    // The messages behind it may need less credit, or none.
                    let peer = send.peer;
                    self.finish_send(key, Status::Cancelled);
                    self.mark_ready(peer);
                    true
                }
                _ => false,
            },
            Request::Receive(_) | Request::Short(_) => false,
        }
    }

    /// Whether [`Engine::next_completion`] has one.
    #[inline]
    pub fn has_ended(&self) -> bool {
        !self.completions.is_empty()
    }

    /// Whether nothing has ended and nothing waits to leave or to be fetched.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.completions.is_empty() && self.ready.is_empty() && self.reads.is_empty() && self.departed.is_empty()
    }

    /// Takes the request that ended first of those not taken yet; `None` where there is none. Does
    /// [`Engine::end_departed`] before.
    #[inline]
    pub fn next_completion(&mut self) -> Option<Completion<B>> {
        self.end_departed();
        self.completions.pop_front()
    }

    /// When [`Engine::handle_timeout`] must be called at the latest; `None` on reliable ports.
    #[inline]
    pub fn next_timeout(&self) -> Option<Nanoseconds> {
        self.next_timeout
    }

    /// Retransmits, acknowledges and gives up what is due at `now`.
    pub fn handle_timeout(&mut self, now: Nanoseconds) {
        self.next_timeout = None;
        for index in 0..self.peers.len() as u32 {
            let peer = PeerIndex(index);
            let link = &mut self.peers[index as usize];
            let Some(reliability) = link.reliability.as_mut().filter(|_| link.alive) else { continue };
            match reliability.handle_timeout(now) {
                Due::Nothing => {}
                Due::Transmit => self.mark_ready(peer),
                Due::Dead => self.peer_dead(peer),
            }
            self.watch(peer);
        }
    }

    /// The peer's process has ended: everything that waits for it ends as [`Status::PeerDead`]. Messages that had
    /// arrived whole can still be received.
    pub fn peer_dead(&mut self, peer: PeerIndex) {
        let Some(link) = self.peers.get_mut(peer.0 as usize).filter(|link| link.alive) else { return };
        link.alive = false;
        link.control.clear();
        link.messages.clear();
        link.untagged = 0;
        link.streaming.clear();
        link.plan = None;
        link.reliability = None;
        let held = link.held_bytes;
        if let Some(partial) = link.partial.take() {
            match partial.target {
                Target::Unexpected(node) => {
                    self.set_held(peer, held - partial.length);
                    self.unexpected.remove(node);
                }
                Target::Claimed(claim) => {
                    self.set_held(peer, held - partial.length);
                    self.claimed[claim].message = Unexpected::Lost { length: partial.length };
                }
                Target::Receive(_) | Target::Nowhere => {}
            }
        }
        for claimed in self.claimed.values_mut().filter(|claimed| claimed.peer == peer) {
            if let Unexpected::Request { length, .. } = claimed.message {
                claimed.message = Unexpected::Lost { length };
            }
        }
        self.reads.retain(|read| read.peer != peer);
        self.overtaken.retain(|_, overtaken| overtaken.peer != peer);

        let sends = self.sends.iter().filter(|(_, send)| send.peer == peer).map(|(key, _)| key);
        sends.collect::<Vec<_>>().into_iter().for_each(|key| self.finish_send(key, Status::PeerDead));
        let receives = self.receives.iter().filter(|(_, receive)| receive.waits_for(peer)).map(|(key, _)| key);
        for key in receives.collect::<Vec<_>>() {
            self.end_receive(key, Status::PeerDead);
        }
        self.unexpected.drop_from(peer, |message| matches!(message, Unexpected::Request { .. }));
    }

    /// Ends a receive as far as it has come.
    fn end_receive(&mut self, key: ReceiveKey, status: Status) {
        let Some(receive) = self.receives.get(key) else { return };
        let envelope = match &receive.state {
            ReceiveState::Posted => Envelope::nothing(receive.source, receive.selector.space),
            ReceiveState::Matched(matched) => matched.envelope,
        };
        if receive.is_posted() {
            self.posted.remove(&mut self.receives, key);
        }
        self.finish_receive(key, envelope, status);
    }

    /// The peer's host refused a packet. A few of these in a row, with nothing heard between, and the peer is dead.
    pub fn peer_refused(&mut self, peer: PeerIndex) {
        let dead = self
            .peers
            .get_mut(peer.0 as usize)
            .and_then(|link| link.reliability.as_mut())
            .is_some_and(|reliability| reliability.refused() == Due::Dead);
        if dead {
            self.peer_dead(peer);
        }
    }

    #[inline]
    pub(crate) fn mark_ready(&mut self, peer: PeerIndex) {
        let link = &mut self.peers[peer.0 as usize];
        if !link.ready && link.alive {
            link.ready = true;
            self.ready.push_back(peer.0);
        }
    }

    /// Makes sure that the peer's next deadline is not missed.
    pub(crate) fn watch(&mut self, peer: PeerIndex) {
        let deadline = self.peers[peer.0 as usize].reliability.as_ref().and_then(|r| r.next_timeout());
        self.next_timeout = match (self.next_timeout, deadline) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }

    #[inline]
    pub(crate) fn finish_send(&mut self, key: SendKey, status: Status) {
        let Some(send) = self.sends.remove(key) else { return };
        let envelope = send.envelope();
        let SendRequest { context, buffer, .. } = send;
        let (request, direction) = (Request::Send(key), Direction::Send);
        self.completions.push_back(Completion { request, context, direction, envelope, status, buffer });
    }

    #[inline]
    pub(crate) fn finish_receive(&mut self, key: ReceiveKey, envelope: Envelope, status: Status) {
        if let Some(receive) = self.receives.remove(key) {
            self.received(key, receive, envelope, status);
        }
    }

    #[inline]
    pub(crate) fn received(&mut self, key: ReceiveKey, receive: ReceiveRequest<B>, envelope: Envelope, status: Status) {
        let ReceiveRequest { context, buffer: Some(buffer), .. } = receive else { return };
        let (request, direction) = (Request::Receive(key), Direction::Receive);
        self.completions.push_back(Completion { request, context, direction, envelope, status, buffer });
    }
}
