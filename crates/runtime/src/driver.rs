//! Joins the engine to a port and the clock. The same code at every placement: only who calls it differs.

use std::time::Instant;

use engine::{Completion, Engine, Envelope, LinkConfig, RequestId, Source, Tag, TagSelector};
use machine::{Fault, Nanoseconds, Notice, PeerIndex, Port, Result, Sent};

/// Packets taken from the port before anything is sent.
const RECEIVE_BUDGET: usize = 64;
/// Turns between two looks for news about peers.
const TURNS_PER_NOTICE: u32 = 4096;

/// What holds a message: it goes into the engine with a request and comes back with the completion.
pub trait Buffer: AsRef<[u8]> + AsMut<[u8]> + Send + 'static {}

impl<B: AsRef<[u8]> + AsMut<[u8]> + Send + 'static> Buffer for B {}

pub(crate) struct Driver<P, B> {
    pub engine: Engine<B>,
    port: P,
    origin: Instant,
    /// Reliable ports need no time, and reading the clock costs a fifth of a short message.
    timed: bool,
    fetches: bool,
    turns: u32,
}

pub(crate) fn unknown_peer(peer: PeerIndex) -> Fault {
    Fault::new(format!("peer {}", peer.0), "no such peer was added to this endpoint", "use an index that adding gave")
}

impl<P: Port, B: Buffer> Driver<P, B> {
    /// `links[i]` configures the port's peer `i`.
    pub fn new(port: P, links: &[LinkConfig]) -> Self {
        let mut engine = Engine::new();
        for link in links {
            engine.add_peer(link.clone());
        }
        Driver {
            engine,
            port,
            origin: Instant::now(),
            timed: links.iter().any(|link| link.reliability.is_some()),
            fetches: links.iter().any(|link| link.remote_read),
            turns: 0,
        }
    }

    pub fn port(&self) -> &P {
        &self.port
    }

    #[inline]
    fn now(&self) -> Nanoseconds {
        if self.timed { Nanoseconds(self.origin.elapsed().as_nanos() as u64 + 1) } else { Nanoseconds(0) }
    }

    #[inline]
    pub fn send(&mut self, peer: PeerIndex, tag: Tag, buffer: B, context: u64) -> Result<RequestId> {
        let bytes = buffer.as_ref();
        if let Some(length) = self.engine.plan_short(peer, bytes.len())
            && self.port.send(peer, length, |into| Engine::<B>::write_short(tag, bytes, into))? == Sent::Taken
        {
            return Ok(self.engine.sent_short(peer, tag, buffer, context));
        }
        let request = self.engine.send(peer, tag, buffer, context).map_err(|refusal| unknown_peer(refusal.peer))?;
        self.transmit(self.now())?;
        Ok(request)
    }

    #[inline]
    pub fn receive(&mut self, source: Source, selector: TagSelector, buffer: B, context: u64) -> Result<RequestId> {
        self.engine.receive(source, selector, buffer, context).map_err(|refusal| unknown_peer(refusal.peer))
    }

    pub fn probe(&mut self, source: Source, selector: TagSelector) -> Option<Envelope> {
        self.engine.probe(source, selector)
    }

    /// Moves whatever can move now. True if a packet came in.
    #[inline]
    pub fn turn(&mut self) -> Result<bool> {
        // What the application has just sent goes first: a look at the port may cost a system call.
        self.port.flush()?;
        let now = self.now();
        let Driver { engine, port, .. } = self;
        let came = port.receive(RECEIVE_BUDGET, |peer, packet| engine.handle_packet(now, peer, packet))?;
        if self.timed && engine.next_timeout().is_some_and(|at| at <= now) {
            engine.handle_timeout(now);
        }
        if self.fetches {
            // A fault closes this way for the peer; the engine then has the bytes sent in packets.
            engine.carry_out_reads(|peer, address, into| port.read_remote(peer, address, into).is_ok());
        }
        self.transmit(now)?;
        self.port.flush()?;
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(TURNS_PER_NOTICE) {
            self.notice()?;
        }
        Ok(came > 0)
    }

    /// Hands the engine's packets to the port, until it is full.
    #[inline]
    fn transmit(&mut self, now: Nanoseconds) -> Result<()> {
        let ready = self.engine.ready_peers();
        if ready == 0 {
            return Ok(());
        }
        for _ in 0..ready {
            let Some(peer) = self.engine.next_ready() else { break };
            while let Some(length) = self.engine.plan(now, peer) {
                let Driver { engine, port, .. } = self;
                match port.send(peer, length, |into| engine.write(now, peer, into))? {
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

    pub fn flush(&mut self) -> Result<()> {
        self.transmit(self.now())?;
        self.port.flush()
    }

    pub fn notice(&mut self) -> Result<()> {
        let Driver { engine, port, .. } = self;
        port.notices(|notice| match notice {
            Notice::Dead(peer) | Notice::Closed(peer) => engine.peer_dead(peer),
            Notice::Refused(peer) => engine.peer_refused(peer),
        })
    }

    #[inline]
    pub fn next_completion(&mut self) -> Option<Completion<B>> {
        self.engine.next_completion()
    }
}
