//! Streams over a simulated link that is slow, has a queue, and loses packets: what of its rate comes through, and who gets it.
//! Time is simulated, so that nothing depends on the machine.

use std::collections::VecDeque;

use engine::{Engine, LinkConfig, Source, TagSelector};
use machine::{Bytes, Capabilities, Nanoseconds, PeerIndex};

const PEER: PeerIndex = PeerIndex(0);
const MTU: usize = 1472;
const MESSAGE: usize = 64 << 10;
const UNDER_WAY: usize = 16;
/// Between two turns of each end, and on the way.
const TURN: u64 = 5_000;
const DELAY: u64 = 30_000;

/// One direction: a token bucket's rate, a queue, a delay, loss.
struct Link {
    bytes_per_ns: f64,
    queue: u64,
    loss: f64,
    random: u64,
    free_at: u64,
    /// When it arrives, its stream, the packet.
    on_the_way: VecDeque<(u64, usize, Vec<u8>)>,
}

impl Link {
    fn new(megabits: f64, queue: u64, loss: f64, seed: u64) -> Link {
        let bytes_per_ns = megabits / 8e3;
        Link { bytes_per_ns, queue, loss, random: seed, free_at: 0, on_the_way: VecDeque::new() }
    }

    fn chance(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }

    fn put(&mut self, now: u64, stream: usize, packet: Vec<u8>) {
        let starts = self.free_at.max(now);
        if starts - now > self.queue {
            return;
        }
        // Ethernet, IP and UDP headers.
        self.free_at = starts + ((packet.len() + 66) as f64 / self.bytes_per_ns) as u64;
        if self.chance() >= self.loss {
            self.on_the_way.push_back((self.free_at + DELAY, stream, packet));
        }
    }

    /// Hands what has arrived to the streams' ends.
    fn deliver(&mut self, now: u64, ends: &mut [End]) {
        while self.on_the_way.front().is_some_and(|(at, ..)| *at <= now) {
            let (_, stream, packet) = self.on_the_way.pop_front().expect("looked at");
            ends[stream].handle_packet(Nanoseconds(now + 1), PEER, &packet);
        }
    }
}

type End = Engine<Vec<u8>>;

fn end() -> End {
    let port = Capabilities { ordered: false, reliable: false, mtu: Bytes(MTU as u64), remote_read: false };
    let mut engine = Engine::new();
    engine.add_peer(LinkConfig::for_port(&port, 7));
    engine
}

/// What has come, timers, what may leave. Streams take turns at who is first.
fn turn(ends: &mut [End], now: u64, from: &mut Link, to: &mut Link) {
    let at = Nanoseconds(now + 1);
    from.deliver(now, ends);
    let first = (now / TURN) as usize;
    for nth in 0..ends.len() {
        let stream = (first + nth) % ends.len();
        let engine = &mut ends[stream];
        if engine.next_timeout().is_some_and(|due| due <= at) {
            engine.handle_timeout(at);
        }
        for _ in 0..engine.ready_peers() {
            let Some(peer) = engine.next_ready() else { break };
            while let Some(length) = engine.plan(at, peer) {
                let mut packet = vec![0; length];
                engine.write(at, peer, &mut packet);
                to.put(now, stream, packet);
            }
        }
    }
}

fn send(engine: &mut End, buffer: Vec<u8>) {
    engine.send(PEER, 1, buffer, 0).unwrap_or_else(|_| panic!("there is such a peer"));
}

fn receive(engine: &mut End, buffer: Vec<u8>) {
    let posted = engine.receive(Source::Any, TagSelector::any(), buffer, 0);
    posted.unwrap_or_else(|_| panic!("anybody is a peer"));
}

/// Mbit/s of each of so many streams that come through in a second.
fn goodput(streams: usize, megabits: f64, loss: f64, seed: u64) -> Vec<f64> {
    let link = |seed| Link::new(megabits, 10_000_000, loss, seed);
    let (mut there, mut back) = (link(seed), link(seed + 1));
    let [mut senders, mut receivers] = [(); 2].map(|()| (0..streams).map(|_| end()).collect::<Vec<_>>());
    for _ in 0..UNDER_WAY {
        senders.iter_mut().for_each(|sender| send(sender, vec![7; MESSAGE]));
        receivers.iter_mut().for_each(|receiver| receive(receiver, vec![0; MESSAGE]));
    }
    let mut received = vec![0; streams];
    let (warm, end) = (300_000_000, 1_300_000_000);
    for now in (0..end).step_by(TURN as usize) {
        turn(&mut senders, now, &mut back, &mut there);
        turn(&mut receivers, now, &mut there, &mut back);
        for sender in &mut senders {
            while let Some(done) = sender.next_completion() {
                send(sender, done.buffer);
            }
        }
        for (receiver, received) in receivers.iter_mut().zip(&mut received) {
            while let Some(done) = receiver.next_completion() {
                *received += if now >= warm { done.envelope.length } else { 0 };
                receive(receiver, done.buffer);
            }
        }
    }
    received.iter().map(|&bytes| bytes as f64 * 8e3 / (end - warm) as f64).collect()
}

#[test]
fn a_link_that_loses_packets_is_used() {
    for (loss, least) in [(0.0, 0.9), (0.001, 0.9), (0.01, 0.85), (0.05, 0.75)] {
        for seed in [3, 77, 1021] {
            let through = goodput(1, 200.0, loss, seed)[0];
            assert!(through >= least * 200.0, "{} % lost, seed {seed}: {through:.1} of 200 Mbit/s", loss * 100.0);
        }
    }
}

#[test]
fn streams_share_a_link() {
    for seed in [5, 78, 1022] {
        let through = goodput(3, 300.0, 0.0, seed);
        let (sum, squares) = (through.iter().sum::<f64>(), through.iter().map(|rate| rate * rate).sum::<f64>());
        let fairness = sum * sum / squares / through.len() as f64;
        assert!(
            sum >= 0.85 * 300.0 && fairness >= 0.9,
            "seed {seed}: {through:.1?} Mbit/s, Jain's index {fairness:.2}"
        );
    }
}
