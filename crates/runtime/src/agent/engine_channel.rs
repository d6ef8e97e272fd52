//! A specialized channel to another host: the message engine over UDP, each packet sealed.
//!
//! The engine orders, repeats what was lost and cuts large messages; on top of it lie credits, so that the channel has
//! the buffers that were asked for, and as many messages again may be on the way. A reliable channel without credit says `Full`; an unreliable one drops and
//! counts. What was taken arrives, in order, unless an end goes.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use engine::{Direction, LinkConfig, Source, Status, TagSelector};
use machine::{Bytes, Fault, Nanoseconds, PeerIndex, Port, Result};
use offcode::channel::{Bell, Counted, Loss, Sleeper, Synchronization};
use offcode::{Cast, Channel, Delivery, Specification, Written};
use ports::udp::UdpPort;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::flow::{Flow, ON_THE_WAY};
use super::limits::Shares;
use super::out_of_band::{not_blocking, too_long};
use super::pump;
use super::sealed::{Dropped, SealedPort};
use endpoint::Driver;
use endpoint::udp_links;

const PEER: PeerIndex = PeerIndex(0);

/// What a message of the engine is, as its tag says.
const PAYLOAD: u64 = 0;
/// Eight bytes, little endian: messages read so far.
const CREDIT: u64 = 1;
/// The sender's end is gone; nothing comes after.
const GONE: u64 = 2;

/// Receives that wait in the engine. What comes beyond waits inside it, so this bounds memory and no messages.
const POSTED: u32 = 32;

/// Writes between two looks at what came back.
const TURN_EVERY: u64 = 16;

/// Longest sleep between looks, in case the other process has ended without a word.
const LOOK: Duration = Duration::from_millis(20);

/// Whether the control connection behind a channel still lives.
#[derive(Default)]
pub(crate) struct Link {
    lost: AtomicBool,
    /// Of those who sleep until it is lost, among others.
    bells: Mutex<Vec<Arc<dyn Bell>>>,
}

impl Link {
    pub fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.bells.lock().unwrap_or_else(PoisonError::into_inner).drain(..).for_each(|bell| bell.ring());
    }

    /// Has its loss end the sleep that a thread is about to begin.
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

/// What both hosts must agree on, sent over TLS.
#[derive(Clone)]
pub(crate) struct Agreement {
    /// Names the engine's conversation.
    pub session: u32,
    /// Key of what this end sends.
    pub outward: [u8; 32],
    /// Key of what this end receives.
    pub inward: [u8; 32],
}

/// The UDP port of one end, open before the other is known.
pub(crate) struct Prepared {
    port: UdpPort,
}

impl Prepared {
    /// Opens a socket at the address by which the control connection reaches this host, and a free port.
    pub fn open(mut address: SocketAddr) -> Result<Prepared> {
        address.set_port(0);
        Ok(Prepared { port: UdpPort::open(address)? })
    }

    pub fn port(&self) -> u16 {
        self.port.local_address().port()
    }

    /// Joins the other end at `peer`. `near`: this is the creator's end, the one that writes where the channel is multicast.
    /// `grant` is asked before memory is taken whether the end may have so much; the end keeps what it gives.
    pub fn join(
        mut self,
        peer: SocketAddr,
        agreement: &Agreement,
        specification: Specification,
        near: bool,
        link: Arc<Link>,
        grant: impl FnOnce(Bytes) -> Result<Shares>,
    ) -> Result<EngineChannel> {
        self.port.add_peer(peer)?;
        let wake = self.port.as_fd().try_clone_to_owned();
        let wake = wake.map_err(|e| Fault::because("socket", e, "raise the limit on open files (ulimit -n)"))?;
        let mut links = udp_links(&self.port, &[agreement.session]);
        let port = SealedPort::new(self.port, &agreement.outward, &agreement.inward);
        for link in &mut links {
            link.mtu = port.capabilities().mtu;
        }
        let shares = grant(memory(&specification, &links[0]))?;
        let mut inner = Inner {
            _shares: shares,
            driver: Driver::new(port, &links),
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
            inner.post()?;
        }
        let shared = Arc::new(Mutex::new(inner));
        pump::add(&shared);
        let may_write = near || specification.cast == Cast::Unicast;
        Ok(EngineChannel { shared, specification, link, may_write, wake })
    }
}

/// What an end may take: messages either way, those that receives are posted for, and what the engine and the port keep
/// of packets.
fn memory(specification: &Specification, link: &LinkConfig) -> Bytes {
    let buffers = &specification.buffers;
    let count = u64::from(buffers.count);
    let messages = 2 * count * (1 + ON_THE_WAY) + count.min(POSTED.into());
    // Out of order and unacknowledged.
    let packets = link.reliability.as_ref().map_or(0, |reliability| 2 * u64::from(reliability.window) * link.mtu.0);
    Bytes(messages.saturating_mul(buffers.size.0) + packets + link.credit_bytes.0 + UdpPort::MEMORY.0)
}

/// The part of an end that its owner and the pump share.
pub(crate) struct Inner {
    /// Given back when nothing of the channel is left, which may be after its owner has let go of it.
    _shares: Shares,
    driver: Driver<SealedPort<UdpPort>, Vec<u8>>,
    /// Bytes of a receive.
    capacity: usize,
    flow: Flow,
    /// Messages that arrived, with their lengths.
    inbox: VecDeque<(Vec<u8>, usize)>,
    receive_spares: Vec<Vec<u8>>,
    send_spares: Vec<Vec<u8>>,
    counted: Counted,
    /// The other end said so, or is dead.
    gone: bool,
    failed: Option<String>,
    /// The owner sleeps on the socket: nobody else may take packets from it.
    waiting: bool,
    /// Of the owner's thread, which sleeps until something happens here.
    bell: Option<Arc<dyn Bell>>,
    dropped_seen: Dropped,
}

impl Inner {
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

    /// Moves what can move.
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

    /// What the pump does: a fault is kept for the owner.
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

    /// Whether its owner is woken by what comes, so that nobody needs to look for it.
    pub fn is_watched(&self) -> bool {
        self.bell.is_some()
    }

    /// When the engine has something to do by itself.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.driver.next_timeout()
    }

    /// Packets from the peer's address that were dropped since the last look.
    pub fn take_dropped(&mut self) -> Dropped {
        let dropped = self.driver.port().dropped();
        let seen = std::mem::replace(&mut self.dropped_seen, dropped);
        Dropped { forged: dropped.forged - seen.forged, replayed: dropped.replayed - seen.replayed }
    }

    /// Nothing is on its way from here.
    pub fn is_quiet(&self) -> bool {
        self.gone || self.failed.is_some() || self.driver.engine.is_quiet()
    }
}

fn lock(shared: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One end. See the module's documentation.
pub(crate) struct EngineChannel {
    shared: Arc<Mutex<Inner>>,
    specification: Specification,
    link: Arc<Link>,
    may_write: bool,
    /// The port's socket, to sleep on.
    wake: OwnedFd,
}

impl EngineChannel {
    /// Lives as long as the channel's socket.
    pub fn life(&self) -> Weak<Mutex<Inner>> {
        Arc::downgrade(&self.shared)
    }
}

impl Channel for EngineChannel {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn write_with(&mut self, length: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<Written> {
        if length as u64 > self.specification.buffers.size.0 {
            return Err(too_long(length, &self.specification));
        }
        if !self.may_write {
            let cause = "this end of a multicast channel reads";
            return Err(Fault::new("channel to another host", cause, "answer over the out-of-band channel"));
        }
        let mut inner = lock(&self.shared);
        // Acknowledgements let the engine's window move on.
        if !inner.flow.has_room() || inner.gone || inner.counted.written.is_multiple_of(TURN_EVERY) {
            inner.turn()?;
        }
        if inner.gone || self.link.is_lost() {
            return Ok(Written::Gone);
        }
        if !inner.flow.has_room() {
            return Ok(match self.specification.delivery {
                Delivery::Reliable => {
                    inner.counted.full += 1;
                    Written::Full
                }
                Delivery::Unreliable => {
                    inner.counted.dropped += 1;
                    Written::Dropped
                }
            });
        }
        let mut buffer = inner.send_spares.pop().unwrap_or_default();
        buffer.resize(length, 0);
        fill(&mut buffer);
        inner.driver.send(PEER, PAYLOAD, buffer, 0)?;
        inner.driver.flush()?;
        inner.flow.sent();
        inner.counted.written += 1;
        pump::ring();
        Ok(Written::Taken)
    }

    fn read_with(&mut self, deliver: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut inner = lock(&self.shared);
        if inner.inbox.is_empty() {
            inner.turn()?;
        }
        let Some((buffer, length)) = inner.inbox.pop_front() else { return Ok(false) };
        inner.counted.read += 1;
        if let Some(read) = inner.flow.read() {
            inner.tell(CREDIT, &read.to_le_bytes())?;
        }
        deliver(&buffer[..length]);
        inner.receive_spares.push(buffer);
        Ok(true)
    }

    fn poll(&mut self) -> Result<bool> {
        let mut inner = lock(&self.shared);
        if inner.inbox.is_empty() {
            inner.turn()?;
        }
        Ok(!inner.inbox.is_empty())
    }

    fn wait(&mut self, limit: Nanoseconds) -> Result<bool> {
        if self.specification.synchronization != Synchronization::Blocking {
            return Err(not_blocking());
        }
        let start = Instant::now();
        let limit = Duration::from_nanos(limit.0);
        loop {
            {
                let mut inner = lock(&self.shared);
                inner.waiting = false;
                if inner.inbox.is_empty() {
                    inner.turn()?;
                }
                if !inner.inbox.is_empty() {
                    return Ok(true);
                }
                if inner.gone || self.link.is_lost() || start.elapsed() >= limit {
                    return Ok(false);
                }
                inner.waiting = true;
            }
            // The engine repeats what was lost, so it must not be left alone for long.
            let left = (limit - start.elapsed().min(limit)).min(LOOK);
            let pause = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
            match poll(&mut [PollFd::new(&self.wake, PollFlags::IN)], Some(&pause)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => {
                    lock(&self.shared).waiting = false;
                    return Err(Fault::because("channel to another host", io::Error::from(e), "make the channel anew"));
                }
            }
        }
    }

    fn arm(&mut self, sleeper: &mut dyn Sleeper) -> bool {
        let mut inner = lock(&self.shared);
        let told = inner.gone;
        // What the pump takes off the socket rings; what nobody has taken yet is seen on the socket.
        inner.bell = Some(sleeper.bell());
        inner.turn_for_owner();
        self.link.arm(sleeper);
        inner.inbox.is_empty() && (inner.gone == told) && sleeper.watch(self.wake.as_fd())
    }

    fn is_abandoned(&self) -> bool {
        let mut inner = lock(&self.shared);
        inner.turn_for_owner();
        inner.gone || self.link.is_lost()
    }

    fn loses(&self) -> Loss {
        Loss::Agent
    }

    fn counted(&self) -> Counted {
        lock(&self.shared).counted
    }
}

impl Drop for EngineChannel {
    fn drop(&mut self) {
        let mut inner = lock(&self.shared);
        if !inner.gone && !self.link.is_lost() && inner.tell(GONE, &[]).is_ok() {
            // It has to arrive, and what was written before it.
            pump::linger(&self.shared);
        }
    }
}
