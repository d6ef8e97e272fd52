//! Ranks that exchange messages over connections with finite buffers: an event replay of paper 002's figure 10.
//!
//! A message is chunks of `chunk` bytes. `M` is the library's send buffer and `B` the socket buffers of both ends, in chunks;
//! `P_r` delays until the rank moves its messages: in a call of the library, or at any time where a thread does it.
//! ```text
//! copied(n)    = max(posted, copied(n-1), handed(n-M)) + copy
//! handed(n)    = P_sender(max(copied(n), handed(n-1), drained(n-B) + latency)) + hand
//! delivered(n) = softirq(max(handed(n) on the wire, delivered(n-1)))
//! drained(n)   = P_receiver(max(delivered(n), drained(n-1))) + drain
//! ```
//! A send returns when its last chunk is copied and the sockets have no room, a wait at `drained` of its last chunk. `copy`, `hand` and `drain` take the rank's core.
//! `softirq` takes the interrupt core of the host, before the rank that is on it, which it stops; acknowledgements take that of
//! the sender's host. Within a host a message passes the loopback, whose softirq work the sending core does.
//!
//! Times inside are picoseconds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use machine::{Fault, Result};

type Time = u64;

const SECOND: f64 = 1e12;

/// Where a rank is. Core 0 takes the interrupts of its host, 2 is beside it, 1 and 3 are on the other socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub host: usize,
    pub core: usize,
}

impl Place {
    fn takes_interrupts(self) -> bool {
        self.core == 0
    }

    fn far(self) -> bool {
        self.core % 2 == 1
    }
}

/// When a rank moves its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// While it is in a call.
    InCalls,
    /// Also while it computes, on its core.
    Thread,
}

/// What messages cost and where they wait. Costs in nanoseconds a byte.
#[derive(Debug, Clone, Copy)]
pub struct Stack {
    /// Bytes.
    pub chunk: u64,
    pub copy: f64,
    /// Into the socket, by whether the rank is on the other socket.
    pub hand: [f64; 2],
    /// Out of the socket, likewise.
    pub drain: [f64; 2],
    /// Of the receiver's interrupt core.
    pub softirq: f64,
    /// Of the sender's interrupt core.
    pub acknowledge: f64,
    /// Of the sending core, within a host.
    pub loopback: f64,
    pub wire: f64,
    /// Seconds one way.
    pub latency: f64,
    /// Bytes that the library buffers of a connection's sends: M.
    pub library: u64,
    /// Bytes that the sockets of both ends buffer: B.
    pub socket: u64,
    pub progress: Progress,
}

/// What a rank does, again and again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Op {
    /// Seconds of an undisturbed core.
    Compute(f64),
    /// Returns when the library has a copy; one that is not `bounded` never waits for room.
    Send { to: usize, bytes: u64, bounded: bool },
    /// Waits for a message, which was asked for before.
    Receive { from: usize, bytes: u64 },
    /// Waits until the sockets have all that was sent.
    Flush { to: usize },
}

/// Where a rank's time went, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Split {
    pub compute: f64,
    pub send: f64,
    pub wait: f64,
}

impl Split {
    pub fn communication(&self) -> f64 {
        self.send + self.wait
    }

    pub fn total(&self) -> f64 {
        self.compute + self.communication()
    }
}

/// One call or computation: seconds from the start of the run.
#[derive(Debug, Clone, Copy)]
pub struct Stay {
    pub rank: usize,
    pub op: Op,
    pub from: f64,
    pub to: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A rank's piece of work ended; a later version takes its place where softirq work has stopped it.
    Done {
        rank: usize,
        version: u32,
    },
    Arrived {
        channel: usize,
    },
    Delivered {
        channel: usize,
    },
    Acknowledged {
        channel: usize,
    },
    Opened {
        channel: usize,
    },
}

#[derive(Debug, Clone, Copy)]
enum Work {
    Compute(Time),
    Copy(usize),
    Hand(usize),
    Drain(usize),
}

/// A connection one way, counted in chunks.
#[derive(Debug, Clone, Copy, Default)]
struct Channel {
    /// To be copied by the sends so far; to be drained by the receives so far.
    posted: u64,
    awaited: u64,
    copied: u64,
    handed: u64,
    delivered: u64,
    drained: u64,
    /// Drained as far as the sender knows.
    opened: u64,
}

#[derive(Debug, Clone)]
struct Rank {
    place: Place,
    at: usize,
    step: usize,
    entered: Time,
    begun: bool,
    /// What is left of a computation.
    left: Time,
    work: Option<Work>,
    ends: Time,
    version: u32,
    finished: bool,
}

struct Replay<'a> {
    program: &'a [Vec<Op>],
    stack: &'a Stack,
    steps: usize,
    ranks: Vec<Rank>,
    channels: Vec<Channel>,
    /// By host: when the interrupt core has no softirq work left; when the link is free.
    softirq: Vec<Time>,
    link: Vec<Time>,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    sequence: u64,
    stays: Vec<Stay>,
}

/// `program[rank]` repeated `steps` times by the rank at `places[rank]`: every stay, in order of its end.
///
/// # Errors
/// Ranks that wait for each other for ever.
pub fn replay(places: &[Place], program: &[Vec<Op>], steps: usize, stack: &Stack) -> Result<Vec<Stay>> {
    let rank = |place: &Place| Rank {
        place: *place,
        at: 0,
        step: 0,
        entered: 0,
        begun: false,
        left: 0,
        work: None,
        ends: 0,
        version: 0,
        finished: false,
    };
    let hosts = places.iter().map(|place| place.host + 1).max().unwrap_or(0);
    let mut replay = Replay {
        program,
        stack,
        steps,
        ranks: places.iter().map(rank).collect(),
        channels: vec![Channel::default(); places.len() * places.len()],
        softirq: vec![0; hosts],
        link: vec![0; hosts],
        events: BinaryHeap::new(),
        sequence: 0,
        stays: Vec::new(),
    };
    for rank in 0..places.len() {
        replay.go_on(rank, 0);
    }
    while let Some(Reverse((now, _, event))) = replay.events.pop() {
        replay.take(now, event);
    }
    match replay.ranks.iter().position(|rank| !rank.finished) {
        Some(rank) => {
            Err(Fault::new(format!("rank {rank}"), "it waits for ever", "have each receive meet a send of its bytes"))
        }
        None => Ok(replay.stays),
    }
}

/// Where each rank's time went, without each rank's first `skipped` stays.
pub fn split(stays: &[Stay], ranks: usize, skipped: usize) -> Vec<Split> {
    let (mut splits, mut seen) = (vec![Split::default(); ranks], vec![0; ranks]);
    for stay in stays {
        seen[stay.rank] += 1;
        if seen[stay.rank] > skipped {
            let split = &mut splits[stay.rank];
            let into = match stay.op {
                Op::Compute(_) => &mut split.compute,
                Op::Send { .. } => &mut split.send,
                Op::Receive { .. } | Op::Flush { .. } => &mut split.wait,
            };
            *into += stay.to - stay.from;
        }
    }
    splits
}

impl Replay<'_> {
    fn channel(&self, from: usize, to: usize) -> usize {
        from * self.ranks.len() + to
    }

    fn ends_of(&self, channel: usize) -> (usize, usize) {
        (channel / self.ranks.len(), channel % self.ranks.len())
    }

    fn chunks(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.stack.chunk)
    }

    fn cost(&self, nanoseconds: f64) -> Time {
        (nanoseconds * 1000.0 * self.stack.chunk as f64) as Time
    }

    fn at(&mut self, time: Time, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    /// Softirq work of one chunk at `host`: it stops the rank on the interrupt core. When it is done.
    fn interrupt(&mut self, host: usize, now: Time, cost: f64) -> Time {
        let taken = self.cost(cost);
        let done = self.softirq[host].max(now) + taken;
        self.softirq[host] = done;
        let on_it = |rank: &Rank| rank.place == Place { host, core: 0 } && rank.work.is_some();
        if let Some(index) = self.ranks.iter().position(on_it) {
            let rank = &mut self.ranks[index];
            rank.ends += taken;
            rank.version += 1;
            let (ends, version) = (rank.ends, rank.version);
            self.at(ends, Event::Done { rank: index, version });
        }
        done
    }

    fn take(&mut self, now: Time, event: Event) {
        match event {
            Event::Done { rank, version } if self.ranks[rank].version != version => {}
            Event::Done { rank, .. } => {
                if let Some(work) = self.ranks[rank].work.take() {
                    self.worked(rank, work, now);
                }
                self.go_on(rank, now);
            }
            Event::Arrived { channel } => {
                let host = self.ranks[self.ends_of(channel).1].place.host;
                let done = self.interrupt(host, now, self.stack.softirq);
                self.at(done, Event::Delivered { channel });
            }
            Event::Delivered { channel } => {
                self.channels[channel].delivered += 1;
                self.go_on(self.ends_of(channel).1, now);
            }
            Event::Acknowledged { channel } => {
                let host = self.ranks[self.ends_of(channel).0].place.host;
                let done = self.interrupt(host, now, self.stack.acknowledge);
                self.at(done, Event::Opened { channel });
            }
            Event::Opened { channel } => {
                self.channels[channel].opened += 1;
                self.go_on(self.ends_of(channel).0, now);
            }
        }
    }

    /// What follows from a piece of work.
    fn worked(&mut self, rank: usize, work: Work, now: Time) {
        match work {
            Work::Compute(part) => self.ranks[rank].left -= part,
            Work::Copy(channel) => self.channels[channel].copied += 1,
            Work::Hand(channel) => {
                self.channels[channel].handed += 1;
                let (from, to) = self.ends_of(channel);
                let host = self.ranks[from].place.host;
                if host == self.ranks[to].place.host {
                    self.at(now, Event::Delivered { channel });
                } else {
                    let sent = self.link[host].max(now) + self.cost(self.stack.wire);
                    self.link[host] = sent;
                    self.at(sent + self.latency(), Event::Arrived { channel });
                }
            }
            Work::Drain(channel) => {
                self.channels[channel].drained += 1;
                let (from, to) = self.ends_of(channel);
                if self.ranks[from].place.host == self.ranks[to].place.host {
                    self.at(now, Event::Opened { channel });
                } else {
                    self.at(now + self.latency(), Event::Acknowledged { channel });
                }
            }
        }
    }

    fn latency(&self) -> Time {
        (self.stack.latency * SECOND) as Time
    }

    fn can_hand(&self, channel: usize) -> bool {
        let of = &self.channels[channel];
        of.handed < of.copied && of.handed - of.opened < (self.stack.socket / self.stack.chunk).max(1)
    }

    fn can_drain(&self, channel: usize) -> bool {
        self.channels[channel].drained < self.channels[channel].delivered
    }

    /// A chunk that `rank` can move: out, where the sockets have room, then in.
    fn movable(&self, rank: usize) -> Option<Work> {
        let mut hands = (0..self.ranks.len()).map(|to| self.channel(rank, to));
        let mut drains = (0..self.ranks.len()).map(|from| self.channel(from, rank));
        (hands.find(|channel| self.can_hand(*channel)).map(Work::Hand))
            .or_else(|| drains.find(|channel| self.can_drain(*channel)).map(Work::Drain))
    }

    /// Has an idle rank do what it can; it goes through all calls that return at once.
    fn go_on(&mut self, index: usize, now: Time) {
        while self.ranks[index].work.is_none() {
            if self.ranks[index].finished {
                // In MPI_Finalize it moves what is left.
                return self.movable(index).into_iter().for_each(|work| self.start(index, work, now));
            }
            let op = self.program[index][self.ranks[index].at];
            if !self.ranks[index].begun {
                self.ranks[index].begun = true;
                self.enter(index, op);
            }
            match self.next(index, op) {
                Next::Work(work) => return self.start(index, work, now),
                Next::Blocked => return,
                Next::Returns => self.leave(index, op, now),
            }
        }
    }

    fn enter(&mut self, index: usize, op: Op) {
        match op {
            Op::Compute(seconds) => self.ranks[index].left = (seconds * SECOND) as Time,
            Op::Send { to, bytes, .. } => {
                let channel = self.channel(index, to);
                self.channels[channel].posted += self.chunks(bytes);
            }
            Op::Receive { from, bytes } => {
                let channel = self.channel(from, index);
                self.channels[channel].awaited += self.chunks(bytes);
            }
            Op::Flush { .. } => {}
        }
    }

    fn next(&self, index: usize, op: Op) -> Next {
        let moved = || self.movable(index).map_or(Next::Blocked, Next::Work);
        match op {
            Op::Compute(_) => {
                let left = self.ranks[index].left;
                let threaded = self.stack.progress == Progress::Thread;
                match self.movable(index).filter(|_| threaded) {
                    Some(work) => Next::Work(work),
                    None if left == 0 => Next::Returns,
                    // A thread looks after each chunk's time.
                    None if threaded => Next::Work(Work::Compute(left.min(self.cost(self.stack.drain[0]).max(1)))),
                    None => Next::Work(Work::Compute(left)),
                }
            }
            Op::Send { to, bounded, .. } => {
                let channel = self.channel(index, to);
                let of = &self.channels[channel];
                let room = !bounded || of.copied - of.handed < (self.stack.library / self.stack.chunk).max(1);
                match () {
                    () if self.can_hand(channel) => Next::Work(Work::Hand(channel)),
                    () if of.copied == of.posted => Next::Returns,
                    () if room => Next::Work(Work::Copy(channel)),
                    () => moved(),
                }
            }
            Op::Receive { from, .. } => {
                let channel = self.channel(from, index);
                let of = &self.channels[channel];
                if of.drained >= of.awaited { Next::Returns } else { moved() }
            }
            Op::Flush { to } => {
                let of = &self.channels[self.channel(index, to)];
                if of.handed == of.posted { Next::Returns } else { moved() }
            }
        }
    }

    fn start(&mut self, index: usize, work: Work, now: Time) {
        let place = self.ranks[index].place;
        let far = usize::from(place.far());
        let length = match work {
            Work::Compute(part) => part,
            Work::Copy(_) => self.cost(self.stack.copy),
            Work::Hand(channel) => {
                let inside = self.ranks[self.ends_of(channel).1].place.host == place.host;
                self.cost(self.stack.hand[far] + if inside { self.stack.loopback } else { 0.0 })
            }
            Work::Drain(_) => self.cost(self.stack.drain[far]),
        };
        let from = if place.takes_interrupts() { now.max(self.softirq[place.host]) } else { now };
        let rank = &mut self.ranks[index];
        rank.work = Some(work);
        rank.ends = from + length;
        rank.version += 1;
        let (ends, version) = (rank.ends, rank.version);
        self.at(ends, Event::Done { rank: index, version });
    }

    fn leave(&mut self, index: usize, op: Op, now: Time) {
        let (ops, steps) = (self.program[index].len(), self.steps);
        let rank = &mut self.ranks[index];
        self.stays.push(Stay { rank: index, op, from: rank.entered as f64 / SECOND, to: now as f64 / SECOND });
        rank.entered = now;
        rank.begun = false;
        rank.at += 1;
        if rank.at == ops {
            rank.at = 0;
            rank.step += 1;
            rank.finished = rank.step == steps;
        }
    }
}

enum Next {
    Work(Work),
    Blocked,
    Returns,
}
