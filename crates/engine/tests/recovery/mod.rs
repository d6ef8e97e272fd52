//! Streams over a simulated link that is slow, has a queue, and loses packets: the goodput, and how streams share it.
//! Time is simulated, so that nothing depends on the machine.

mod link;
mod stalls;
mod tcp;

use engine::{Engine, LinkConfig, Source, TagSelector};
use link::Link;
use machine::{Bytes, Capabilities, Nanoseconds, PeerIndex};

const PEER: PeerIndex = PeerIndex(0);
const MTU: usize = 1472;
const MESSAGE: usize = 64 << 10;
const UNDER_WAY: usize = 16;
/// Time between two polls of each end, ns.
const TURN: u64 = 5_000;
const QUEUE: u64 = 10_000_000;

/// One end of a stream.
trait End {
    fn handle(&mut self, now: u64, packet: &[u8]);
    /// Handles timers and sends what may leave.
    fn turn(&mut self, now: u64, stream: usize, to: &mut Link);
    /// Bytes since the last call.
    fn received(&mut self) -> u64;
}

/// The engine, which sends messages without end, or receives them.
struct Ours {
    engine: Engine<Vec<u8>>,
    sends: bool,
    received: u64,
}

impl Ours {
    fn new(sends: bool) -> Ours {
        let port = Capabilities { ordered: false, reliable: false, mtu: Bytes(MTU as u64), remote_read: false };
        let mut engine = Engine::new();
        engine.add_peer(LinkConfig::for_port(&port, 7));
        let mut end = Ours { engine, sends, received: 0 };
        (0..UNDER_WAY).for_each(|_| end.post(vec![7; MESSAGE]));
        end
    }

    fn post(&mut self, buffer: Vec<u8>) {
        let posted = match self.sends {
            true => self.engine.send(PEER, 1, buffer, 0).is_ok(),
            false => self.engine.receive(Source::Any, TagSelector::any(), buffer, 0).is_ok(),
        };
        assert!(posted, "there is such a peer");
    }
}

impl End for Ours {
    fn handle(&mut self, now: u64, packet: &[u8]) {
        self.engine.handle_packet(Nanoseconds(now + 1), PEER, packet);
    }

    fn turn(&mut self, now: u64, stream: usize, to: &mut Link) {
        let at = Nanoseconds(now + 1);
        if self.engine.next_timeout().is_some_and(|due| due <= at) {
            self.engine.handle_timeout(at);
        }
        for _ in 0..self.engine.ready_peers() {
            let Some(peer) = self.engine.next_ready() else { break };
            while let Some(length) = self.engine.plan(at, peer) {
                let mut packet = vec![0; length];
                self.engine.write(at, peer, &mut packet);
                to.put(now, stream, packet);
            }
        }
        while let Some(done) = self.engine.next_completion() {
            self.received += done.envelope.length;
            self.post(done.buffer);
        }
    }

    fn received(&mut self) -> u64 {
        std::mem::take(&mut self.received)
    }
}

type Ends = Vec<[Box<dyn End>; 2]>;

fn ours() -> [Box<dyn End>; 2] {
    [true, false].map(|sends| Box::new(Ours::new(sends)) as Box<dyn End>)
}

fn kernel_tcp() -> [Box<dyn End>; 2] {
    [Box::new(tcp::Sender::new()), Box::new(tcp::Receiver::default())]
}

/// Goodput of each stream, Mbit/s, over `counted` seconds after `warm` seconds.
fn goodput(streams: Ends, megabits: f64, loss: f64, seed: u64, times: [f64; 2]) -> Vec<f64> {
    behind(QUEUE, streams, megabits, loss, seed, times)
}

/// The same where a packet waits for at most `queue` ns.
fn behind(queue: u64, mut streams: Ends, megabits: f64, loss: f64, seed: u64, [warm, counted]: [f64; 2]) -> Vec<f64> {
    let mut links = [seed, seed + 1].map(|seed| Link::new(megabits, queue, loss, seed));
    let [warm, counted] = [warm, counted].map(|seconds| (seconds * 1e9) as u64 / TURN * TURN);
    for now in (0..warm + counted).step_by(TURN as usize) {
        if now == warm {
            streams.iter_mut().for_each(|[_, receiver]| _ = receiver.received());
        }
        for side in [0, 1] {
            while let Some((stream, packet)) = links[1 - side].take(now) {
                streams[stream][side].handle(now, &packet);
            }
            // The first end alternates.
            for nth in 0..streams.len() {
                let stream = ((now / TURN) as usize + nth) % streams.len();
                streams[stream][side].turn(now, stream, &mut links[side]);
            }
        }
    }
    streams.iter_mut().map(|[_, receiver]| receiver.received() as f64 * 8e3 / counted as f64).collect()
}

#[test]
fn a_link_that_loses_packets_is_used() {
    for (loss, least) in [(0.0, 0.9), (0.001, 0.9), (0.01, 0.85), (0.05, 0.75)] {
        for seed in [3, 77, 1021] {
            let through = goodput(vec![ours()], 200.0, loss, seed, [0.3, 1.0])[0];
            assert!(through >= least * 200.0, "{} % lost, seed {seed}: {through:.1} of 200 Mbit/s", loss * 100.0);
        }
    }
}

/// A few losses beside those of the queue: without them every run is the same.
#[test]
fn streams_share_a_link() {
    share(&[5]);
}

#[test]
#[ignore = "make check"]
fn streams_share_a_link_at_other_seeds() {
    share(&[78, 1022]);
}

fn share(seeds: &[u64]) {
    for &seed in seeds {
        let through = goodput(vec![ours(), ours(), ours()], 300.0, 0.0003, seed, [3.0, 10.0]);
        let (sum, squares) = (through.iter().sum::<f64>(), through.iter().map(|rate| rate * rate).sum::<f64>());
        let fairness = sum * sum / squares / through.len() as f64;
        assert!(
            sum >= 0.85 * 300.0 && fairness >= 0.9,
            "seed {seed}: {through:.1?} Mbit/s, Jain's index {fairness:.2}"
        );
    }
}

#[test]
fn a_link_is_shared_with_tcp() {
    share_with_tcp(&[3]);
}

#[test]
#[ignore = "make check"]
fn a_link_is_shared_with_tcp_at_other_seeds() {
    share_with_tcp(&[77, 1021]);
}

fn share_with_tcp(seeds: &[u64]) {
    for &seed in seeds {
        let through = goodput(vec![ours(), kernel_tcp()], 200.0, 0.0003, seed, [3.0, 10.0]);
        let sum: f64 = through.iter().sum();
        assert!(sum >= 0.9 * 200.0 && (0.4..=0.6).contains(&(through[0] / sum)), "seed {seed}: {through:.1?} Mbit/s");
    }
}

/// A queue shorter than the bursts of a full window.
#[test]
fn a_short_queue_is_not_overrun() {
    for (megabits, queue) in [(1000.0, 100_000), (5000.0, 100_000), (5000.0, 50_000)] {
        let through = behind(queue, vec![ours()], megabits, 0.0, 3, [0.2, 0.5])[0];
        assert!(through >= 0.85 * megabits, "{} us of queue: {through:.0} of {megabits} Mbit/s", queue / 1000);
    }
}
