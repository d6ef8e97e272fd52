//! Random traffic over both semantics, checked against MPI's rules for the order of matching.
//!
//! `PLIMSOLL_SEED=n cargo test -p queue-pair conformance` replays a failure.

use std::time::Instant;

use crate::layers::faulty::{Faulty, Rates};
use crate::layers::{Ended, Layer, Matched, Random, admitted};
use engine::{Direction, Source, Space, Status, TagSelector};
use machine::PeerIndex;
use machine::port::memory::{Geometry, star};
use queue_pair::{Counters, ReceiveQueues, Settings};

const LEAVES: usize = 4;
const TAGS: u64 = 5;
const LENGTHS: [usize; 8] = [0, 1, 8, 100, 500, 2032, 5_000, 40_000];

/// One sent message.
struct Sent {
    from: usize,
    tag: u64,
    length: usize,
    /// The receive that took it, numbered in the order of posting at its end.
    taken_by: Option<usize>,
}

#[derive(Clone, Copy)]
struct Posted {
    source: Source,
    tag: u64,
    mask: u64,
    room: usize,
}

/// End 0 is the hub, whose peer `i` is end `i + 1`; every other end has the hub for peer 0.
struct World<'a> {
    ends: Vec<&'a mut dyn Layer>,
    /// Messages to each end, and receives at it.
    sent: Vec<Vec<Sent>>,
    posted: Vec<Vec<Posted>>,
    received: usize,
    sends_ended: usize,
}

fn content(number: usize, length: usize) -> Vec<u8> {
    (0..length)
        .map(|place| (number as u8).wrapping_mul(37) ^ (place as u8).wrapping_mul(11) ^ (place >> 8) as u8)
        .collect()
}

impl World<'_> {
    /// The index of end `from` at end `to`.
    fn known_as(to: usize, from: usize) -> PeerIndex {
        PeerIndex(if to == 0 { from as u32 - 1 } else { 0 })
    }

    fn send(&mut self, from: usize, to: usize, random: &mut Random) {
        let (tag, length) = (random.draw() % TAGS, LENGTHS[random.below(LENGTHS.len())]);
        let number = self.sent[to].len();
        self.sent[to].push(Sent { from, tag, length, taken_by: None });
        self.ends[from].send(Self::known_as(from, to), tag, content(number, length), number as u64);
    }

    fn post(&mut self, at: usize, random: &mut Random, all: bool) {
        let peers = if at == 0 { LEAVES } else { 1 };
        let source = match random.below(3) {
            _ if all => Source::Any,
            0 => Source::Any,
            _ => Source::Peer(PeerIndex(random.below(peers) as u32)),
        };
        let mask = if all { 0 } else { [u64::MAX, 0, 1][random.below(3)] };
        let tag = (random.draw() % TAGS) & mask;
        let room = if all { 40_000 } else { [40_000, 40_000, 64][random.below(3)] };
        let number = self.posted[at].len() as u64;
        self.posted[at].push(Posted { source, tag, mask, room });
        self.ends[at].receive(source, TagSelector::masked(tag, mask), vec![0xEE; room], number);
    }

    /// Messages carry no number: a received one is the oldest, from this sender with this tag and length, that has its content
    /// and was not taken.
    fn ended(&mut self, at: usize, ended: Ended) {
        assert!(matches!(ended.status, Status::Done | Status::Truncated), "{:?}", ended.status);
        if ended.direction == Direction::Send {
            self.sends_ended += 1;
            return;
        }
        self.received += 1;
        let posted = self.posted[at][ended.context as usize];
        let from = if at == 0 { ended.envelope.peer.0 as usize + 1 } else { 0 };
        let came = ended.envelope.length as usize;
        let kept = came.min(posted.room);
        assert_eq!(ended.status == Status::Truncated, kept < came);
        let found = self.sent[at].iter_mut().enumerate().find(|(number, sent)| {
            let same = (sent.from, sent.tag, sent.length) == (from, ended.envelope.tag, came);
            same && sent.taken_by.is_none() && ended.buffer[..kept] == content(*number, came)[..kept]
        });
        let (_, sent) = found.expect("what was received was sent, and once");
        sent.taken_by = Some(ended.context as usize);
    }

    /// Checks that a receive of a sender's message k leaves no earlier message of that sender that it takes too, unless a
    /// receive posted before it has that one.
    fn check_order(&self) {
        for (at, sent) in self.sent.iter().enumerate() {
            for (k, message) in sent.iter().enumerate() {
                let taken_by = message.taken_by.expect("every message was received");
                let receive = self.posted[at][taken_by];
                let selector = TagSelector::masked(receive.tag, receive.mask);
                assert!(
                    receive.source.takes(Self::known_as(at, message.from))
                        && selector.takes(Space::Tagged, message.tag)
                );
                for earlier in
                    sent[..k].iter().filter(|e| e.from == message.from && selector.takes(Space::Tagged, e.tag))
                {
                    assert!(
                        earlier.taken_by.unwrap() < taken_by,
                        "at end {at}: receive {taken_by} took a message though an earlier one fits it"
                    );
                }
            }
        }
    }

    fn turn(&mut self) {
        let mut ended = Vec::new();
        for at in 0..self.ends.len() {
            self.ends[at].turn(&mut ended);
            for one in ended.drain(..) {
                self.ended(at, one);
            }
        }
    }
}

fn traffic<'a>(hub: &'a mut dyn Layer, leaves: Vec<&'a mut dyn Layer>, seed: u64, steps: usize) {
    let mut ends = vec![hub];
    ends.extend(leaves);
    let count = ends.len();
    let mut world = World {
        ends,
        sent: (0..count).map(|_| Vec::new()).collect(),
        posted: vec![Vec::new(); count],
        received: 0,
        sends_ended: 0,
    };
    let mut random = Random(seed);
    for _ in 0..steps {
        let leaf = 1 + random.below(LEAVES);
        let (from, to) = if random.below(2) == 0 { (0, leaf) } else { (leaf, 0) };
        match random.below(8) {
            0..3 => world.send(from, to, &mut random),
            3..6 => world.post(to, &mut random, false),
            _ => world.turn(),
        }
    }
    // The rest on either side is met by receives that take anything, or by messages sent for it.
    let until = Instant::now() + skip::LIMIT;
    let total: usize = world.sent.iter().map(Vec::len).sum();
    while world.received < total || world.sends_ended < total {
        assert!(Instant::now() < until, "{} of {total} received, {} sent", world.received, world.sends_ended);
        for _ in 0..50 {
            world.turn();
        }
        for at in 0..count {
            let missing = world.sent[at].iter().filter(|sent| sent.taken_by.is_none()).count();
            if missing > 0 && world.posted[at].len() < 4 * (steps + 1) {
                world.post(at, &mut random, true);
            }
        }
    }
    world.check_order();
}

fn seeds() -> Vec<u64> {
    match std::env::var("PLIMSOLL_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => (1..=12).collect(),
    }
}

/// Runs the traffic over queue pairs; returns the counts of all ends together.
fn pairs(settings: &Settings, rates: Option<Rates>, seed: u64, steps: usize) -> Counters {
    println!("seed {seed}");
    let (hub, leaves) = star(LEAVES, Geometry { mtu: 1500, hub: 64 << 10, leaf: 16 << 10 });
    let rates = rates.unwrap_or_default();
    let hub = Faulty::new(hub, rates, seed ^ 99);
    let leaves = leaves.into_iter().enumerate().map(|(n, leaf)| Faulty::new(leaf, rates, seed + n as u64)).collect();
    let (mut hub, mut leaves) = admitted(hub, leaves, settings);
    traffic(&mut hub, leaves.iter_mut().map(|leaf| leaf as &mut dyn Layer).collect(), seed, steps);
    let mut all = Counters::default();
    for end in leaves.iter().chain([&hub]) {
        let counters = end.counters();
        all.eager += counters.eager;
        all.rendezvous += counters.rendezvous;
        all.held_back += counters.held_back;
        all.credit_messages += counters.credit_messages;
        all.adapter.not_ready_sent += counters.adapter.not_ready_sent;
        all.adapter.retransmitted += counters.adapter.retransmitted;
        assert_eq!(counters.malformed + counters.adapter.malformed, 0);
        if rates.lost + rates.duplicated + rates.held == 0 && matches!(settings.receive, ReceiveQueues::PerPeer { .. })
        {
            assert_eq!(counters.adapter.not_ready_sent, 0, "credits keep a receive ready for every send");
            assert_eq!(counters.adapter.retransmitted, 0);
        }
    }
    assert!(all.eager > 0 && all.rendezvous > 0, "both ways were taken: {all:?}");
    all
}

#[test]
fn the_engine_keeps_the_order() {
    for seed in seeds() {
        println!("seed {seed}");
        let (hub, leaves) = star(LEAVES, Geometry { mtu: 1500, hub: 64 << 10, leaf: 16 << 10 });
        let mut hub = Matched::new(hub, LEAVES);
        let mut leaves: Vec<_> = leaves.into_iter().map(|port| Matched::new(port, 1)).collect();
        traffic(&mut hub, leaves.iter_mut().map(|leaf| leaf as &mut dyn Layer).collect(), seed, 3000);
    }
}

#[test]
fn queue_pairs_keep_the_order() {
    for seed in seeds() {
        pairs(&Settings::default(), None, seed, 3000);
    }
}

#[test]
fn queue_pairs_with_scarce_credits_keep_the_order() {
    let settings = Settings { receive: ReceiveQueues::PerPeer { depth: 4 }, send_depth: 4, ..Settings::default() };
    for seed in seeds() {
        let counted = pairs(&settings, None, seed, 2000);
        assert!(counted.held_back > 0 && counted.credit_messages > 0, "credits were scarce: {counted:?}");
    }
}

#[test]
fn a_shared_receive_queue_keeps_the_order() {
    let scarce = Settings { rnr_timer: machine::Nanoseconds(20_000), ..Settings::shared(4) };
    let mut not_ready = 0;
    for seed in seeds() {
        pairs(&Settings::shared(256), None, seed, 2000);
        not_ready += pairs(&scarce, None, seed, 1000).adapter.not_ready_sent;
    }
    assert!(not_ready > 0, "the shared receives ran out");
}

#[test]
fn a_bad_wire_loses_doubles_and_reorders_nothing() {
    let rates = Rates { lost: 10, duplicated: 10, held: 10, changed: 0 };
    let settings = Settings { timeout: machine::Nanoseconds(2_000_000), ..Settings::default() };
    for seed in seeds().into_iter().take(4) {
        assert!(pairs(&settings, Some(rates), seed, 600).adapter.retransmitted > 0, "packets were lost");
    }
}
