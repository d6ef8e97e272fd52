//! Both semantics behind the same few calls, so that one suite serves both.
#![allow(dead_code, reason = "each test file takes what it needs")]

pub mod faulty;

use engine::{Direction, Engine, Envelope, LinkConfig, Source, Status, TagSelector};
use machine::{Nanoseconds, Notice, PeerIndex, Port, Sent};
use queue_pair::{Endpoint, Link, Settings};

/// A request that has ended.
pub struct Ended {
    pub context: u64,
    pub direction: Direction,
    pub envelope: Envelope,
    pub status: Status,
    pub buffer: Vec<u8>,
}

pub trait Layer {
    fn send(&mut self, peer: PeerIndex, tag: u64, buffer: Vec<u8>, context: u64);
    fn receive(&mut self, source: Source, selector: TagSelector, buffer: Vec<u8>, context: u64);
    /// Polls once; requests that have ended go into `ended`.
    fn turn(&mut self, ended: &mut Vec<Ended>);
    fn notices(&mut self);
}

impl<P: Port> Layer for Endpoint<P, Vec<u8>> {
    fn send(&mut self, peer: PeerIndex, tag: u64, buffer: Vec<u8>, context: u64) {
        Endpoint::send(self, peer, tag, buffer, context).unwrap();
    }

    fn receive(&mut self, source: Source, selector: TagSelector, buffer: Vec<u8>, context: u64) {
        Endpoint::receive(self, source, selector, buffer, context).unwrap();
    }

    fn turn(&mut self, ended: &mut Vec<Ended>) {
        Endpoint::turn(self).unwrap();
        while let Some(done) = self.next_completion() {
            let engine::Completion { context, direction, envelope, status, buffer, .. } = done;
            ended.push(Ended { context, direction, envelope, status, buffer });
        }
    }

    fn notices(&mut self) {
        Endpoint::notices(self).unwrap();
    }
}

/// The engine with the smallest driver there is.
pub struct Matched<P> {
    engine: Engine<Vec<u8>>,
    port: P,
    origin: std::time::Instant,
}

impl<P: Port> Matched<P> {
    pub fn new(port: P, peers: usize) -> Self {
        let mut engine = Engine::new();
        let mut link = LinkConfig::for_port(&port.capabilities(), 5);
        // Long messages are to wait for their receiver, as those over queue pairs do.
        link.eager_limit = machine::Bytes(2 << 10);
        for _ in 0..peers {
            engine.add_peer(link.clone());
        }
        Matched { engine, port, origin: std::time::Instant::now() }
    }

    fn now(&self) -> Nanoseconds {
        Nanoseconds(self.origin.elapsed().as_nanos() as u64 + 1)
    }
}

impl<P: Port> Layer for Matched<P> {
    fn send(&mut self, peer: PeerIndex, tag: u64, buffer: Vec<u8>, context: u64) {
        self.engine.send(peer, tag, buffer, context).map_err(|refusal| refusal.peer).unwrap();
    }

    fn receive(&mut self, source: Source, selector: TagSelector, buffer: Vec<u8>, context: u64) {
        self.engine.receive(source, selector, buffer, context).map_err(|refusal| refusal.peer).unwrap();
    }

    fn turn(&mut self, ended: &mut Vec<Ended>) {
        let now = self.now();
        let Matched { engine, port, .. } = self;
        port.receive(64, |peer, packet| engine.handle_packet(now, peer, packet)).unwrap();
        if engine.next_timeout().is_some_and(|at| at <= now) {
            engine.handle_timeout(now);
        }
        for _ in 0..engine.ready_peers() {
            let Some(peer) = engine.next_ready() else { break };
            while let Some(length) = engine.plan(now, peer) {
                match port.send(peer, length, |into| engine.write(now, peer, into)).unwrap() {
                    Sent::Taken => {}
                    Sent::Full => {
                        engine.defer(peer);
                        break;
                    }
                    Sent::Gone => {
                        engine.peer_dead(peer);
                        break;
                    }
                }
            }
        }
        port.flush().unwrap();
        while let Some(done) = engine.next_completion() {
            let engine::Completion { context, direction, envelope, status, buffer, .. } = done;
            ended.push(Ended { context, direction, envelope, status, buffer });
        }
    }

    fn notices(&mut self) {
        let Matched { engine, port, .. } = self;
        port.notices(|notice| match notice {
            Notice::Dead(peer) | Notice::Closed(peer) => engine.peer_dead(peer),
            Notice::Refused(_) => {}
        })
        .unwrap();
    }
}

pub type Pairs<P> = Endpoint<P, Vec<u8>>;

/// A hub connected to leaves by queue pairs, over ports with the same wiring.
pub fn connected<P: Port>(hub: P, leaves: Vec<P>, settings: &Settings) -> (Pairs<P>, Vec<Pairs<P>>) {
    let mut hub = Endpoint::open(hub, settings).unwrap();
    let leaves = leaves
        .into_iter()
        .map(|port| {
            let link = Link::of(&port.capabilities());
            let mut leaf = Endpoint::open(port, settings).unwrap();
            let (to_hub, leaf_address) = leaf.create(link).unwrap();
            let (to_leaf, hub_address) = hub.create(link).unwrap();
            leaf.connect(to_hub, hub_address).unwrap();
            hub.connect(to_leaf, leaf_address).unwrap();
            leaf
        })
        .collect();
    (hub, leaves)
}

/// The same ends, connected as their first messages leave.
pub fn admitted<P: Port>(hub: P, leaves: Vec<P>, settings: &Settings) -> (Pairs<P>, Vec<Pairs<P>>) {
    let mut hub = Endpoint::open(hub, settings).unwrap();
    let leaves = leaves
        .into_iter()
        .map(|port| {
            let link = Link::of(&port.capabilities());
            let mut leaf = Endpoint::open(port, settings).unwrap();
            leaf.admit(link);
            hub.admit(link);
            leaf
        })
        .collect();
    (hub, leaves)
}

/// SplitMix64 (Steele, Lea, Flood 2014).
pub struct Random(pub u64);

impl Random {
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.draw() % bound as u64) as usize
    }
}
