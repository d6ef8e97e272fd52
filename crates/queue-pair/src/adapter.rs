//! The channel adapter: queue pairs, registered memory and a completion queue over one port, and the verbs on them.

use std::collections::VecDeque;
use std::time::Instant;

use engine::Buffer;
use machine::{Fault, Nanoseconds, Notice, PeerIndex, Port, Result, Sent};

use crate::address::{Address, ConnectRequest, FIRST_NUMBER, MANAGEMENT, QueuePairNumber};
use crate::completion::{CompletionQueue, Opcode, WorkCompletion, WorkStatus};
use crate::memory::{MemoryKey, Registered, Segment};
use crate::queue_pair::{Arriving, QueuePair};
use crate::receive_queue::{ReceiveQueue, ReceiveWork};
use crate::send_queue::{Bytes as Payload, Element, INLINE_MOST, SendWork, Transfer};
use crate::settings::{Link, ReceiveQueues, Settings};
use crate::state::State;
use crate::wire::{BTH, Header, Kind, PSN_MASK, RETH};

/// Packets taken from the port before anything is sent.
const RECEIVE_BUDGET: usize = 64;
/// Refusals in a row that prove a peer's process gone; a single packet may have come before its socket.
const REFUSALS: u8 = 3;
/// Polls in a row without news after which lazy acknowledgements leave.
const IDLE_POLLS: u32 = 256;

/// Events counted by an adapter, for evidence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AdapterCounters {
    pub packets_sent: u64,
    pub packets_received: u64,
    pub acknowledgements: u64,
    pub malformed: u64,
    pub duplicates: u64,
    pub out_of_sequence: u64,
    /// Packets sent again because the sender had to go back.
    pub retransmitted: u64,
    /// Verdicts 'receiver not ready' sent to peers and received from them.
    pub not_ready_sent: u64,
    pub not_ready_received: u64,
    /// Work requests that ended as flushed.
    pub flushed: u64,
}

/// The adapter without the port, so that packets can be handled while the port delivers them.
pub(crate) struct Card<B> {
    pub settings: Settings,
    pub queue_pairs: Vec<QueuePair>,
    pub shared: Option<ReceiveQueue>,
    pub registered: Registered<B>,
    pub completions: CompletionQueue,
    /// Queue pairs with something to transmit, and with something to answer.
    pub ready: VecDeque<u32>,
    pub answers: VecDeque<u32>,
    /// Queue pairs whose acknowledgements may wait.
    pub lazy: Vec<u32>,
    /// Queue pairs in Error whose work requests are still to be flushed, and how the failing one ended.
    flushing: Vec<(u32, WorkStatus, Opcode)>,
    /// Queue pairs that went to Error by themselves.
    events: VecDeque<QueuePairNumber>,
    /// Peers' datagrams for connecting.
    pub hellos: VecDeque<(PeerIndex, ConnectRequest)>,
    pub counters: AdapterCounters,
    pub next_timeout: Option<Nanoseconds>,
    /// Number of queue pairs that wait because a peer was not ready.
    pub waiting: u32,
    origin: Instant,
}

/// Verbs over a port. `B` is the type of a message's memory that is registered in place.
pub struct Adapter<P, B> {
    port: P,
    card: Card<B>,
    idle: u32,
}

impl<B: Buffer> Card<B> {
    pub fn now(&self) -> Nanoseconds {
        Nanoseconds(self.origin.elapsed().as_nanos() as u64 + 1)
    }

    pub fn watch(&mut self, at: Nanoseconds) {
        self.next_timeout = Some(self.next_timeout.map_or(at, |next| next.min(at)));
    }

    #[inline]
    pub fn mark_ready(&mut self, index: usize) {
        let pair = &mut self.queue_pairs[index];
        if !pair.ready {
            pair.ready = true;
            self.ready.push_back(index as u32);
        }
    }

    /// Breaks the connection: its queue pair goes to Error, with an event.
    pub fn broke(&mut self, index: usize, status: WorkStatus, which: Opcode) {
        let pair = &mut self.queue_pairs[index];
        if pair.state != State::Error {
            self.events.push_back(pair.number);
            self.give_up(index, status, which);
        }
    }

    fn give_up(&mut self, index: usize, status: WorkStatus, which: Opcode) {
        let pair = &mut self.queue_pairs[index];
        pair.state = State::Error;
        pair.deadline = None;
        if pair.rnr_until.take().is_some() {
            self.waiting -= 1;
        }
        self.flushing.push((index as u32, status, which));
    }

    /// Completes the work requests of broken queue pairs, as far as the completion queue has room.
    #[cold]
    fn flush(&mut self) {
        let most = self.settings.most_flushed() as usize;
        let Card { queue_pairs, completions, flushing, counters, .. } = self;
        flushing.retain(|&(index, status, which)| {
            if completions.room() < most {
                return true;
            }
            let pair = &mut queue_pairs[index as usize];
            let mut end = |id, opcode, status| {
                counters.flushed += u64::from(status == WorkStatus::Flushed);
                completions.add(WorkCompletion { id, queue_pair: pair.number, opcode, status, length: 0 });
            };
            let mut first = which == Opcode::Send;
            pair.send.flush(|element| {
                end(element.id, element.opcode, if first { status } else { WorkStatus::Flushed });
                first = false;
            });
            if let Arriving::Message { work, .. } = pair.arriving {
                end(work.id, Opcode::Receive, if which == Opcode::Receive { status } else { WorkStatus::Flushed });
            }
            pair.arriving = Arriving::Nothing;
            while let Some(work) = pair.receive.as_mut().and_then(ReceiveQueue::take) {
                end(work.id, Opcode::Receive, WorkStatus::Flushed);
            }
            false
        });
    }
}

fn check_link(link: &Link) -> Result<()> {
    let refuse = |cause, next| Err(Fault::new("queue pairs", cause, next));
    if (link.mtu.0 as usize) < BTH + RETH + 64 {
        return refuse(format!("packets of {} cannot carry their headers", link.mtu), "take another port");
    }
    if !(4..=1 << 15).contains(&link.window) {
        return refuse(format!("a window of {} packets", link.window), "choose one from 4 to 32768");
    }
    Ok(())
}

fn no_such(number: QueuePairNumber) -> Fault {
    Fault::new(format!("queue pair {}", number.0), "this adapter has no such queue pair", "use one that create gave")
}

impl<P: Port, B: Buffer> Adapter<P, B> {
    pub fn open(port: P, settings: &Settings) -> Result<Self> {
        let refuse = |what: String, next: &str| Err(Fault::new("queue pairs", what, next));
        let capabilities = port.capabilities();
        check_link(&Link::of(&capabilities))?;
        let depths = [settings.send_depth, settings.receive.depth()];
        if depths.iter().any(|depth| !(4..=1 << 15).contains(depth)) || settings.inline as usize > INLINE_MOST {
            let next = "choose depths from 4 to 32768, and at most 128 bytes inline";
            return refuse(format!("depths {depths:?} or {} bytes inline", settings.inline), next);
        }
        let least = 4 * settings.most_flushed();
        if settings.completion_depth < least || settings.acknowledge_every == 0 || settings.signal_every == 0 {
            let next = format!("choose at least {least} completions for these depths");
            return refuse(format!("a completion queue of {}", settings.completion_depth), &next);
        }
        let shared = match settings.receive {
            ReceiveQueues::Shared { depth } => Some(ReceiveQueue::new(depth)),
            ReceiveQueues::PerPeer { .. } => None,
        };
        Ok(Adapter {
            card: Card {
                settings: settings.clone(),
                queue_pairs: Vec::new(),
                shared,
                registered: Registered::new(),
                completions: CompletionQueue::new(settings.completion_depth),
                ready: VecDeque::new(),
                answers: VecDeque::new(),
                lazy: Vec::new(),
                flushing: Vec::new(),
                events: VecDeque::new(),
                hellos: VecDeque::new(),
                counters: AdapterCounters::default(),
                next_timeout: None,
                waiting: 0,
                origin: Instant::now(),
            },
            port,
            idle: 0,
        })
    }

    pub fn port(&self) -> &P {
        &self.port
    }

    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    pub fn counters(&self) -> AdapterCounters {
        self.card.counters
    }

    /// Creates a queue pair towards a peer of the port, in state Reset. A receive queue of its own has `reserve` more places
    /// than the settings' depth.
    pub fn create_queue_pair(&mut self, peer: PeerIndex, reserve: u32, link: Link) -> Result<QueuePairNumber> {
        check_link(&link)?;
        let number = QueuePairNumber(self.card.queue_pairs.len() as u32 + FIRST_NUMBER);
        // Any number does that a former connection did not have, whose stray packets would come in.
        let first_psn = number.0.wrapping_mul(0x9e37_79b1) >> 8 & PSN_MASK;
        self.card.queue_pairs.push(QueuePair::new(number, peer, first_psn, reserve, link, &self.card.settings));
        Ok(number)
    }

    pub fn state(&self, number: QueuePairNumber) -> Result<State> {
        Ok(self.pair(number)?.state)
    }

    /// The address of a queue pair for its peer, with `source`.
    pub fn address(&self, number: QueuePairNumber, source: u32) -> Result<Address> {
        Ok(Address { queue_pair: number, first_psn: self.pair(number)?.first_psn, source })
    }

    /// Memory of the queues of a queue pair, bytes.
    pub fn queue_bytes(&self, number: QueuePairNumber) -> Result<usize> {
        Ok(self.pair(number)?.bytes())
    }

    fn pair(&self, number: QueuePairNumber) -> Result<&QueuePair> {
        self.card.queue_pairs.get(number.index()).ok_or_else(|| no_such(number))
    }

    fn pair_mut(&mut self, number: QueuePairNumber) -> Result<&mut QueuePair> {
        self.card.queue_pairs.get_mut(number.index()).ok_or_else(|| no_such(number))
    }

    /// Moves a queue pair to Init, ReadyToSend, or Error; work requests of a queue pair in Error complete as flushed.
    pub fn modify(&mut self, number: QueuePairNumber, next: State) -> Result<()> {
        let pair = self.pair_mut(number)?;
        pair.state.check(next, number.0)?;
        match next {
            State::ReadyToReceive => Err(Fault::new(
                format!("queue pair {}", number.0),
                "ReadyToReceive needs the peer's address",
                "call ready_to_receive",
            )),
            State::Reset => {
                let (peer, settings) = (pair.peer, self.card.settings.clone());
                let index = number.index();
                self.card.flushing.retain(|&(flushed, ..)| flushed as usize != index);
                if self.card.queue_pairs[index].rnr_until.is_some() {
                    self.card.waiting -= 1;
                }
                self.card.ready.retain(|&ready| ready as usize != index);
                self.card.answers.retain(|&answer| answer as usize != index);
                self.card.lazy.retain(|&lazy| lazy as usize != index);
                let pair = &mut self.card.queue_pairs[index];
                let (first_psn, link) = (pair.first_psn, pair.link);
                // The receive queue keeps its size, not its work requests.
                let mut receive = pair.receive.take();
                while receive.as_mut().and_then(ReceiveQueue::take).is_some() {}
                *pair = QueuePair { receive, ..QueuePair::new(number, peer, first_psn, 0, link, &settings) };
                Ok(())
            }
            State::Error if pair.state == State::Error => Ok(()),
            State::Error => {
                self.card.give_up(number.index(), WorkStatus::Flushed, Opcode::Send);
                Ok(())
            }
            State::Init | State::ReadyToSend => {
                pair.state = next;
                Ok(())
            }
        }
    }

    /// Moves a queue pair from Init to ReadyToReceive, connected to the peer's queue pair `remote`.
    pub fn ready_to_receive(&mut self, number: QueuePairNumber, remote: Address) -> Result<()> {
        let pair = self.pair_mut(number)?;
        pair.state.check(State::ReadyToReceive, number.0)?;
        pair.state = State::ReadyToReceive;
        pair.remote = remote.queue_pair.0;
        pair.expected = remote.first_psn & PSN_MASK;
        Ok(())
    }

    /// Registers memory of the adapter's own, zeroed but for the first byte of each page.
    pub fn register_pool(&mut self, length: usize) -> MemoryKey {
        self.card.registered.pool(length)
    }

    /// Registers a message's buffer. Only the peer of `writer` may write there, whoever else knows the key.
    pub fn register(&mut self, buffer: B, writer: Option<QueuePairNumber>) -> MemoryKey {
        self.card.registered.register(buffer, writer)
    }

    pub fn deregister(&mut self, key: MemoryKey) -> Option<B> {
        self.card.registered.deregister(key)
    }

    pub(crate) fn replace(&mut self, key: MemoryKey, stand_in: impl FnOnce(&B) -> B) {
        self.card.registered.replace(key, stand_in);
    }

    pub fn registered_bytes(&self) -> u64 {
        self.card.registered.bytes()
    }

    /// Bytes of a pool's segment.
    #[inline]
    pub fn memory(&self, segment: Segment) -> Option<&[u8]> {
        self.card.registered.pooled(segment)
    }

    #[inline]
    pub fn memory_mut(&mut self, segment: Segment) -> Option<&mut [u8]> {
        self.card.registered.pooled_mut(segment)
    }

    /// Number of work requests for which the send queue has room.
    #[inline]
    pub fn send_room(&self, number: QueuePairNumber) -> u32 {
        self.card.queue_pairs.get(number.index()).map_or(0, |pair| pair.send.room())
    }

    /// Posts a receive to a queue pair, or to the shared receive queue where that is used.
    #[inline]
    pub fn post_receive(&mut self, number: QueuePairNumber, id: u64, into: Segment) -> Result<()> {
        let Card { queue_pairs, shared, flushing, .. } = &mut self.card;
        let pair = queue_pairs.get_mut(number.index()).ok_or_else(|| no_such(number))?;
        let Some(own) = &mut pair.receive else {
            return shared.as_mut().ok_or_else(|| no_such(number))?.post(ReceiveWork { id, into });
        };
        match pair.state {
            State::Reset => {
                let next = "bring it to Init first";
                Err(Fault::new(format!("queue pair {}", number.0), "nothing can be posted in state Reset", next))
            }
            state => {
                own.post(ReceiveWork { id, into })?;
                if state == State::Error {
                    flushing.push((number.index() as u32, WorkStatus::Flushed, Opcode::Send));
                }
                Ok(())
            }
        }
    }

    /// Posts to the shared receive queue.
    pub fn post_shared_receive(&mut self, id: u64, into: Segment) -> Result<()> {
        let Some(shared) = &mut self.card.shared else {
            return Err(Fault::new("shared receive queue", "the settings have none", "post to each queue pair"));
        };
        shared.post(ReceiveWork { id, into })
    }

    /// Posts a work request and rings the doorbell. The bytes must stay registered until it has completed.
    pub fn post_send(&mut self, number: QueuePairNumber, work: SendWork) -> Result<()> {
        let (from, opcode, key, offset) = match work.transfer {
            Transfer::Send(from) => (from, Opcode::Send, 0, 0),
            Transfer::Write { from, key, offset } => (from, Opcode::RdmaWrite, key, offset),
        };
        if !self.card.registered.covers(from) || from.length > 1 << 31 {
            let subject = format!("work request of {} B", from.length);
            return Err(Fault::new(subject, "its bytes are not registered, or over 2 GiB", "register them, in pieces"));
        }
        self.post(number, from.length, |element| {
            let length = from.length;
            let bytes = Payload::Registered(from);
            let (id, signaled, inline) = (work.id, work.signaled, element.inline);
            *element = Element { id, opcode, signaled, bytes, length, key, offset, first_psn: 0, packets: 0, inline };
        })
    }

    /// Posts a send whose `length` bytes, at most [`INLINE_MOST`], `fill` writes into the work request.
    #[inline]
    pub fn post_inline(
        &mut self,
        number: QueuePairNumber,
        id: u64,
        signaled: bool,
        length: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        if length > self.card.settings.inline as usize {
            let most = self.card.settings.inline;
            let subject = format!("inline send of {length} B");
            return Err(Fault::new(subject, format!("at most {most} B go inline here"), "send it from a buffer"));
        }
        self.post(number, length as u64, |element| {
            element.id = id;
            element.opcode = Opcode::Send;
            element.signaled = signaled;
            element.bytes = Payload::Inline;
            element.length = length as u64;
            fill(&mut element.inline[..length]);
        })
    }

    #[inline]
    fn post(&mut self, number: QueuePairNumber, length: u64, fill: impl FnOnce(&mut Element)) -> Result<()> {
        let pair = self.pair_mut(number)?;
        let packets = length.div_ceil(pair.chunk as u64).max(1) as u32;
        let refuse = |cause: String, next| Err(Fault::new(format!("queue pair {}", number.0), cause, next));
        match pair.state {
            State::ReadyToSend | State::Error => {}
            state => return refuse(format!("it is in state {state:?}"), "bring it to ReadyToSend first"),
        }
        if !pair.send.post(packets, fill) {
            return refuse("its send queue is full".into(), "wait for a completion");
        }
        if pair.state == State::Error {
            self.card.flushing.push((number.index() as u32, WorkStatus::Flushed, Opcode::Send));
            return Ok(());
        }
        self.transmit(number.index())
    }

    /// Hands the packets of a queue pair to the port until none are left or the port is full.
    #[inline]
    fn transmit(&mut self, index: usize) -> Result<()> {
        let Adapter { port, card, .. } = self;
        let now = (!card.queue_pairs[index].link.reliable).then(|| card.now());
        while let Some(planned) = card.plan(index) {
            let length = planned.header.length() + planned.length;
            match port.send(planned.peer, length, |into| card.write(index, &planned, into))? {
                Sent::Taken => card.sent(index, &planned, now),
                Sent::Full => {
                    card.mark_ready(index);
                    break;
                }
                Sent::Gone => {
                    card.broke(index, WorkStatus::RetryExceeded, Opcode::Send);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Sends a datagram of the communication manager to a peer; it may be lost.
    pub(crate) fn say(&mut self, peer: PeerIndex, hello: &ConnectRequest) -> Result<Sent> {
        let header = Header { destination: MANAGEMENT, psn: 0, ask: false, kind: Kind::Management };
        let at = header.length();
        let sent = self.port.send(peer, at + ConnectRequest::LENGTH, |into| {
            header.write(into);
            hello.write(&mut into[at..]);
        })?;
        self.port.flush()?;
        Ok(sent)
    }

    pub(crate) fn next_hello(&mut self) -> Option<(PeerIndex, ConnectRequest)> {
        self.card.hellos.pop_front()
    }

    /// Moves whatever can move now. True if a packet came in.
    #[inline]
    pub fn poll(&mut self) -> Result<bool> {
        self.port.flush()?;
        let Adapter { port, card, .. } = self;
        // Every packet may complete as many sends as a queue holds, and one receive.
        let room = card.completions.room() / (card.settings.send_depth.next_power_of_two() as usize + 1);
        let came = port.receive(RECEIVE_BUDGET.min(room), |peer, packet| card.handle(peer, packet))?;
        if card.next_timeout.is_some() {
            let now = card.now();
            if card.next_timeout.is_some_and(|at| at <= now) {
                card.handle_timeout(now);
            }
        }
        if came > 0 {
            self.idle = 0;
        } else {
            self.idle += 1;
            if self.idle >= IDLE_POLLS {
                self.idle = 0;
                self.card.answer_lazy();
            }
        }
        self.answer()?;
        for _ in 0..self.card.ready.len() {
            let Some(index) = self.card.ready.pop_front() else { break };
            self.card.queue_pairs[index as usize].ready = false;
            self.transmit(index as usize)?;
        }
        if !self.card.flushing.is_empty() {
            self.card.flush();
        }
        self.port.flush()?;
        Ok(came > 0)
    }

    fn answer(&mut self) -> Result<()> {
        let Adapter { port, card, .. } = self;
        while let Some((index, peer, header)) = card.next_answer() {
            match port.send(peer, header.length(), |into| header.write(into))? {
                Sent::Full => break,
                Sent::Taken | Sent::Gone => card.answered(index),
            }
        }
        Ok(())
    }

    /// Hands all packets that the port has taken to the wire.
    pub fn flush(&mut self) -> Result<()> {
        self.port.flush()
    }

    /// Acknowledges all packets received, without waiting for more.
    pub fn acknowledge_all(&mut self) -> Result<()> {
        self.card.answer_lazy();
        self.answer()?;
        self.port.flush()
    }

    /// Whether all posted work is done, and all packets received are acknowledged.
    pub fn is_quiet(&self) -> bool {
        self.card.queue_pairs.iter().all(|pair| pair.state == State::Error || pair.send.used() == 0)
            && self.card.answers.is_empty()
            && self.card.lazy.iter().all(|&index| self.card.queue_pairs[index as usize].unacknowledged == 0)
    }

    /// Looks for news about peers.
    pub fn notices(&mut self) -> Result<()> {
        let Adapter { port, card, .. } = self;
        port.notices(|notice| {
            let (peer, refused) = match notice {
                Notice::Dead(peer) | Notice::Closed(peer) => (peer, false),
                Notice::Refused(peer) => (peer, true),
            };
            for index in 0..card.queue_pairs.len() {
                let pair = &mut card.queue_pairs[index];
                if pair.peer != peer {
                    continue;
                }
                pair.refusals = pair.refusals.saturating_add(1);
                if !refused || pair.refusals >= REFUSALS {
                    card.broke(index, WorkStatus::RetryExceeded, Opcode::Send);
                }
            }
        })
    }

    #[inline]
    pub fn poll_completion(&mut self) -> Option<WorkCompletion> {
        self.card.completions.poll()
    }

    /// The next queue pair that went to Error by itself.
    #[inline]
    pub fn next_event(&mut self) -> Option<QueuePairNumber> {
        self.card.events.pop_front()
    }
}
