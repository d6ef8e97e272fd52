//! Hosts, wires and a virtual clock; everything follows from the seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use engine::{Apart, Engine};
use machine::Nanoseconds;

use super::hook::{Hook, Verdict};
use super::host::Host;
use super::ledger::{Ledger, fill};
use super::random::Random;
use super::wire::{MILLISECOND, Wire};

/// Virtual time within which some request ends, however bad the wires, until all is at rest.
const TIMEOUT: u64 = 20_000 * MILLISECOND;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The process ends: its host refuses packets, the shared memory's owner is seen to be gone.
    Process,
    /// The host ends: only silence tells.
    Host,
}

enum Event {
    Turn {
        host: usize,
    },
    Packet {
        from: usize,
        to: usize,
        bytes: Vec<u8>,
    },
    /// A packet that the hook leaves to the socket arrives there.
    Passed {
        from: usize,
        to: usize,
        bytes: Vec<u8>,
    },
    Refusal {
        to: usize,
        by: usize,
    },
    Gone {
        to: usize,
        who: usize,
    },
    Kill {
        host: usize,
        end: End,
    },
    Sleep {
        host: usize,
        until: u64,
    },
    Reluctance {
        host: usize,
        until: u64,
    },
    Partition {
        a: usize,
        b: usize,
        until: u64,
    },
}

/// Time of an event, its order among those of the same time, and its index in `World::planned`.
type Scheduled = Reverse<(u64, u64, usize)>;

/// Counts of a world, for the printed summary.
#[derive(Default, Debug, Clone, Copy)]
pub struct Outcome {
    pub messages: u64,
    pub packets: u64,
    pub retransmitted: u64,
    pub duplicates: u64,
    pub single_copies: u64,
    pub deaths: u64,
    /// Packets placed, sent and left to the socket by ports that receive at the driver hook.
    pub hooked: u64,
    pub hook_acknowledgements: u64,
    pub hook_passed: u64,
    pub virtual_time: u64,
}

impl Outcome {
    pub fn add(&mut self, other: &Outcome) {
        self.messages += other.messages;
        self.packets += other.packets;
        self.retransmitted += other.retransmitted;
        self.duplicates += other.duplicates;
        self.single_copies += other.single_copies;
        self.deaths += other.deaths;
        self.hooked += other.hooked;
        self.hook_acknowledgements += other.hook_acknowledgements;
        self.hook_passed += other.hook_passed;
        self.virtual_time += other.virtual_time;
    }
}

pub struct World {
    random: Random,
    now: u64,
    order: u64,
    events: BinaryHeap<Scheduled>,
    planned: Vec<Option<Event>>,
    /// Free indices of `planned`.
    free: Vec<usize>,
    hosts: Vec<Host>,
    ends: Vec<Option<End>>,
    /// `wires[a][b]` for a < b.
    wires: Vec<Vec<Wire>>,
    /// Last delivery on each reliable wire, by sender and receiver.
    latest: Vec<Vec<u64>>,
    /// Packets under way, by sender and receiver.
    under_way: Vec<Vec<usize>>,
    turns: Vec<Option<u64>>,
    /// Hooks of hosts whose port receives at the driver hook, by receiver and sender.
    hooks: Vec<Vec<Option<Hook>>>,
    ledger: Ledger,
    numbers: u64,
    full: u64,
    /// When a request last ended.
    progressed: u64,
    /// All is delivered: the applications make no more requests.
    withdrawn: bool,
    outcome: Outcome,
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        // Calm worlds move many small messages fast, the others try everything.
        let calm = random.chance(200);
        let count = random.within(2, 5) as usize;
        let wires: Vec<Vec<Wire>> =
            (0..count).map(|_| (0..count).map(|_| Wire::random(&mut random, calm)).collect()).collect();
        let least_mtu = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b)));
        let least_mtu = least_mtu.map(|(a, b)| wires[a][b].config.mtu.0).min().unwrap();
        let largest = match (calm, least_mtu) {
            (true, _) => 64,
            (false, ..200) => 5_000,
            (false, _) => random.one_of(&[16, 3_000, 70_000, 300_000]),
        };
        let tags = random.one_of(&[1, 3, 16]);
        let sends = if calm { 20_000 } else { random.within(100, 1500) };
        let mut hosts: Vec<Host> = (0..count).map(|i| Host::new(i, count, sends, largest, tags)).collect();
        for host in &mut hosts {
            for other in (0..count).filter(|&other| other != host.index) {
                host.engine.add_peer(wires[host.index.min(other)][host.index.max(other)].config.clone());
            }
        }
        let now = random.below(1 << 40);
        // From a source of its own, so that known seeds keep their meaning.
        let mut aside = Random::new(seed ^ 0x786470);
        let hooked: Vec<bool> = (0..count).map(|_| aside.chance(400)).collect();
        let mut hook = |to: usize, from: usize| {
            let reliability = wires[to.min(from)][to.max(from)].config.reliability.as_ref();
            let reliability = reliability.filter(|_| hooked[to] && to != from)?;
            let late = if aside.chance(300) { aside.below(30 * MILLISECOND) } else { 0 };
            let slot = aside.one_of(&[100, 500, 2032]) as usize;
            Some(Hook::new(reliability.session, reliability.first_sequence(), now + late, slot))
        };
        let hooks = (0..count).map(|to| (0..count).map(|from| hook(to, from)).collect()).collect();
        let mut world = World {
            now,
            progressed: now,
            order: 0,
            events: BinaryHeap::new(),
            planned: Vec::new(),
            free: Vec::new(),
            ends: vec![None; count],
            latest: vec![vec![0; count]; count],
            under_way: vec![vec![0; count]; count],
            turns: vec![None; count],
            hooks,
            ledger: Ledger::default(),
            numbers: seed << 24,
            full: random.one_of(&[0, 0, 20, 300]),
            withdrawn: false,
            outcome: Outcome::default(),
            hosts,
            wires,
            random,
        };
        for host in 0..count {
            world.turn_at(host, world.now);
        }
        if !calm {
            world.plan_faults();
        }
        world
    }

    fn plan_faults(&mut self) {
        let count = self.hosts.len() as u64;
        for _ in 0..self.random.below(6) {
            let at = self.now + self.random.below(200 * MILLISECOND);
            let host = self.random.below(count) as usize;
            let other = (host + 1 + self.random.below(count - 1) as usize) % count as usize;
            let until = at + self.random.within(0, 400) * MILLISECOND;
            let event = match self.random.below(3) {
                0 => Event::Sleep { host, until },
                1 => Event::Reluctance { host, until },
                _ => Event::Partition { a: host.min(other), b: host.max(other), until },
            };
            self.schedule(at, event);
        }
        if self.random.chance(300) {
            let at = self.now + self.random.below(60 * MILLISECOND);
            let host = self.random.below(count) as usize;
            let end = if self.random.chance(500) { End::Process } else { End::Host };
            self.schedule(at, Event::Kill { host, end });
        }
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.order += 1;
        let place = self.free.pop().unwrap_or(self.planned.len());
        if place == self.planned.len() {
            self.planned.push(None);
        }
        self.planned[place] = Some(event);
        self.events.push(Reverse((at, self.order, place)));
    }

    fn turn_at(&mut self, host: usize, at: u64) {
        if self.turns[host].is_none_or(|planned| at < planned) {
            self.turns[host] = Some(at);
            self.schedule(at, Event::Turn { host });
        }
    }

    fn wire(&self, a: usize, b: usize) -> &Wire {
        &self.wires[a.min(b)][a.max(b)]
    }

    /// Runs to the end and checks the outcome.
    pub fn run(mut self) -> Outcome {
        let start = self.now;
        while let Some(Reverse((at, _, place))) = self.events.pop() {
            self.now = at;
            self.free.push(place);
            let event = self.planned[place].take().expect("planned once");
            assert!(at < self.progressed + TIMEOUT, "no progress any more, at {} ns: {}", at - start, self.state());
            let turned = matches!(event, Event::Turn { .. });
            self.happen(event);
            if turned && self.all_delivered() {
                if !self.withdrawn {
                    self.withdrawn = true;
                    for index in self.living() {
                        self.hosts[index].cancel_receives();
                        self.turn_at(index, at);
                    }
                } else if self.at_rest() {
                    break;
                }
            }
        }
        for index in self.living() {
            let host = &self.hosts[index];
            for other in (0..self.hosts.len()).filter(|&other| other != index) {
                let alive = host.engine.is_alive(host.peer(other));
                assert!(alive || self.ends[other].is_some(), "host {index} gave up host {other}, which lives");
            }
            assert_eq!(host.engine.queue_lengths().0, 0, "receives left over");
            assert!(host.memory.is_empty());
            let counters = host.engine.counters();
            assert_eq!(counters.malformed, 0);
            self.outcome.packets += counters.packets_sent;
            self.outcome.retransmitted += counters.retransmitted;
            self.outcome.duplicates += counters.duplicates;
            self.outcome.single_copies += counters.single_copies;
        }
        self.outcome.messages = self.ledger.messages_received;
        self.outcome.virtual_time = self.now - start;
        self.ledger.check(|host| self.ends[host].is_some());
        self.outcome
    }

    fn living(&self) -> Vec<usize> {
        (0..self.hosts.len()).filter(|&host| self.hosts[host].running).collect()
    }

    /// Whether every message between living hosts was received, and all who wait for the dead have noticed.
    fn all_delivered(&self) -> bool {
        let living = || self.hosts.iter().filter(|host| host.running);
        living().all(|host| {
            host.sends_left == 0
                && host.sends_pending == 0
                && living().all(|other| host.sent[other.index] == other.got[host.index])
                && (0..self.hosts.len()).all(|dead| self.ends[dead].is_none() || !host.waits_for(dead))
        })
    }

    fn at_rest(&self) -> bool {
        self.hosts.iter().filter(|host| host.running).all(|host| host.engine.is_quiet() && host.requests_pending() == 0)
    }

    fn state(&self) -> String {
        let describe = |host: &Host| {
            format!(
                "host {}: sends left {}, pending {}, sent {:?}, got {:?}, queues {:?}, quiet {}, {:?}",
                host.index,
                host.sends_left,
                host.sends_pending,
                host.sent,
                host.got,
                host.engine.queue_lengths(),
                host.engine.is_quiet(),
                host.engine.counters()
            )
        };
        let hosts: Vec<String> = self.hosts.iter().filter(|host| host.running).map(describe).collect();
        format!("dead {:?}\n{}", self.ends, hosts.join("\n"))
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Turn { host } => {
                if self.turns[host] == Some(self.now) {
                    self.turns[host] = None;
                    self.turn(host);
                }
            }
            Event::Packet { from, to, bytes } => self.deliver(from, to, bytes),
            Event::Passed { from, to, bytes } => self.take_in(from, to, bytes),
            Event::Refusal { to, by } => {
                let host = &mut self.hosts[to];
                if host.running {
                    host.engine.peer_refused(host.peer(by));
                    self.turn_at(to, self.now);
                }
            }
            Event::Gone { to, who } => {
                let host = &mut self.hosts[to];
                if host.running {
                    host.engine.peer_dead(host.peer(who));
                    self.turn_at(to, self.now);
                }
            }
            Event::Kill { host, end } => self.kill(host, end),
            Event::Sleep { host, until } => self.hosts[host].asleep_until = until,
            Event::Reluctance { host, until } => self.hosts[host].reluctant_until = until,
            Event::Partition { a, b, until } => self.wires[a][b].partitioned_until = until,
        }
    }

    fn kill(&mut self, host: usize, end: End) {
        self.outcome.deaths += 1;
        self.ends[host] = Some(end);
        self.hosts[host].running = false;
        self.hosts[host].engine = Engine::new();
        self.hosts[host].inbox.clear();
        for to in self.living() {
            if self.wire(host, to).is_reliable() {
                let at = self.now + self.random.below(10 * MILLISECOND);
                self.schedule(at, Event::Gone { to, who: host });
            }
        }
    }

    fn deliver(&mut self, from: usize, to: usize, mut bytes: Vec<u8>) {
        self.under_way[from][to] -= 1;
        let wire = self.wire(from, to);
        let (reliable, capacity, delay) = (wire.is_reliable(), wire.capacity, wire.delay);
        let host = &mut self.hosts[to];
        if !host.running {
            if !reliable && self.ends[to] == Some(End::Process) {
                self.schedule(self.now + delay, Event::Refusal { to: from, by: to });
            }
            return;
        }
        if let Some(hook) = self.hooks[to][from].as_mut().filter(|hook| hook.registered_at <= self.now) {
            let (verdict, acknowledgement) = hook.arrives(&mut bytes, host.held[from], capacity);
            if let Some(acknowledgement) = acknowledgement {
                self.outcome.hook_acknowledgements += 1;
                self.launch(to, from, acknowledgement);
            }
            match verdict {
                Verdict::Dropped => return,
                Verdict::Placed => self.outcome.hooked += 1,
                Verdict::Passed => {
                    self.outcome.hook_passed += 1;
                    let at = self.now + self.random.below(50_000);
                    return self.schedule(at, Event::Passed { from, to, bytes });
                }
            }
        } else if !reliable && host.held[from] >= capacity {
            return;
        }
        self.take_in(from, to, bytes);
    }

    fn take_in(&mut self, from: usize, to: usize, bytes: Vec<u8>) {
        let host = &mut self.hosts[to];
        if !host.running {
            return;
        }
        host.held[from] += 1;
        host.inbox.push_back((from, bytes));
        let awake = host.asleep_until.max(self.now + self.random.below(2_000));
        self.turn_at(to, awake);
    }

    fn turn(&mut self, index: usize) {
        let now = Nanoseconds(self.now);
        let host = &mut self.hosts[index];
        if !host.running {
            return;
        }
        if self.now < host.asleep_until {
            let until = host.asleep_until;
            return self.turn_at(index, until);
        }
        for _ in 0..self.random.within(1, 64) {
            let Some((from, bytes)) = host.inbox.pop_front() else { break };
            host.held[from] -= 1;
            let peer = host.peer(from);
            host.engine.handle_packet(now, peer, &bytes);
        }
        if host.engine.next_timeout().is_some_and(|at| at <= now) {
            host.engine.handle_timeout(now);
        }
        self.read_memory(index);
        let draining = self.hosts.iter().filter(|host| host.running).all(|host| host.sends_left == 0);
        let host = &mut self.hosts[index];
        if !self.withdrawn {
            host.act(self.now, &mut self.random, &mut self.ledger, &mut self.numbers, draining);
        }
        let blocked = self.transmit(index);
        let host = &mut self.hosts[index];
        while let Some(completion) = host.engine.next_completion() {
            self.progressed = self.now;
            host.complete(completion, &mut self.ledger);
        }
        self.check_credit(index);

        let host = &self.hosts[index];
        let mut next = host.engine.next_timeout().map_or(u64::MAX, |at| at.0.max(self.now + 1_000));
        // Reads that give packets some time look again.
        if blocked || !host.inbox.is_empty() || host.engine.has_reads() {
            next = next.min(self.now + 1_000 + self.random.below(20_000));
        }
        if host.sends_left > 0 {
            next = next.min(self.now + 500 + self.random.below(40_000));
        } else if !self.withdrawn {
            next = next.min(self.now + self.random.within(1, 20) * MILLISECOND);
        }
        if next < u64::MAX {
            self.turn_at(index, next);
        }
    }

    /// Remote reads find the message at its address, sometimes fail, and never look at memory that was given back.
    fn read_memory(&mut self, index: usize) {
        let (before, rest) = self.hosts.split_at_mut(index);
        let (host, after) = rest.split_first_mut().unwrap();
        let (wires, random) = (&self.wires, &mut self.random);
        host.engine.carry_out_reads(|peer, address, into| {
            let from = peer.0 as usize + usize::from(peer.0 as usize >= index);
            let owner = if from < index { &before[from] } else { &after[from - index - 1] };
            if !owner.running || random.chance(wires[index.min(from)][index.max(from)].failing_reads) {
                return false;
            }
            let (&start, &(number, length)) = owner.memory.range(..=address).next_back().expect("memory given back");
            let offset = (address - start) as usize;
            assert!(offset + into.len() <= length, "read beyond the message");
            fill(number, offset, into);
            true
        });
    }

    /// Whether a port was full.
    fn transmit(&mut self, index: usize) -> bool {
        let now = Nanoseconds(self.now);
        let mut deferred = Vec::new();
        while let Some(peer) = self.hosts[index].engine.next_ready() {
            let to = self.hosts[index].host(peer);
            while let Some(length) = self.hosts[index].engine.plan(now, peer) {
                let wire = self.wire(index, to);
                assert!(length as u64 <= wire.config.mtu.0, "a packet of {length} over the mtu");
                let held = self.under_way[index][to] + self.hosts[to].held[index];
                let room = !wire.is_reliable() || !self.hosts[to].running || held < wire.capacity;
                if !room || self.random.chance(self.full) {
                    deferred.push(peer);
                    break;
                }
                let mut bytes = vec![0xEE; length];
                let engine = &mut self.hosts[index].engine;
                match if now.0.is_multiple_of(2) { engine.apart(peer) } else { None } {
                    Some(Apart { head, body }) => {
                        let (first, rest) = bytes.split_at_mut(head);
                        engine.write(now, peer, first);
                        rest.copy_from_slice(&body);
                    }
                    None => engine.write(now, peer, &mut bytes),
                }
                if let Some(hook) = self.hooks[index][to].as_mut() {
                    hook.sends(&bytes);
                }
                self.launch(index, to, bytes);
            }
        }
        for &peer in &deferred {
            self.hosts[index].engine.defer(peer);
        }
        !deferred.is_empty()
    }

    fn launch(&mut self, from: usize, to: usize, bytes: Vec<u8>) {
        let Wire { loss, doubling, delay, jitter, partitioned_until, .. } = *self.wire(from, to);
        if self.wire(from, to).is_reliable() {
            let at = (self.now + delay).max(self.latest[from][to]);
            self.latest[from][to] = at;
            self.under_way[from][to] += 1;
            return self.schedule(at, Event::Packet { from, to, bytes });
        }
        let copies = if self.random.chance(doubling) { 2 } else { 1 };
        for _ in 0..copies {
            if self.now < partitioned_until || self.random.chance(loss) {
                continue;
            }
            let at = self.now + delay + self.random.below(jitter + 1);
            self.under_way[from][to] += 1;
            self.schedule(at, Event::Packet { from, to, bytes: bytes.clone() });
        }
    }

    /// Checks that unmatched messages are within the credit given, unless it was widened for a receive that waited.
    fn check_credit(&self, index: usize) {
        let host = &self.hosts[index];
        let configs =
            (0..self.hosts.len()).filter(|&other| other != index).map(|other| &self.wire(index, other).config);
        let (messages, bytes) = configs.fold((0, 0), |(messages, bytes), config| {
            (messages + config.credit_messages as usize, bytes + config.credit_bytes.0)
        });
        if host.engine.counters().widened == 0 {
            assert!(host.engine.queue_lengths().1 <= messages, "more unexpected messages than credit");
        }
        assert!(host.engine.unexpected_bytes() <= bytes, "more unexpected bytes than credit");
    }
}
