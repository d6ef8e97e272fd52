//! MPI over queue pairs, as an application holds it, with the calls of the engine's endpoint.

use std::collections::{HashMap, VecDeque};

use engine::matching::{PostedQueue, UnexpectedQueue};
use engine::slots::Slots;
use engine::{
    Buffer, Claim, Completion, Direction, Envelope, ReceiveKey, Request, SendKey, Source, Space, StandIn, Status,
    TagSelector, unknown_peer,
};
use machine::{Fault, PeerIndex, Port, Result};
use slotmap::SlotMap;

use crate::adapter::{Adapter, AdapterCounters};
use crate::address::{Address, QueuePairNumber};
use crate::connection::{Connecting, Connection, Waiting};
use crate::header::{HEADER, LONGEST};
use crate::memory::{MemoryKey, Segment};
use crate::meter::{Meter, Metered};
use crate::request::{Claimed, ReceiveRequest, ReceiveState, SendRequest, Unexpected};
use crate::settings::{Link, ReceiveQueues, Settings};
use crate::state::State;

/// Receives of a peer beyond its credit, for messages that only bring credit. At most two of these are under way, since each
/// tells of half the depth.
pub(crate) const RESERVE: u32 = 4;
/// The id of a send that needs no buffer back.
pub(crate) const NO_BUFFER: u64 = u64::MAX;
/// Send buffers registered at once when none is left.
pub(crate) const BUFFERS_AT_ONCE: u32 = 64;
/// Polls between two looks for news about peers.
const POLLS_PER_NOTICE: u32 = 4096;

/// Events counted by the MPI layer, beside the adapter's counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    pub adapter: AdapterCounters,
    /// Messages by size, as the engine counts them.
    pub messages: engine::Counters,
    pub eager: u64,
    pub rendezvous: u64,
    /// Messages that only brought credit.
    pub credit_messages: u64,
    /// Sends that found no credit or no room and had to wait.
    pub held_back: u64,
    /// Greatest number of unmatched messages held here, and of their bytes.
    pub unexpected_most: u64,
    pub unexpected_bytes_most: u64,
    pub malformed: u64,
    /// Bytes registered now, and buffers for sends among them.
    pub registered: u64,
    pub send_buffers: u64,
}

/// Registered buffers that messages are copied into before they are sent.
pub(crate) struct SendBuffers {
    pub slabs: Vec<MemoryKey>,
    pub free: Vec<u32>,
}

/// MPI's point-to-point messages over a connected queue pair for each peer.
pub struct Endpoint<P, B> {
    pub(crate) adapter: Adapter<P, B>,
    pub(crate) settings: Settings,
    pub(crate) connections: Vec<Connection>,
    pub(crate) connecting: Connecting,
    pub(crate) by_queue_pair: HashMap<QueuePairNumber, PeerIndex>,
    /// Pool of the shared receive queue's buffers.
    pub(crate) shared: Option<MemoryKey>,
    pub(crate) sends: SlotMap<SendKey, SendRequest<B>>,
    pub(crate) receives: Slots<ReceiveKey, ReceiveRequest<B>>,
    pub(crate) posted: PostedQueue,
    pub(crate) unexpected: UnexpectedQueue<Unexpected>,
    pub(crate) unexpected_bytes: u64,
    pub(crate) claimed: SlotMap<Claim, Claimed>,
    pub(crate) send_buffers: SendBuffers,
    pub(crate) completions: VecDeque<Completion<B>>,
    /// Peers with work waiting, and peers that are owed credit.
    pub(crate) waiting: VecDeque<PeerIndex>,
    pub(crate) owing: Vec<PeerIndex>,
    pub(crate) counters: Counters,
    pub(crate) short_sends: u64,
    polls: u32,
    pub(crate) meter: Option<Box<Meter>>,
}

impl<P: Port, B: Buffer> Endpoint<P, B> {
    pub fn open(port: P, settings: &Settings) -> Result<Self> {
        if (settings.buffer.0 as usize) < LONGEST || settings.buffer.0 > 1 << 20 {
            let cause = "no buffer for the headers, or over 1 MiB";
            return Err(Fault::new(format!("buffers of {}", settings.buffer), cause, "choose 48 B to 1 MiB"));
        }
        let mut adapter = Adapter::open(port, settings)?;
        let shared = match settings.receive {
            ReceiveQueues::PerPeer { .. } => None,
            ReceiveQueues::Shared { depth } => {
                let key = adapter.register_pool(depth as usize * settings.buffer.0 as usize);
                for place in 0..u64::from(depth) {
                    adapter.post_shared_receive(place, segment(key, place, settings.buffer.0))?;
                }
                Some(key)
            }
        };
        Ok(Endpoint {
            adapter,
            settings: settings.clone(),
            connections: Vec::new(),
            connecting: Connecting::default(),
            by_queue_pair: HashMap::new(),
            shared,
            sends: SlotMap::with_key(),
            receives: Slots::new(),
            posted: PostedQueue::new(),
            unexpected: UnexpectedQueue::new(),
            unexpected_bytes: 0,
            claimed: SlotMap::with_key(),
            send_buffers: SendBuffers { slabs: Vec::new(), free: Vec::new() },
            completions: VecDeque::new(),
            waiting: VecDeque::new(),
            owing: Vec::new(),
            counters: Counters::default(),
            short_sends: 0,
            polls: 0,
            meter: None,
        })
    }

    /// Creates a queue pair for the port's next peer, with its receives posted; returns the address for that peer.
    pub fn create(&mut self, link: Link) -> Result<(PeerIndex, Address)> {
        let peer = self.admit(link);
        Ok((peer, self.make(peer)?))
    }

    /// Connects the queue pair made for `peer` to the one whose address the peer gave.
    pub fn connect(&mut self, peer: PeerIndex, remote: Address) -> Result<()> {
        self.connections.get(peer.0 as usize).ok_or_else(|| unknown_peer(peer))?;
        self.reach(peer, remote)?;
        self.connections[peer.0 as usize].ready = true;
        Ok(())
    }

    /// Connects the queue pair of a peer to the peer's.
    pub(crate) fn reach(&mut self, peer: PeerIndex, remote: Address) -> Result<()> {
        let connection = &mut self.connections[peer.0 as usize];
        connection.source = remote.source;
        let queue_pair = connection.queue_pair;
        self.adapter.ready_to_receive(queue_pair, remote)?;
        self.adapter.modify(queue_pair, State::ReadyToSend)
    }

    pub fn port_mut(&mut self) -> &mut P {
        self.adapter.port_mut()
    }

    /// Number of peers of this end.
    pub fn peers(&self) -> usize {
        self.connections.len()
    }

    /// Starts counting the time of the adapter, by a counter that `ticks` reads.
    pub fn meter(&mut self, ticks: fn() -> u64) {
        self.meter = Some(Box::new(Meter::new(ticks)));
    }

    pub fn metered(&self) -> Option<Metered> {
        self.meter.as_ref().map(|meter| meter.counts)
    }

    pub fn adapter(&self) -> &Adapter<P, B> {
        &self.adapter
    }

    pub fn state(&self, peer: PeerIndex) -> Result<State> {
        let connection = self.connections.get(peer.0 as usize).ok_or_else(|| unknown_peer(peer))?;
        self.adapter.state(connection.queue_pair)
    }

    /// Memory of one connected peer by the settings, bytes: its queues and its posted buffers.
    pub fn bytes_per_peer(&self) -> Result<u64> {
        let Some(connection) = self.connections.first() else { return Ok(0) };
        let queues = self.adapter.queue_bytes(connection.queue_pair)? + size_of::<Connection>();
        let buffers = match self.settings.receive {
            ReceiveQueues::PerPeer { depth } => u64::from(depth + RESERVE) * self.settings.buffer.0,
            ReceiveQueues::Shared { .. } => 0,
        };
        Ok(queues as u64 + buffers)
    }

    pub fn counters(&self) -> Counters {
        let send_buffers = self.send_buffers.slabs.len() as u64 * u64::from(BUFFERS_AT_ONCE);
        let registered = self.adapter.registered_bytes();
        Counters { adapter: self.adapter.counters(), registered, send_buffers, ..self.counters }
    }

    /// Largest message that is sent at once.
    pub fn eager_limit(&self) -> usize {
        self.settings.buffer.0 as usize - HEADER
    }

    /// Receives into `buffer` the first message that `source` and `selector` take.
    #[inline]
    pub fn receive(&mut self, source: Source, selector: TagSelector, buffer: B, context: u64) -> Result<Request> {
        if let Source::Peer(peer) = source
            && peer.0 as usize >= self.connections.len()
        {
            return Err(unknown_peer(peer));
        }
        let key = self.receives.insert(ReceiveRequest::new(context, source, Some(buffer)));
        if let Some(node) = self.unexpected.find(source, selector) {
            let (peer, label, message) = self.unexpected.remove(node);
            self.give(key, peer, label, message)?;
        } else if matches!(source, Source::Peer(peer) if !self.connections[peer.0 as usize].alive) {
            self.finish_receive(key, Envelope::nothing(source, Space::Tagged), Status::PeerDead);
        } else {
            self.posted.post(&mut self.receives, source, selector, key);
        }
        Ok(Request::Receive(key))
    }

    /// The message that a receive of `source` and `selector` would take now; it stays in the queue.
    pub fn probe(&mut self, source: Source, selector: TagSelector) -> Option<Envelope> {
        let node = self.unexpected.find(source, selector)?;
        let (peer, label, message) = self.unexpected.get(node);
        Some(Envelope::new(peer, label, message.length()))
    }

    /// Withdraws a receive that has no message yet, or a send of which nothing has left.
    pub fn cancel(&mut self, request: Request) -> bool {
        match request {
            Request::Receive(key) if self.receives.get(key).is_some_and(ReceiveRequest::is_posted) => {
                self.end_receive(key, Status::Cancelled);
                true
            }
            Request::Send(key) => {
                let Some(send) = self.sends.get(key) else { return false };
                let waiting = &mut self.connections[send.envelope.peer.0 as usize].waiting;
                let place = waiting.iter().position(|next| matches!(next, Waiting::Message(k) if *k == key));
                let Some(place) = place else { return false };
                waiting.remove(place);
                self.finish_send(key, Status::Cancelled);
                true
            }
            Request::Receive(_) | Request::Short(_) => false,
        }
    }

    /// Takes the buffer of a request in progress back: neither this end nor the adapter touches it any more. The rest of a
    /// send is copied; the rest of a receive is lost. False if the request has ended.
    pub fn take_back(&mut self, request: Request, stand_in: StandIn<B>) -> bool {
        let (buffer, registered, copies) = match request {
            Request::Receive(key) => match self.receives.get_mut(key) {
                Some(ReceiveRequest { state: ReceiveState::Written { key, .. }, buffer, .. }) => {
                    (buffer, Some(*key), false)
                }
                Some(receive) => (&mut receive.buffer, None, false),
                None => return false,
            },
            Request::Send(key) => match self.sends.get_mut(key) {
                Some(send) => (&mut send.buffer, send.registered, true),
                None => return false,
            },
            Request::Short(_) => return false,
        };
        if let Some(held) = buffer {
            *held = stand_in(held, copies);
        } else if let Some(key) = registered {
            self.adapter.replace(key, |held| stand_in(held, copies));
        }
        true
    }

    /// The request in progress with this context. Walks all requests.
    pub fn find(&self, context: u64) -> Option<Request> {
        let receive = self.receives.iter().find(|(_, receive)| receive.context == context);
        let receive = receive.map(|(key, _)| Request::Receive(key));
        let send = || self.sends.iter().find(|(_, send)| send.context == context);
        receive.or_else(|| send().map(|(key, _)| Request::Send(key)))
    }

    #[inline]
    pub fn has_ended(&self) -> bool {
        !self.completions.is_empty()
    }

    /// Takes a request that has ended already; moves nothing.
    #[inline]
    pub fn next_completion(&mut self) -> Option<Completion<B>> {
        self.completions.pop_front()
    }

    /// Moves what can move, and returns a request that has ended.
    #[inline]
    pub fn poll(&mut self) -> Result<Option<Completion<B>>> {
        if let Some(done) = self.completions.pop_front() {
            return Ok(Some(done));
        }
        self.turn()?;
        Ok(self.completions.pop_front())
    }

    /// Moves whatever can move now. True if a packet came in.
    #[inline]
    pub fn turn(&mut self) -> Result<bool> {
        let Endpoint { adapter, meter, .. } = self;
        let came = Meter::polls(meter, || adapter.poll())?;
        self.connect_peers()?;
        while let Some(done) = self.adapter.poll_completion() {
            self.work_ended(done)?;
        }
        while let Some(queue_pair) = self.adapter.next_event() {
            if let Some(&peer) = self.by_queue_pair.get(&queue_pair) {
                self.peer_dead(peer);
            }
        }
        for _ in 0..self.waiting.len() {
            let Some(peer) = self.waiting.pop_front() else { break };
            self.connections[peer.0 as usize].listed = false;
            self.post_waiting(peer)?;
        }
        if !self.owing.is_empty() {
            self.return_credits()?;
        }
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(POLLS_PER_NOTICE) {
            self.adapter.notices()?;
        }
        Ok(came)
    }

    /// Looks for news about peers now.
    pub fn notices(&mut self) -> Result<()> {
        self.adapter.notices()
    }

    pub fn flush(&mut self) -> Result<()> {
        self.adapter.flush()
    }

    /// Acknowledges all packets received at once.
    pub fn acknowledge_all(&mut self) -> Result<()> {
        self.adapter.acknowledge_all()
    }

    /// Whether every send has ended and all posted work has arrived.
    pub fn is_quiet(&self) -> bool {
        self.sends.is_empty() && self.waiting.is_empty() && self.adapter.is_quiet()
    }

    /// Whether all that has left has arrived, and nothing waits to be acknowledged.
    pub fn is_flushed(&self) -> bool {
        self.adapter.is_quiet()
    }

    /// Numbers of receives that wait for a message, and of messages that wait for a receive.
    pub fn queue_lengths(&self) -> (usize, usize) {
        (self.posted.len(), self.unexpected.len())
    }

    pub(crate) fn finish_send(&mut self, key: SendKey, status: Status) {
        let Some(mut send) = self.sends.remove(key) else { return };
        let buffer = send.buffer.take().or_else(|| self.adapter.deregister(send.registered?));
        let Some(buffer) = buffer else { return };
        let SendRequest { context, envelope, .. } = send;
        let (request, direction) = (Request::Send(key), Direction::Send);
        self.completions.push_back(Completion { request, context, direction, envelope, status, buffer });
    }

    pub(crate) fn finish_receive(&mut self, key: ReceiveKey, envelope: Envelope, status: Status) {
        let Some(mut receive) = self.receives.remove(key) else { return };
        let written = match receive.state {
            ReceiveState::Written { key, .. } => Some(key),
            ReceiveState::Posted => None,
        };
        let buffer = receive.buffer.take().or_else(|| self.adapter.deregister(written?));
        let Some(buffer) = buffer else { return };
        let (request, context, direction) = (Request::Receive(key), receive.context, Direction::Receive);
        self.completions.push_back(Completion { request, context, direction, envelope, status, buffer });
    }

    /// Ends a receive as far as it has come.
    pub(crate) fn end_receive(&mut self, key: ReceiveKey, status: Status) {
        let Some(receive) = self.receives.get(key) else { return };
        let envelope = match receive.state {
            ReceiveState::Posted => Envelope::nothing(receive.source, Space::Tagged),
            ReceiveState::Written { envelope, .. } => envelope,
        };
        if receive.is_posted() {
            self.posted.remove(&mut self.receives, key);
        }
        self.finish_receive(key, envelope, status);
    }
}

#[inline]
pub(crate) fn segment(key: MemoryKey, place: u64, size: u64) -> Segment {
    Segment { key, offset: place * size, length: size }
}
