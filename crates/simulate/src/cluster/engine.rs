//! The events: the next operations of ranks, and the stages of the pieces that they hand out.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use machine::FaultKind;
use machine::fault::{Fault, Result};

use super::super::{Kind, Operation, Program};
use super::channel::{Connections, Message, Messages, Part};
use super::matching::{Half, Matching};
use super::profile::Progress;
use super::resources::Resources;
use super::{Cluster, Doing, Finished, Seat, Seen, Split, Time};

mod finished;
mod order;
mod select;
mod sharing;
mod transit;

use order::InOrder;

/// A piece on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    slot: u32,
    part: Part,
    first: bool,
    bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The end of a rank's piece of work, unless its version is outdated, or interrupts have delayed it.
    Done {
        rank: u32,
        version: u32,
    },
    Slice {
        host: u32,
        core: u32,
    },
    Ready(Piece),
    Landed(Piece),
    Arrived(Piece),
    Delivered(Piece),
    Acknowledged {
        from: u32,
        to: u32,
        bytes: u64,
    },
    Opened {
        from: u32,
        to: u32,
        bytes: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Compute,
    Copy(u32),
    Hand(u32, Part),
    Take(u32, Part),
}

/// A rank's present work, running on its core or waiting for it.
#[derive(Debug, Clone, Copy)]
struct Job {
    work: Work,
    left: Time,
    ends: Time,
    running: bool,
}

/// Pieces as (key, slot, part), sorted by key.
type Queue = Vec<(u32, u32, Part)>;

fn put(queue: &mut Queue, entry: (u32, u32, Part)) {
    let at = queue.partition_point(|(key, ..)| *key <= entry.0);
    queue.insert(at, entry);
}

#[derive(Debug, Clone)]
struct Rank {
    seat: Seat,
    /// Operations that are free and not over.
    open: u32,
    /// Computations: number, picoseconds, order.
    computes: VecDeque<(u32, Time, u32)>,
    /// Sends that are not wholly copied, or not wholly handed where nothing copies.
    posting: VecDeque<u32>,
    sending: Queue,
    arrived: Queue,
    matching: Matching,
    job: Option<Job>,
    version: u32,
    doing: Option<Doing>,
    since: Time,
    split: Split,
    end: Time,
}

pub(super) struct Engine<'a> {
    program: &'a mut dyn Program,
    cluster: &'a Cluster,
    see: &'a mut dyn FnMut(Seen),
    now: Time,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    sequence: u64,
    order: u32,
    ranks: Vec<Rank>,
    hosts: Vec<Resources>,
    messages: Messages,
    connections: Connections,
    /// Operations that are over; then the ranks that may have work.
    over: VecDeque<(u32, u32)>,
    wakes: VecDeque<u32>,
    in_order: InOrder,
    free: Vec<Operation>,
    charged: Time,
    sent_messages: u64,
    sent: u64,
    received: u64,
    /// Whether sends are over only when all of them is handed.
    unbuffered: bool,
    bounded: bool,
    memory: usize,
}

impl<'a> Engine<'a> {
    pub fn of(program: &'a mut dyn Program, cluster: &'a Cluster, see: &'a mut dyn FnMut(Seen)) -> Self {
        let rank = |seat: &Seat| Rank {
            seat: *seat,
            open: 0,
            computes: VecDeque::new(),
            posting: VecDeque::new(),
            sending: Queue::new(),
            arrived: Queue::new(),
            matching: Matching::default(),
            job: None,
            version: 0,
            doing: None,
            since: 0,
            split: Split::default(),
            end: 0,
        };
        let profile = &cluster.profile;
        Engine {
            unbuffered: program.waits_for_network(),
            bounded: profile.socket != u64::MAX || profile.library != u64::MAX,
            program,
            cluster,
            see,
            now: 0,
            events: BinaryHeap::new(),
            sequence: 0,
            order: 0,
            ranks: cluster.seats.iter().map(rank).collect(),
            hosts: Resources::of(cluster),
            messages: Messages::default(),
            connections: Connections::default(),
            over: VecDeque::new(),
            wakes: VecDeque::new(),
            in_order: InOrder::default(),
            free: Vec::new(),
            charged: 0,
            sent_messages: 0,
            sent: 0,
            received: 0,
            memory: 0,
        }
    }

    pub fn run(mut self) -> Result<Finished> {
        for rank in 0..self.ranks.len() as u32 {
            self.program.begin(rank, &mut self.free);
            self.release(rank);
        }
        self.settle();
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            if now == Time::MAX {
                let cause = "it takes longer than 64 bits of picoseconds hold, 213 days";
                return Err(Fault::new("the program", cause, "simulate fewer steps").of_kind(FaultKind::Limit));
            }
            self.now = now;
            self.take(event);
            // A core that becomes free chooses among all that came until then.
            let next = self.events.peek().map(|Reverse((time, ..))| *time);
            if self.cluster.profile.progress != Progress::Between || next != Some(now) {
                self.settle();
            }
        }
        self.finished()
    }

    fn at(&mut self, time: Time, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    fn next_order(&mut self) -> u32 {
        self.order = self.order.wrapping_add(1);
        self.order
    }

    /// Tells the program about operations that are over, and has ranks continue, until nothing more happens at this time.
    fn settle(&mut self) {
        loop {
            if let Some((rank, number)) = self.over.pop_front() {
                let of = &mut self.ranks[rank as usize];
                of.open -= 1;
                of.end = of.end.max(self.now);
                (self.see)(Seen::Over { rank, at: self.now });
                self.program.over(rank, number, &mut self.free);
                self.release(rank);
                self.wakes.push_back(rank);
            } else if self.cluster.profile.progress == Progress::Between {
                if !self.goes_on_in_order() {
                    return;
                }
            } else if let Some(rank) = self.wakes.pop_front() {
                self.advance(rank);
            } else {
                return;
            }
        }
    }

    /// Adds the operations in `free` to a rank.
    fn release(&mut self, rank: u32) {
        let mut free = std::mem::take(&mut self.free);
        free.sort_by_key(|operation| operation.kind);
        let profile = &self.cluster.profile;
        let buffered = !profile.copy.is_free();
        for Operation { kind, amount, peer, tag, number, .. } in free.drain(..) {
            let order = self.next_order();
            let of = &mut self.ranks[rank as usize];
            of.open += 1;
            match kind {
                Kind::Compute => {
                    let dilation = self.cluster.hosts[of.seat.host].cores[of.seat.core].dilation;
                    let factor = 1.0 + self.cluster.clocked * (dilation - 1.0);
                    let exact = amount.saturating_mul(1000);
                    let time = if factor == 1.0 { exact } else { (exact as f64 * factor) as Time };
                    self.charged = self.charged.saturating_add(time);
                    of.computes.push_back((number, time, order));
                }
                Kind::Send => {
                    let bytes = amount.max(1);
                    let rendezvous = bytes > profile.eager;
                    let slot = self.messages.put(Message {
                        from: rank,
                        to: peer,
                        tag,
                        bytes,
                        copied: if rendezvous || buffered { 0 } else { bytes },
                        handed: 0,
                        delivered: 0,
                        taken: 0,
                        send: number,
                        receive: 0,
                        order,
                        rendezvous,
                        send_is_over: false,
                    });
                    let part = if rendezvous { Part::Request } else { Part::Data };
                    let of = &mut self.ranks[rank as usize];
                    of.posting.push_back(slot);
                    put(&mut of.sending, (if profile.by_peer { peer } else { 0 }, slot, part));
                    self.sent_messages += 1;
                    self.sent = self.sent.saturating_add(amount);
                }
                Kind::Receive if profile.progress == Progress::Between => {
                    self.post_in_order(rank, Half { peer, tag, which: number }, order);
                }
                Kind::Receive => self.post(rank, Half { peer, tag, which: number }),
            }
        }
        // Operations that waited only for receives to start.
        let more = std::mem::replace(&mut self.free, free);
        if !more.is_empty() {
            self.free.extend(more);
            self.release(rank);
        }
        self.wakes.push_back(rank);
    }

    fn post(&mut self, rank: u32, receive: Half) {
        let met = self.ranks[rank as usize].matching.post(receive);
        self.program.started(rank, receive.which, &mut self.free);
        if let Some(slot) = met {
            self.meet(slot, receive.which);
        }
    }

    /// A message meets its receive, one of which had waited.
    fn meet(&mut self, slot: u32, receive: u32) {
        let Message { from, to, rendezvous, bytes, .. } = self.messages[slot];
        if !rendezvous {
            self.messages.give_back(slot);
            self.received = self.received.saturating_add(bytes);
            self.over.push_back((to, receive));
            return;
        }
        self.messages[slot].receive = receive;
        if self.cluster.profile.progress == Progress::Device {
            self.transmit(Piece { slot, part: Part::Clear, first: true, bytes: 0 });
        } else {
            let key = if self.cluster.profile.by_peer { from } else { 0 };
            put(&mut self.ranks[to as usize].sending, (key, slot, Part::Clear));
            self.wakes.push_back(to);
        }
    }

    fn ends(&self, piece: Piece) -> (u32, u32) {
        let Message { from, to, .. } = self.messages[piece.slot];
        if piece.part == Part::Clear { (to, from) } else { (from, to) }
    }

    fn is_inside(&self, one: u32, other: u32) -> bool {
        self.ranks[one as usize].seat.host == self.ranks[other as usize].seat.host
    }

    /// Has a rank do its next work, if its core is free for it.
    fn advance(&mut self, rank: u32) {
        let of = &self.ranks[rank as usize];
        if let Some(job) = of.job {
            let thread = self.cluster.profile.progress == Progress::Thread;
            let interrupts = thread && job.work == Work::Compute && job.running && self.movable(of).is_some();
            if !interrupts && job.running {
                return;
            }
            if interrupts {
                let left = self.stop(rank);
                let of = &mut self.ranks[rank as usize];
                of.job = None;
                if let Some(first) = of.computes.front_mut() {
                    first.1 = left;
                }
            }
        }
        self.return_from_sends(rank);
        let of = &self.ranks[rank as usize];
        let next = of.job.map(|job| job.work).or_else(|| self.select(of));
        // Work without duration may be left.
        let ended = of.open == 0 && (self.cluster.profile.progress != Progress::Between || of.job.is_none());
        let doing = match next {
            Some(Work::Compute) => Some(Doing::Computing),
            _ if ended => None,
            _ if !of.posting.is_empty() => Some(Doing::Sending),
            _ => Some(Doing::Waiting),
        };
        self.does(rank, doing);
        match next {
            Some(work) if self.seated(rank) => self.start(rank, work),
            Some(_) => {}
            None => self.idle(rank),
        }
    }

    /// Returns from sends that the library has copied entirely, while the sockets have no room for more.
    fn return_from_sends(&mut self, rank: u32) {
        if self.cluster.profile.copy.is_free() {
            return;
        }
        let of = &self.ranks[rank as usize];
        let stays = |slot: &u32| {
            let message = &self.messages[*slot];
            message.copied < message.bytes || self.handable(of, Some(message.to)).is_some()
        };
        let returning: Vec<u32> = of.posting.iter().copied().filter(|slot| !stays(slot)).collect();
        for slot in returning {
            self.unpost(slot);
            if !self.unbuffered {
                self.send_is_over(slot);
            }
        }
    }

    fn start(&mut self, rank: u32, what: Work) {
        let resumed = self.ranks[rank as usize].job;
        let left = resumed.map_or_else(|| self.length(rank, what), |job| job.left);
        if resumed.is_none() && what != Work::Compute {
            self.charged = self.charged.saturating_add(left);
        }
        let Seat { host, core } = self.ranks[rank as usize].seat;
        let from = self.hosts[host].cores[core].protocol.free().max(self.now);
        let of = &mut self.ranks[rank as usize];
        let ends = from.saturating_add(left);
        of.job = Some(Job { work: what, left, ends, running: true });
        of.version += 1;
        let version = of.version;
        self.at(ends, Event::Done { rank, version });
        if resumed.is_none() {
            self.begins(rank, what);
        }
        if self.cluster.profile.progress == Progress::Between && resumed.is_none() {
            // Work that is over when it begins: operations that it frees wait for the core anyway, sends first.
            self.worked(rank, what);
        }
        if !self.free.is_empty() && (self.cluster.profile.progress != Progress::Between || self.over.is_empty()) {
            self.release(rank);
        }
    }

    /// Tells the program that an operation begins, if this is its first work.
    fn begins(&mut self, rank: u32, what: Work) {
        let number = match what {
            Work::Compute => self.ranks[rank as usize].computes.front().map(|(number, ..)| *number),
            Work::Copy(slot) if self.messages[slot].copied == 0 => Some(self.messages[slot].send),
            Work::Hand(slot, part) if part != Part::Clear && self.messages[slot].handed == 0 => {
                let message = &self.messages[slot];
                let again = message.rendezvous && part == Part::Data || self.copies(message);
                (!again).then_some(message.send)
            }
            _ => None,
        };
        if let Some(number) = number {
            self.program.started(rank, number, &mut self.free);
        }
    }

    fn send_is_over(&mut self, slot: u32) {
        let message = &mut self.messages[slot];
        if !std::mem::replace(&mut message.send_is_over, true) {
            self.over.push_back((message.from, message.send));
        }
    }

    fn unpost(&mut self, slot: u32) {
        let posting = &mut self.ranks[self.messages[slot].from as usize].posting;
        if let Some(at) = posting.iter().position(|other| *other == slot) {
            posting.remove(at);
        }
    }

    /// The consequences of a rank's finished work.
    fn worked(&mut self, rank: u32, what: Work) {
        self.wakes.push_back(rank);
        let unit = self.cluster.profile.unit;
        match what {
            Work::Compute => {
                if let Some((number, ..)) = self.ranks[rank as usize].computes.pop_front() {
                    self.over.push_back((rank, number));
                }
            }
            Work::Copy(slot) => {
                let message = &mut self.messages[slot];
                let bytes = message.piece(message.copied, unit);
                message.copied += bytes;
                let Message { from, to, .. } = *message;
                if self.bounded {
                    self.connections.change(from, to, |of| of.library = of.library.saturating_add(bytes));
                }
            }
            Work::Hand(slot, part) => self.handed(rank, slot, part),
            Work::Take(slot, part) => {
                let first = self.messages[slot].taken == 0;
                let bytes =
                    if part == Part::Data { self.messages[slot].piece(self.messages[slot].taken, unit) } else { 0 };
                let message = &self.messages[slot];
                let all = part != Part::Data || message.taken + bytes == message.delivered;
                if all {
                    self.ranks[rank as usize].arrived.retain(|entry| (entry.1, entry.2) != (slot, part));
                }
                self.taken(Piece { slot, part, first, bytes });
            }
        }
    }

    fn handed(&mut self, rank: u32, slot: u32, part: Part) {
        let unit = self.cluster.profile.unit;
        let message = &mut self.messages[slot];
        let first = message.handed == 0;
        let mut bytes = 0;
        let mut left = false;
        if part == Part::Data {
            bytes = message.piece(message.handed, unit);
            message.handed += bytes;
            left = message.handed < message.bytes;
        }
        let message = *message;
        if !left {
            self.ranks[rank as usize].sending.retain(|entry| (entry.1, entry.2) != (slot, part));
        }
        if part == Part::Data && self.bounded {
            let copied = self.copies(&message);
            self.connections.change(message.from, message.to, |buffers| {
                buffers.socket = buffers.socket.saturating_add(bytes);
                buffers.library = buffers.library.saturating_sub(if copied { bytes } else { 0 });
            });
        }
        if part != Part::Clear && !left {
            self.unpost(slot);
        }
        if part == Part::Data && !left {
            self.send_is_over(slot);
        }
        if self.cluster.profile.progress == Progress::Between {
            self.messages[slot].order = self.next_order();
        }
        self.transmit(Piece { slot, part, first: first || part != Part::Data, bytes });
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Done { rank, version } => {
                let of = &self.ranks[rank as usize];
                let Some(job) = of.job.filter(|_| of.version == version) else { return };
                if job.ends > self.now {
                    return self.at(job.ends, event);
                }
                self.stop(rank);
                self.ranks[rank as usize].job = None;
                match self.cluster.profile.progress {
                    Progress::Between => {
                        self.ranks[rank as usize].end = self.now;
                        self.wakes.push_back(rank);
                    }
                    _ => self.worked(rank, job.work),
                }
            }
            Event::Slice { host, core } => {
                let (host, core) = (host as usize, core as usize);
                let seats = &mut self.hosts[host].cores[core];
                seats.slicing = false;
                let Some(rank) = seats.on.filter(|_| !seats.queue.is_empty()) else { return };
                if self.now < seats.slice_ends {
                    return self.arm(host, core);
                }
                self.stop(rank);
                if self.ranks[rank as usize].job.is_some() {
                    self.hosts[host].cores[core].queue.push_back(rank);
                }
                self.give(host, core);
            }
            Event::Ready(piece) => self.leave(piece),
            Event::Landed(piece) => {
                let host = self.ranks[self.ends(piece).1 as usize].seat.host;
                let time = self.on_the_wire(piece.bytes);
                let done = self.hosts[host].into.serve(self.now.saturating_sub(time), time).max(self.now);
                match done > self.now {
                    true => self.at(done, Event::Arrived(piece)),
                    false => self.arrived(piece),
                }
            }
            Event::Arrived(piece) => self.arrived(piece),
            Event::Delivered(piece) => self.delivered(piece),
            Event::Acknowledged { from, to, bytes } => {
                let cost = self.cluster.profile.acknowledge;
                let done = match cost.is_free() {
                    true => self.now,
                    false => self.interrupt(from, true, bytes, &cost),
                };
                self.at(done, Event::Opened { from, to, bytes });
            }
            Event::Opened { from, to, bytes } => {
                if self.bounded {
                    self.connections.change(from, to, |of| of.socket = of.socket.saturating_sub(bytes));
                }
                self.wakes.push_back(from);
            }
        }
    }
}
