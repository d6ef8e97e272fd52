//! The message engine behind one end of a channel to another host: what its owner and the pump share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use endpoint::Driver;
use engine::{Direction, LinkConfig, Source, Status, TagSelector};
use machine::{Bytes, Fault, PeerIndex, Result};
use offcode::channel::{Bell, Counted, Sleeper};
use offcode::{Delivery, Specification, Written};
use ports::udp::UdpPort;

use super::flow::{Flow, ON_THE_WAY};
use super::limits::Shares;
use super::sealed::{Dropped, SealedPort};

const PEER: PeerIndex = PeerIndex(0);

/// The kind of a message, in its tag.
const PAYLOAD: u64 = 0;
/// A credit: eight bytes, little endian, the number of messages read so far.
const CREDIT: u64 = 1;
/// The farewell of the sender's end; nothing comes after it.
const GONE: u64 = 2;

/// Receives that wait in the engine. What comes beyond waits inside it, so this bounds memory and no messages.
const POSTED: u32 = 32;

/// Writes between two polls of the engine.
const TURN_EVERY: u64 = 16;

/// Whether the control connection behind a channel still lives.
#[derive(Default)]
pub(crate) struct Link {
    lost: AtomicBool,
    /// Bells of threads that sleep until it is lost, among others.
    bells: Mutex<Vec<Arc<dyn Bell>>>,
}

impl Link {
    pub fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.bells.lock().unwrap_or_else(PoisonError::into_inner).drain(..).for_each(|bell| bell.ring());
    }

    /// Ends the sleep that a thread is about to begin when the connection is lost.
    pub fn arm(&self, sleeper: &mut dyn Sleeper) -> bool {
        let (bell, mut bells) = (sleeper.bell(), self.bells.lock().unwrap_or_else(PoisonError::into_inner));
        if !bells.iter().any(|one| Arc::ptr_eq(one, &bell)) {
            bells.push(bell);
        }
        drop(bells);
        !self.is_lost()
    }

    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }
}

/// Most memory of an end: messages either way, those that receives are posted for, and the packets that engine and port
/// keep.
pub(super) fn memory(specification: &Specification, link: &LinkConfig) -> Bytes {
    let buffers = &specification.buffers;
    let count = u64::from(buffers.count);
    let messages = 2 * count * (1 + ON_THE_WAY) + count.min(POSTED.into());
    // Packets out of order, and packets not acknowledged.
    let packets = link.reliability.as_ref().map_or(0, |reliability| 2 * u64::from(reliability.window) * link.mtu.0);
    Bytes(messages.saturating_mul(buffers.size.0) + packets + link.credit_bytes.0 + UdpPort::MEMORY.0)
}

/// One end of the engine.
pub(crate) struct EngineEnd {
    /// Given back when nothing of the channel is left, which may be after its owner has dropped it.
    _shares: Shares,
    driver: Driver<SealedPort<UdpPort>, Vec<u8>>,
    /// Bytes of a receive buffer.
    capacity: usize,
    flow: Flow,
    /// Messages that arrived, with their lengths.
    inbox: VecDeque<(Vec<u8>, usize)>,
    receive_spares: Vec<Vec<u8>>,
    send_spares: Vec<Vec<u8>>,
    counted: Counted,
    /// Whether the other end has said farewell, or is dead.
    gone: bool,
    failed: Option<String>,
    /// Whether the owner sleeps on the socket: nobody else may take packets from it then.
    waiting: bool,
    /// Bell of the owner's thread, which sleeps until something happens here.
    bell: Option<Arc<dyn Bell>>,
    dropped_seen: Dropped,
}

impl EngineEnd {
    pub fn new(
        port: SealedPort<UdpPort>,
        links: &[LinkConfig],
        specification: &Specification,
        shares: Shares,
    ) -> Result<EngineEnd> {
        let mut end = EngineEnd {
            _shares: shares,
            driver: Driver::new(port, links),
            capacity: (specification.buffers.size.0 as usize).max(8),
            flow: Flow::new(specification.buffers.count),
            inbox: VecDeque::new(),
            receive_spares: Vec::new(),
            send_spares: Vec::new(),
            counted: Counted::default(),
            gone: false,
            failed: None,
            waiting: false,
            bell: None,
            dropped_seen: Dropped::default(),
        };
        for _ in 0..specification.buffers.count.min(POSTED) {
            end.post()?;
        }
        Ok(end)
    }

    fn post(&mut self) -> Result<()> {
        let buffer = self.receive_spares.pop().unwrap_or_else(|| vec![0; self.capacity]);
        self.driver.receive(Source::Peer(PEER), TagSelector::any(), buffer, 0).map(drop)
    }

    fn tell(&mut self, kind: u64, bytes: &[u8]) -> Result<()> {
        let mut buffer = self.send_spares.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        self.driver.send(PEER, kind, buffer, 0)?;
        self.driver.flush()
    }

    /// Polls engine and port.
    fn turn(&mut self) -> Result<()> {
        if let Some(why) = &self.failed {
            return Err(Fault::new("channel to another host", why.clone(), "make the channel anew"));
        }
        self.driver.turn()?;
        while let Some(done) = self.driver.next_completion() {
            if done.direction == Direction::Send {
                if self.send_spares.len() < POSTED as usize {
                    self.send_spares.push(done.buffer);
                }
                self.gone |= done.status == Status::PeerDead;
                continue;
            }
            let length = done.envelope.length as usize;
            match (done.status, done.envelope.tag) {
                (Status::Done, PAYLOAD) => {
                    if !self.flow.received() {
                        return Err(self.broken("it sent more messages than this end has buffers"));
                    }
                    self.inbox.push_back((done.buffer, length));
                }
                (Status::Done, CREDIT) if length == 8 => {
                    let read = done.buffer[..8].try_into().map_or(u64::MAX, u64::from_le_bytes);
                    self.receive_spares.push(done.buffer);
                    if !self.flow.credit(read) {
                        return Err(self.broken("it claims to have read what was not sent"));
                    }
                }
                (Status::Done, GONE) => {
                    self.gone = true;
                    self.receive_spares.push(done.buffer);
                }
                (Status::PeerDead | Status::Cancelled, _) => {
                    self.gone = true;
                    continue;
                }
                _ => return Err(self.broken("it sent a message that no buffer of this channel holds")),
            }
            self.post()?;
        }
        Ok(())
    }

    fn broken(&mut self, why: &str) -> Fault {
        let why = format!("the other end broke the protocol: {why}");
        self.failed = Some(why.clone());
        self.gone = true;
        Fault::new("channel to another host", why, "check that both hosts run the same version")
    }

    /// Writes a message of `length` bytes where there is room, or `delivery` says what becomes of it.
    pub fn write(
        &mut self,
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]),
        delivery: Delivery,
        link: &Link,
    ) -> Result<Written> {
        // Acknowledgements let the engine's window move on.
        if !self.flow.has_room() || self.gone || self.counted.written.is_multiple_of(TURN_EVERY) {
            self.turn()?;
        }
        if self.gone || link.is_lost() {
            return Ok(Written::Gone);
        }
        if !self.flow.has_room() {
            return Ok(match delivery {
                Delivery::Reliable => {
                    self.counted.full += 1;
                    Written::Full
                }
                Delivery::Unreliable => {
                    self.counted.dropped += 1;
                    Written::Dropped
                }
            });
        }
        let mut buffer = self.send_spares.pop().unwrap_or_default();
        buffer.resize(length, 0);
        fill(&mut buffer);
        self.driver.send(PEER, PAYLOAD, buffer, 0)?;
        self.driver.flush()?;
        self.flow.sent();
        self.counted.written += 1;
        Ok(Written::Taken)
    }

    /// Whether a message is there.
    pub fn poll(&mut self) -> Result<bool> {
        if self.inbox.is_empty() {
            self.turn()?;
        }
        Ok(!self.inbox.is_empty())
    }

    pub fn read(&mut self, deliver: &mut dyn FnMut(&[u8])) -> Result<bool> {
        if self.inbox.is_empty() {
            self.turn()?;
        }
        let Some((buffer, length)) = self.inbox.pop_front() else { return Ok(false) };
        self.counted.read += 1;
        if let Some(read) = self.flow.read() {
            self.tell(CREDIT, &read.to_le_bytes())?;
        }
        deliver(&buffer[..length]);
        self.receive_spares.push(buffer);
        Ok(true)
    }

    /// Tells the peer that this end goes.
    pub fn say_goodbye(&mut self) -> Result<()> {
        self.tell(GONE, &[])
    }

    /// Sets whether the owner sleeps on the socket.
    pub fn set_waiting(&mut self, waiting: bool) {
        self.waiting = waiting;
    }

    /// Has `bell` rung for the next message. `false`: there is something already.
    pub fn arm(&mut self, bell: Arc<dyn Bell>) -> bool {
        let told = self.gone;
        self.bell = Some(bell);
        self.turn_for_owner();
        self.inbox.is_empty() && self.gone == told
    }

    /// Whether the peer's end is gone, or dead.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    pub fn counted(&self) -> Counted {
        self.counted
    }

    /// Polls for the pump: a fault is kept for the owner.
    pub fn turn_for_owner(&mut self) {
        if !self.waiting
            && self.failed.is_none()
            && let Err(fault) = self.turn()
        {
            self.failed.get_or_insert_with(|| fault.to_string());
            self.gone = true;
        }
        if (!self.inbox.is_empty() || self.gone)
            && let Some(bell) = self.bell.take()
        {
            bell.ring();
        }
    }

    /// Whether what comes wakes its owner, so that nobody needs to look for it.
    pub fn is_watched(&self) -> bool {
        self.bell.is_some()
    }

    /// Time until the engine has something to do by itself.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.driver.next_timeout()
    }

    /// Packets from the peer's address that were dropped since the last look.
    pub fn take_dropped(&mut self) -> Dropped {
        let dropped = self.driver.port().dropped();
        let seen = std::mem::replace(&mut self.dropped_seen, dropped);
        Dropped { forged: dropped.forged - seen.forged, replayed: dropped.replayed - seen.replayed }
    }

    /// Whether nothing is on its way from here.
    pub fn is_quiet(&self) -> bool {
        self.gone || self.failed.is_some() || self.driver.engine.is_quiet()
    }
}
