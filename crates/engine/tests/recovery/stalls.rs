//! Streams between ends that are kept from running for tens of milliseconds at a time, as where both share a core with busy
//! programs: how long one takes in virtual time, and what is sent again.

use engine::{Direction, Engine, LinkConfig, Source, TagSelector};
use machine::{Bytes, Capabilities, Nanoseconds};

use super::link::Link;
use super::{MTU, PEER};
use crate::simulation::random::Random;

const MESSAGES: u64 = 8;
const MESSAGE: usize = 1 << 20;
const DATA: u64 = 1;
const ACKNOWLEDGEMENT: u64 = 2;
/// Most packets that an end takes in per poll, as a driver does.
const RECEIVED_A_TURN: usize = 64;
const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
/// A block of the bench has three such streams within its 30 s.
const LIMIT: u64 = 10_000 * MILLISECOND;
const STREAMS_OF_A_SESSION: u64 = 10;
/// Queue of the link so long that packets waiting in the receiver's socket are not lost.
const QUEUE: u64 = 60_000 * MILLISECOND;

/// An end of the stream: one message after the other, each when the one before has ended, acknowledged once at the end.
struct End {
    engine: Engine<Vec<u8>>,
    sends: bool,
    posted: u64,
    ended: u64,
    acknowledged: bool,
    spare: Vec<u8>,
}

impl End {
    fn new(sends: bool) -> End {
        let port = Capabilities { ordered: false, reliable: false, mtu: Bytes(MTU as u64), remote_read: false };
        let mut engine = Engine::new();
        engine.add_peer(LinkConfig::for_port(&port, 7));
        End { engine, sends, posted: 0, ended: 0, acknowledged: false, spare: Vec::new() }
    }

    fn begin(&mut self) {
        (self.posted, self.ended, self.acknowledged) = (0, 0, false);
        if self.sends {
            self.receive(ACKNOWLEDGEMENT, vec![0; 4]);
        }
    }

    fn receive(&mut self, tag: u64, buffer: Vec<u8>) {
        self.engine.receive(Source::Peer(PEER), TagSelector::exactly(tag), buffer, 0).expect("there is such a peer");
    }

    fn send(&mut self, tag: u64, buffer: Vec<u8>) {
        self.engine.send(PEER, tag, buffer, 0).expect("there is such a peer");
    }

    fn post(&mut self) {
        if self.posted == self.ended && self.posted < MESSAGES {
            self.posted += 1;
            let mut buffer = std::mem::take(&mut self.spare);
            buffer.resize(MESSAGE, 7);
            if self.sends { self.send(DATA, buffer) } else { self.receive(DATA, buffer) }
        }
        if !self.sends && self.ended == MESSAGES && !self.acknowledged {
            self.acknowledged = true;
            self.send(ACKNOWLEDGEMENT, vec![0; 4]);
        }
    }

    /// One iteration of a driver: arrivals, timers, packets that may leave.
    fn turn(&mut self, now: u64, from: &mut Link, to: &mut Link) {
        self.post();
        let at = Nanoseconds(now + 1);
        for _ in 0..RECEIVED_A_TURN {
            let Some((_, packet)) = from.take(now) else { break };
            self.engine.handle_packet(at, PEER, &packet);
        }
        if self.engine.next_timeout().is_some_and(|due| due <= at) {
            self.engine.handle_timeout(at);
        }
        for _ in 0..self.engine.ready_peers() {
            let Some(peer) = self.engine.next_ready() else { break };
            while let Some(length) = self.engine.plan(at, peer) {
                let mut packet = vec![0; length];
                self.engine.write(at, peer, &mut packet);
                to.put(now, 0, packet);
            }
        }
        self.engine.end_departed();
        while let Some(done) = self.engine.next_completion() {
            match (done.direction, self.sends) {
                (Direction::Send, true) | (Direction::Receive, false) => {
                    self.ended += 1;
                    self.spare = done.buffer;
                }
                (Direction::Receive, true) => self.acknowledged = true,
                (Direction::Send, false) => {}
            }
        }
    }
}

struct Session {
    random: Random,
    ends: [End; 2],
    links: [Link; 2],
    /// Time of each end's next poll.
    turns: [u64; 2],
}

impl Session {
    fn new(seed: u64, loss: f64) -> Session {
        let links = [seed, seed + 1_000_000].map(|seed| Link::new(20_000.0, QUEUE, loss, 2 * seed + 1));
        Session { random: Random::new(seed), ends: [End::new(true), End::new(false)], links, turns: [0; 2] }
    }

    /// Time and end of the poll that is due first; that end's next one comes `after` it.
    fn turn(&mut self, after: fn(&mut Random) -> u64) -> u64 {
        let who = usize::from(self.turns[1] < self.turns[0]);
        let now = self.turns[who];
        let [to, from] = &mut self.links;
        let (from, to) = if who == 0 { (from, to) } else { (to, from) };
        self.ends[who].turn(now, from, to);
        self.turns[who] = now + after(&mut self.random);
        now
    }

    /// Virtual time of a stream.
    fn stream(&mut self, after: fn(&mut Random) -> u64) -> u64 {
        self.ends.iter_mut().for_each(End::begin);
        let began = self.turns[0].min(self.turns[1]);
        loop {
            let now = self.turn(after);
            if self.ends[0].acknowledged || now - began > LIMIT {
                return now - began;
            }
        }
    }
}

/// An end that has its core, but for some tens of milliseconds now and then.
fn stalled(random: &mut Random) -> u64 {
    if random.chance(1) { random.within(10, 50) * MILLISECOND } else { 20 * MICROSECOND }
}

/// An end that yields after each turn to two busy programs, and is passed over now and then.
fn crowded(random: &mut Random) -> u64 {
    let usual = random.within(4_000, 12_000) * MICROSECOND;
    usual + if random.chance(125) { random.within(20, 60) * MILLISECOND } else { 0 }
}

fn streams(count: u64) {
    let mut worst = [(0, 0); 2];
    for seed in 0..count / STREAMS_OF_A_SESSION {
        let way = (seed % 2) as usize;
        let mut session = Session::new(seed + 1, [0.0, 0.0005][(seed / 2 % 2) as usize]);
        for nth in 0..STREAMS_OF_A_SESSION {
            let took = session.stream([stalled, crowded][way]);
            assert!(took <= LIMIT, "seed {seed}: stream {nth} has not ended after {} ms", took / MILLISECOND);
            worst[way] = worst[way].max((took, seed));
        }
    }
    for (name, (took, seed)) in ["stalled", "crowded"].into_iter().zip(worst) {
        println!("{name}: at most {} ms, of seed {seed}", took / MILLISECOND);
    }
}

#[test]
fn a_stream_ends_in_time_however_its_ends_are_kept_from_running() {
    streams(100);
}

#[test]
#[ignore = "make check"]
fn ten_thousand_streams_end_in_time_however_their_ends_are_kept_from_running() {
    streams(10_000);
}

#[test]
fn what_a_peer_that_did_not_run_has_not_taken_in_is_not_lost() {
    let mut session = Session::new(1, 0.0);
    let polls = |_: &mut Random| 20 * MICROSECOND;
    session.stream(polls);
    let counters = |session: &Session| session.ends[0].engine.counters();
    let (sent, before) = (counters(&session).packets_sent, counters(&session).retransmitted);
    session.ends.iter_mut().for_each(End::begin);
    for stall in 0..5 {
        // In the middle of a message, of more than 700 packets.
        while counters(&session).packets_sent - sent < 350 + 700 * stall {
            session.turn(polls);
        }
        // The sender goes on.
        session.turns[1] += 40 * MILLISECOND;
    }
    while !session.ends[0].acknowledged {
        session.turn(polls);
    }
    let again = counters(&session).retransmitted - before;
    // Probes at 4, 12 and 28 ms and few more: a window has 256 packets.
    assert!(again > 0 && again <= 5 * 24, "{again} packets were sent again");
}
