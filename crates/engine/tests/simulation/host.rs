//! One process: an engine, its application, and what the application expects.

use std::collections::{BTreeMap, HashMap, VecDeque};

use foldhash::fast::FixedState;

use engine::{Completion, Direction, Engine, Request, Source, Status, TagSelector};
use machine::PeerIndex;

use super::ledger::{Ledger, Received, digest, fill};
use super::random::Random;

/// More masks than the engine has listed classes.
const MASKS: [u64; 12] = [u64::MAX, 0, 1, 2, 3, 4, 5, 6, 7, !1, !2, 0xFFFF << 32];

/// The application's record of a request in progress.
enum Asked {
    Send { number: u64, length: usize },
    Receive { posted: u64, source: Source, selector: TagSelector, capacity: usize, probed: Option<u64>, drain: bool },
}

struct Pending {
    asked: Asked,
    id: Request,
    buffer: usize,
}

pub struct Host {
    pub index: usize,
    /// Number of hosts.
    hosts: usize,
    pub engine: Engine<Vec<u8>>,
    pub running: bool,
    /// Packets that arrived, by sender.
    pub inbox: VecDeque<(usize, Vec<u8>)>,
    /// Packets in `inbox` by host, to know the port's room.
    pub held: Vec<usize>,
    pub asleep_until: u64,
    /// No receive is posted before this time.
    pub reluctant_until: u64,
    pub sends_left: u64,
    pub sends_pending: usize,
    /// Messages handed to the engine, by receiver, less those cancelled.
    pub sent: Vec<u64>,
    /// Messages matched, by sender.
    pub got: Vec<u64>,
    /// Requests in progress; iteration order is fixed, so that a seed replays.
    pending: HashMap<u64, Pending, FixedState>,
    recent: VecDeque<u64>,
    contexts: u64,
    drains: usize,
    receives_pending: usize,
    largest: u64,
    tags: u64,
    /// Memory that peers may read: address to message number and length.
    pub memory: BTreeMap<u64, (u64, usize)>,
    spares: Vec<Vec<u8>>,
}

impl Host {
    pub fn new(index: usize, hosts: usize, sends: u64, largest: u64, tags: u64) -> Host {
        Host {
            index,
            hosts,
            engine: Engine::new(),
            running: true,
            inbox: VecDeque::new(),
            held: vec![0; hosts],
            asleep_until: 0,
            reluctant_until: 0,
            sends_left: sends,
            sends_pending: 0,
            sent: vec![0; hosts],
            got: vec![0; hosts],
            pending: HashMap::default(),
            recent: VecDeque::new(),
            contexts: 0,
            drains: 0,
            receives_pending: 0,
            largest,
            tags,
            memory: BTreeMap::new(),
            spares: Vec::new(),
        }
    }

    /// Peers are numbered in the order of hosts, without the host itself.
    pub fn peer(&self, host: usize) -> PeerIndex {
        PeerIndex((host - usize::from(host > self.index)) as u32)
    }

    pub fn host(&self, peer: PeerIndex) -> usize {
        let peer = peer.0 as usize;
        peer + usize::from(peer >= self.index)
    }

    fn buffer(&mut self, length: usize) -> Vec<u8> {
        let mut buffer = if length <= 4096 { self.spares.pop().unwrap_or_default() } else { Vec::new() };
        buffer.clear();
        buffer.resize(length, 0);
        buffer
    }

    fn random_length(&self, random: &mut Random) -> usize {
        let bound = match random.below(1000) {
            0..900 => 64,
            900..990 => 4096,
            _ => 300_000,
        };
        random.within(0, self.largest.min(bound)) as usize
    }

    fn random_tag(&self, random: &mut Random) -> u64 {
        let tag = random.below(self.tags);
        tag | (tag & 1) << 40
    }

    /// A few sends, receives, probes and cancels.
    pub fn act(&mut self, now: u64, random: &mut Random, ledger: &mut Ledger, numbers: &mut u64, draining: bool) {
        for _ in 0..random.within(1, 16).min(self.sends_left) {
            self.sends_left -= 1;
            self.send(random, ledger, numbers);
        }
        if now >= self.reluctant_until {
            for _ in 0..random.within(1, 16) {
                if self.receives_pending < 200 && !draining {
                    self.receive(random);
                }
            }
            while draining && self.drains < 16 {
                self.post(Source::Any, TagSelector::any(), self.largest as usize, None, true);
            }
        }
        if random.chance(30)
            && let Some(&context) = self.recent.get(random.below(self.recent.len().max(1) as u64) as usize)
        {
            self.cancel(context, ledger);
        }
    }

    fn send(&mut self, random: &mut Random, ledger: &mut Ledger, numbers: &mut u64) {
        let to = (self.index + 1 + random.below(self.hosts as u64 - 1) as usize) % self.hosts;
        let (tag, length) = (self.random_tag(random), self.random_length(random));
        let number = *numbers;
        *numbers += 1;
        let mut buffer = self.buffer(length);
        fill(number, 0, &mut buffer);
        let address = buffer.as_ptr() as usize;
        if length > 0 {
            self.memory.insert(address as u64, (number, length));
        }
        ledger.sent((self.index, to, tag), number, length);
        self.sent[to] += 1;
        let context = self.context();
        let id = self.engine.send(self.peer(to), tag, buffer, context).expect("the peer exists");
        self.sends_pending += 1;
        self.pending.insert(context, Pending { asked: Asked::Send { number, length }, id, buffer: address });
    }

    fn receive(&mut self, random: &mut Random) {
        let other = (self.index + 1 + random.below(self.hosts as u64 - 1) as usize) % self.hosts;
        let source = if random.chance(400) { Source::Any } else { Source::Peer(self.peer(other)) };
        let tag = self.random_tag(random);
        let selector = match random.below(4) {
            0 => TagSelector::exactly(tag),
            1 => TagSelector::any(),
            _ => TagSelector::masked(tag, random.one_of(&MASKS)),
        };
        if random.chance(200)
            && let Some(seen) = self.engine.probe(source, selector)
        {
            assert!(
                source.takes(seen.peer) && selector.takes(seen.space, seen.tag),
                "probe saw what was not asked for"
            );
            let exactly = TagSelector::exactly(seen.tag);
            self.post(Source::Peer(seen.peer), exactly, seen.length as usize, Some(seen.length), false);
            return;
        }
        // One receive in sixteen truncates.
        let capacity = if random.chance(940) { self.largest as usize } else { self.random_length(random) };
        self.post(source, selector, capacity, None, false);
    }

    fn post(&mut self, source: Source, selector: TagSelector, capacity: usize, probed: Option<u64>, drain: bool) {
        let buffer = self.buffer(capacity);
        let address = buffer.as_ptr() as usize;
        let context = self.context();
        let id = self.engine.receive(source, selector, buffer, context).expect("the peer exists");
        self.receives_pending += 1;
        self.drains += usize::from(drain);
        let asked = Asked::Receive { posted: context, source, selector, capacity, probed, drain };
        self.pending.insert(context, Pending { asked, id, buffer: address });
    }

    fn context(&mut self) -> u64 {
        self.contexts += 1;
        if self.recent.len() == 32 {
            self.recent.pop_front();
        }
        self.recent.push_back(self.contexts);
        self.contexts
    }

    fn cancel(&mut self, context: u64, ledger: &mut Ledger) {
        let Some(pending) = self.pending.get(&context) else { return };
        if self.engine.cancel(pending.id)
            && let Asked::Send { number, .. } = pending.asked
        {
            ledger.cancelled(number);
        }
    }

    /// Withdraws every receive that has no message.
    pub fn cancel_receives(&mut self) {
        for pending in self.pending.values() {
            if matches!(pending.asked, Asked::Receive { .. }) {
                self.engine.cancel(pending.id);
            }
        }
    }

    /// Whether a request waits for something that can no longer come from `host`.
    pub fn waits_for(&self, host: usize) -> bool {
        let peer = self.peer(host);
        self.pending
            .values()
            .any(|p| matches!(p.asked, Asked::Receive { source: Source::Peer(source), .. } if source == peer))
    }

    pub fn requests_pending(&self) -> usize {
        self.pending.len()
    }

    /// Checks a completion against its request.
    pub fn complete(&mut self, completion: Completion<Vec<u8>>, ledger: &mut Ledger) {
        let Completion { request, context, direction, envelope, status, buffer } = completion;
        let pending = self.pending.remove(&context).expect("each request completes once");
        assert_eq!(pending.id, request);
        assert_eq!(pending.buffer, buffer.as_ptr() as usize, "another buffer came back");
        let from = self.host(envelope.peer);
        match pending.asked {
            Asked::Send { number, length } => {
                assert_eq!(direction, Direction::Send);
                assert_eq!((buffer.len(), envelope.length), (length, length as u64));
                self.memory.remove(&(pending.buffer as u64));
                self.sends_pending -= 1;
                match status {
                    Status::Done => {}
                    Status::Cancelled => self.sent[from] -= 1,
                    Status::PeerDead => assert!(!self.engine.is_alive(envelope.peer)),
                    Status::Truncated | Status::Withdrawn => panic!("a send ended as a receive"),
                }
                if length <= 64 {
                    let mut sent = [0; 64];
                    fill(number, 0, &mut sent[..length]);
                    assert_eq!(buffer, sent[..length], "the engine altered the sender's buffer");
                }
            }
            Asked::Receive { posted, source, selector, capacity, probed, drain } => {
                assert_eq!(direction, Direction::Receive);
                assert_eq!(buffer.len(), capacity);
                self.receives_pending -= 1;
                self.drains -= usize::from(drain);
                let length = envelope.length as usize;
                match status {
                    Status::Done => assert!(length <= capacity),
                    Status::Truncated => assert!(length > capacity),
                    Status::PeerDead => assert!(!self.engine.is_alive(envelope.peer)),
                    Status::Cancelled => assert_eq!((length, envelope.tag, probed), (0, 0, None)),
                    Status::Withdrawn => panic!("nothing is taken back"),
                }
                let matched = matches!(status, Status::Done | Status::Truncated) || length > 0;
                if matched {
                    assert!(
                        source.takes(envelope.peer) && selector.takes(envelope.space, envelope.tag),
                        "matched amiss"
                    );
                    assert!(probed.is_none_or(|probed| probed == envelope.length), "probe announced another message");
                    let digest = digest(&buffer[..length.min(capacity)]);
                    self.got[from] += 1;
                    ledger.received(
                        (from, self.index, envelope.tag),
                        Received { posted, length, capacity, digest, status },
                    );
                }
            }
        }
        if buffer.capacity() <= 4096 && self.spares.len() < 512 {
            self.spares.push(buffer);
        }
    }
}
