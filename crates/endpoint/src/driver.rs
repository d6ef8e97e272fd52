//! The engine joined to a port and the clock. The code is the same at every placement; only the caller differs.

use std::time::{Duration, Instant};

use engine::{
    Apart, Claim, Completion, Engine, Label, LinkConfig, Request, Source, TagSelector, Take, TakeNothing,
    unknown_claim, unknown_peer, write_bytes,
};
use machine::{Nanoseconds, Notice, PeerIndex, Port, Result, Sent};

/// Packets taken from the port before anything is sent.
const RECEIVE_BUDGET: usize = 64;
/// One of so many idle polls is a full one.
const IDLE_POLLS_PER_TURN: u32 = 16;
/// Polls between two looks for news about peers, which cost system calls.
pub(crate) const TURNS_PER_NOTICE: u32 = 16_384;
/// Polls that a yield of the caller counts for besides its own.
const WAITED: u32 = 4;

/// Memory of a message: it goes into the engine with a request and comes back with the completion.
pub trait Buffer: engine::Buffer + Send + 'static {}

impl<B: engine::Buffer + Send + 'static> Buffer for B {}

/// The settings of the next peer that the port has and the engine does not know.
pub(crate) type Admit<P> = fn(&mut P) -> Option<LinkConfig>;

/// The timing of one copy, where the engine asks for it.
enum Stopwatch {
    Unasked,
    Asked,
    Stopped(Nanoseconds),
}

impl Stopwatch {
    #[inline(always)]
    fn of(asked: bool) -> Stopwatch {
        if asked { Stopwatch::Asked } else { Stopwatch::Unasked }
    }

    #[inline(always)]
    fn time(&mut self, copy: impl FnOnce()) {
        if matches!(self, Stopwatch::Unasked) {
            return copy();
        }
        let began = Instant::now();
        copy();
        *self = Stopwatch::Stopped(Nanoseconds(began.elapsed().as_nanos() as u64));
    }

    #[inline(always)]
    fn read(&self) -> Option<Nanoseconds> {
        if let Stopwatch::Stopped(time) = self { Some(*time) } else { None }
    }
}

pub struct Driver<P, B> {
    pub engine: Engine<B>,
    port: P,
    admit: Option<Admit<P>>,
    origin: Instant,
    /// False on reliable ports, which need no time: reading the clock costs a fifth of a short message.
    timed: bool,
    fetches: bool,
    turns: u32,
    /// `turns` at the last look for news, less the allowance for yields since then.
    noticed: u32,
    /// Whether [`Driver::flush_first`] has flushed since the last poll.
    flushed_first: bool,
}

impl<P: Port, B: Buffer> Driver<P, B> {
    /// `links[i]` configures the port's peer `i`.
    pub fn new(port: P, links: &[LinkConfig]) -> Self {
        let mut driver = Driver {
            engine: Engine::new(),
            port,
            admit: None,
            origin: Instant::now(),
            timed: false,
            fetches: false,
            turns: 0,
            noticed: 0,
            flushed_first: false,
        };
        for link in links {
            driver.add(link.clone());
        }
        driver
    }

    /// A driver over a port that gets its peers while it is used.
    pub(crate) fn admitting(port: P, admit: Admit<P>) -> Self {
        Driver { admit: Some(admit), ..Driver::new(port, &[]) }
    }

    fn add(&mut self, link: LinkConfig) {
        self.timed |= link.reliability.is_some();
        self.fetches |= link.remote_read;
        self.engine.add_peer(link);
    }

    /// Tells the engine of the port's new peers.
    #[cold]
    pub(crate) fn admit(&mut self) {
        let Some(admit) = self.admit else { return };
        while let Some(link) = admit(&mut self.port) {
            self.add(link);
        }
    }

    pub fn port(&self) -> &P {
        &self.port
    }

    pub(crate) fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Time for which the engine can be left alone if nothing comes; `None`: for ever.
    pub fn next_timeout(&self) -> Option<Duration> {
        let left = self.engine.next_timeout()?.0.saturating_sub(self.now().0);
        Some(Duration::from_nanos(left))
    }

    #[inline]
    fn now(&self) -> Nanoseconds {
        if self.timed { Nanoseconds(self.origin.elapsed().as_nanos() as u64 + 1) } else { Nanoseconds(0) }
    }

    #[inline]
    pub fn send(&mut self, peer: PeerIndex, label: impl Into<Label>, buffer: B, context: u64) -> Result<Request> {
        let label = label.into();
        if let Some(length) = self.engine.plan_short(peer, &label, buffer.length()) {
            let mut stopwatch = Stopwatch::of(self.engine.times_copy(peer, length));
            let write = |into: &mut [u8]| stopwatch.time(|| Engine::write_short(&label, &buffer, into));
            if self.port.send(peer, length, write)? == Sent::Taken {
                if let Some(time) = stopwatch.read() {
                    self.engine.copied(peer, length, time);
                }
                return Ok(self.engine.sent_short(peer, label, buffer, context));
            }
        }
        let request = self.engine.send(peer, label, buffer, context).map_err(|refusal| unknown_peer(refusal.peer))?;
        self.transmit(self.now())?;
        Ok(request)
    }

    /// Sends as [`Driver::send`] does, if `bytes` can leave at once; then nothing completes. False otherwise.
    #[inline(always)]
    pub fn inject(&mut self, peer: PeerIndex, label: &Label, bytes: &[u8]) -> Result<bool> {
        let Some(length) = self.engine.plan_short(peer, label, bytes.len()) else { return Ok(false) };
        if self.port.send(peer, length, |into| write_bytes(label, bytes, into))? != Sent::Taken {
            return Ok(false);
        }
        self.engine.injected(peer, bytes.len() as u64);
        Ok(true)
    }

    /// Sends a message whose completion proves that the receiver has matched it.
    pub fn send_confirmed(&mut self, peer: PeerIndex, label: Label, buffer: B, context: u64) -> Result<Request> {
        let request =
            self.engine.send_confirmed(peer, label, buffer, context).map_err(|refusal| unknown_peer(refusal.peer))?;
        self.transmit(self.now())?;
        Ok(request)
    }

    #[inline(always)]
    pub fn receive(&mut self, source: Source, selector: TagSelector, buffer: B, context: u64) -> Result<Request> {
        self.engine.receive(source, selector, buffer, context).map_err(|refusal| unknown_peer(refusal.peer))
    }

    pub fn receive_claimed(&mut self, claim: Claim, buffer: B, context: u64) -> Result<Request> {
        self.engine.receive_claimed(claim, buffer, context).map_err(|_| unknown_claim())
    }

    pub(crate) fn discard(&mut self, claim: Claim) -> Result<()> {
        self.engine.discard(claim);
        Ok(())
    }

    /// Flushes after the first send since the last poll; the next poll sends later ones together. So a caller that sends one
    /// message and then does not poll for long has sent it.
    #[inline]
    pub fn flush_first(&mut self) -> Result<()> {
        if !self.timed || self.flushed_first {
            return Ok(());
        }
        self.flushed_first = true;
        self.port.flush()
    }

    /// Whether the next poll can be left out; it is then counted all the same.
    #[inline(always)]
    pub(crate) fn can_skip_poll(&mut self) -> bool {
        let next = self.turns.wrapping_add(1);
        let can_skip_poll =
            !next.is_multiple_of(IDLE_POLLS_PER_TURN) && !self.timed && self.engine.is_idle() && self.port.is_idle();
        if can_skip_poll {
            self.turns = next;
        }
        can_skip_poll
    }

    /// Notes that the caller has let others run.
    pub(crate) fn waited(&mut self) {
        self.noticed = self.noticed.wrapping_sub(WAITED);
        self.port.waited();
    }

    /// Moves whatever can move now; whether a packet came in.
    #[inline]
    pub fn turn(&mut self) -> Result<bool> {
        self.turn_with(&mut TakeNothing)
    }

    /// As [`Driver::turn`]; `taker` is told of messages as by [`Engine::handle_packet_with`].
    #[inline(always)]
    pub(crate) fn turn_with(&mut self, taker: &mut impl Take<B>) -> Result<bool> {
        // Recent sends go first: polling the port may cost a system call.
        self.port.flush()?;
        self.flushed_first = false;
        let now = self.now();
        let Driver { engine, port, .. } = self;
        let came =
            port.receive(RECEIVE_BUDGET, move |peer, packet| engine.handle_packet_with(now, peer, packet, taker))?;
        if self.port.arrivals() > self.engine.peers() {
            self.admit();
        }
        let Driver { engine, port, .. } = self;
        if self.timed && engine.next_timeout().is_some_and(|at| at <= now) {
            engine.handle_timeout(now);
        }
        if self.fetches && engine.has_reads() {
            // A fault closes remote reads of the peer; the engine then has the bytes sent in packets.
            engine.carry_out_reads(|peer, address, into| port.read_remote(peer, address, into).is_ok());
        }
        self.transmit(now)?;
        self.port.flush()?;
        self.engine.end_departed();
        self.turns = self.turns.wrapping_add(1);
        if self.turns.wrapping_sub(self.noticed) >= TURNS_PER_NOTICE {
            self.noticed = self.turns;
            self.notice()?;
        }
        Ok(came > 0)
    }

    /// Hands the engine's packets to the port, until it is full.
    #[inline]
    fn transmit(&mut self, now: Nanoseconds) -> Result<()> {
        if self.engine.ready_peers() == 0 { Ok(()) } else { self.transmit_ready(now) }
    }

    #[inline(never)]
    fn transmit_ready(&mut self, now: Nanoseconds) -> Result<()> {
        for _ in 0..self.engine.ready_peers() {
            let Some(peer) = self.engine.next_ready() else { break };
            while let Some(length) = self.engine.plan(now, peer) {
                let Driver { engine, port, .. } = self;
                let apart = engine.apart(peer);
                let mut stopwatch = Stopwatch::of(engine.times_copy(peer, length));
                let write = |into: &mut [u8]| stopwatch.time(|| engine.write(now, peer, into));
                let sent = match apart {
                    Some(Apart { head, body }) => port.send_apart(peer, head, write, &body)?,
                    None => port.send(peer, length, write)?,
                };
                if let Some(time) = stopwatch.read() {
                    self.engine.copied(peer, length, time);
                }
                match sent {
                    Sent::Taken => {}
                    Sent::Full => {
                        self.engine.defer(peer);
                        break;
                    }
                    Sent::Gone => {
                        self.engine.peer_dead(peer);
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Hands batched packets to the wire, and acknowledgements that a peer is known to wait for.
    #[inline]
    pub fn flush(&mut self) -> Result<()> {
        if self.has_to_flush() { self.flush_ready() } else { self.port.flush() }
    }

    /// Whether a flush must do more than flush the port.
    #[inline]
    pub(crate) fn has_to_flush(&self) -> bool {
        self.timed || self.engine.ready_peers() > 0
    }

    #[inline(never)]
    fn flush_ready(&mut self) -> Result<()> {
        let now = self.now();
        if self.timed && self.engine.next_timeout().is_some_and(|at| at <= now) {
            self.engine.handle_timeout(now);
        }
        self.transmit(now)?;
        self.port.flush()
    }

    pub fn notice(&mut self) -> Result<()> {
        let Driver { engine, port, .. } = self;
        port.notices(|notice| match notice {
            Notice::Dead(peer) | Notice::Closed(peer) => engine.peer_dead(peer),
            Notice::Refused(peer) => engine.peer_refused(peer),
        })?;
        self.admit();
        Ok(())
    }

    /// Polls unless a request has ended already; returns one that has.
    #[inline]
    pub fn poll(&mut self) -> Result<Option<Completion<B>>> {
        if let Some(done) = self.next_completion() {
            return Ok(Some(done));
        }
        self.turn()?;
        Ok(self.next_completion())
    }

    #[inline]
    pub fn next_completion(&mut self) -> Option<Completion<B>> {
        self.engine.next_completion()
    }
}
