//! LogGOPS by the rules of LogGOPSim, which decide what the papers leave open. A message has `s` bytes.
//!
//! ```text
//! send      begins when its cpu and its nic's sending side are free; takes the cpu for o + (s-1) O, the nic for g + (s-1) G
//! arrival   first byte o + L after the send began; waits for the cpu (of the sender's number) and the nic's receiving side;
//!           takes the cpu for o + max((s-1) O, (s-1) G), the nic for g + (s-1) G, whether or not a receive is posted
//! receive   begins when its cpu is free; takes nothing; over when its message was, or has been, received
//! compute   takes its cpu
//! over      eager (s <= S): a send when it began; else when its message meets its receive, and the sender's cpu and nic (of
//!           the numbers of whichever came last) are not free before that moment; no way back is charged
//! irequires when that has started; requires: when that is over. What becomes free begins no earlier than its cpu is free:
//!           by this alone, not by the end of what it required on another cpu
//! ```
//!
//! What is due at the same nanosecond goes in the order in which it became free: lower ranks first, sends before receives
//! before computing, as written. A message of 0 bytes counts as one of 1, for which LogGOPSim's arithmetic fails.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::str::FromStr;

use machine::fault::{Fault, Result};
use machine::{FaultKind, count};

use super::{ANY, Kind, Operation, Program};

/// Nanoseconds, whole ones as in LogGOPSim, and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// L: from the end of the sender's overhead to the first byte at the receiver.
    pub latency: u64,
    /// o: time of the cpu for a message at either end.
    pub overhead: u64,
    /// g: between messages of a network interface.
    pub gap: u64,
    /// G: between bytes of a message.
    pub gap_per_byte: u64,
    /// O: time of the cpu for a byte.
    pub overhead_per_byte: u64,
    /// S: the largest message whose send waits for no receive.
    pub eager: u64,
}

impl Default for Parameters {
    /// LogGOPSim's defaults.
    fn default() -> Self {
        let (latency, overhead, gap) = (2500, 1500, 1000);
        Parameters { latency, overhead, gap, gap_per_byte: 6, overhead_per_byte: 0, eager: 65_535 }
    }
}

impl FromStr for Parameters {
    type Err = Fault;

    /// Parses `L=2500,o=1500,g=1000,G=6,O=0,S=65535`; missing parameters have the values of [`Parameters::default`].
    fn from_str(text: &str) -> Result<Self> {
        let mut parameters = Parameters::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let field = match name {
                "L" => &mut parameters.latency,
                "o" => &mut parameters.overhead,
                "g" => &mut parameters.gap,
                "G" => &mut parameters.gap_per_byte,
                "O" => &mut parameters.overhead_per_byte,
                "S" => &mut parameters.eager,
                _ => return Err(Fault::new(part, "LogGOPS has L, o, g, G, O and S", "name one of them, as in L=2500")),
            };
            *field = value.parse().map_err(|_| {
                Fault::new(part, "this is no whole number", "give nanoseconds, and for S bytes, as in L=2500")
            })?;
        }
        Ok(parameters)
    }
}

/// The result of a simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// When the last cpu of each rank became free, in ns.
    pub ranks: Vec<u64>,
    /// Time charged to each cpu, in ns: cpu by cpu of rank 0, then of rank 1.
    pub busy: Vec<u64>,
    pub messages: u64,
    pub sent: u64,
    /// Bytes that met a receive: as many as were sent.
    pub received: u64,
    /// The most bytes held for ranks and operations in progress, without the program's own.
    pub memory: usize,
}

impl Finished {
    /// The end of the last rank, in ns.
    pub fn total(&self) -> u64 {
        self.ranks.iter().copied().max().unwrap_or(0)
    }
}

/// The content of a slot in use: an operation, or a message on its way or unexpected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Operation(Kind),
    Message,
}

/// An operation from when it is free until it is over. A send becomes its message, of the other rank.
#[derive(Debug, Clone, Copy)]
struct Slot {
    amount: u64,
    rank: u32,
    peer: u32,
    tag: u32,
    number: u32,
    /// The next slot of its list.
    next: u32,
    cpu: u16,
    nic: u8,
    state: State,
}

const NONE: u32 = u32::MAX;

/// A list of slots in the order in which they came.
#[derive(Debug, Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

impl List {
    const EMPTY: List = List { head: NONE, tail: NONE };

    fn push(&mut self, slots: &mut [Slot], slot: u32) {
        slots[slot as usize].next = NONE;
        match self.tail {
            NONE => self.head = slot,
            tail => slots[tail as usize].next = slot,
        }
        self.tail = slot;
    }

    /// Removes the first slot that satisfies `which`.
    fn take(&mut self, slots: &mut [Slot], which: impl Fn(&Slot) -> bool) -> Option<u32> {
        let (mut before, mut at) = (NONE, self.head);
        while at != NONE && !which(&slots[at as usize]) {
            (before, at) = (at, slots[at as usize].next);
        }
        if at == NONE {
            return None;
        }
        let next = slots[at as usize].next;
        match before {
            NONE => self.head = next,
            before => slots[before as usize].next = next,
        }
        if self.tail == at {
            self.tail = before;
        }
        Some(at)
    }
}

/// An event that sorts by nanosecond, order and object: a slot, or [`WAKE`] and a rank.
fn event(time: u64, order: u32, what: u32) -> u128 {
    u128::from(time) << 64 | u128::from(order) << 32 | u128::from(what)
}

/// Marks the event of the first operation or message that waits at a rank.
const WAKE: u32 = 1 << 31;

/// An operation or message that waits at a rank for a cpu or an interface; only the first has an event.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    order: u32,
    slot: u32,
    cpu: u16,
    nic: u8,
    state: State,
}

/// When the cpus and interfaces of all ranks are free; these times never decrease.
struct Places {
    cpus: usize,
    nics: usize,
    cpu: Vec<u64>,
    sending: Vec<u64>,
    receiving: Vec<u64>,
}

impl Places {
    fn of_cpu(&self, rank: u32, cpu: u16) -> usize {
        rank as usize * self.cpus + cpu as usize
    }

    fn of_nic(&self, rank: u32, nic: u8) -> usize {
        rank as usize * self.nics + nic as usize
    }

    /// The earliest time at which the operation or message can begin.
    fn possible(&self, rank: u32, state: State, cpu: u16, nic: u8) -> u64 {
        let cpu = self.cpu[self.of_cpu(rank, cpu)];
        match state {
            State::Operation(Kind::Receive | Kind::Compute) => cpu,
            State::Operation(Kind::Send) => cpu.max(self.sending[self.of_nic(rank, nic)]),
            State::Message => cpu.max(self.receiving[self.of_nic(rank, nic)]),
        }
    }

    /// The index of the first of those that wait, and its event.
    fn first(&self, rank: u32, waiting: &[Waiting]) -> Option<(usize, u128)> {
        let events = waiting
            .iter()
            .enumerate()
            .map(|(at, one)| (at, event(self.possible(rank, one.state, one.cpu, one.nic), one.order, WAKE | rank)));
        events.min_by_key(|(_, event)| *event)
    }
}

struct Engine<'p> {
    program: &'p mut dyn Program,
    parameters: Parameters,
    events: BinaryHeap<Reverse<u128>>,
    /// The order of the next event.
    order: u32,
    slots: Vec<Slot>,
    /// The top of the stack of free slots.
    unused: u32,
    places: Places,
    /// By rank. `wakes` is no later than the first of `waiting`; an event of a rank that is not in it is an old one.
    waiting: Vec<Vec<Waiting>>,
    wakes: Vec<u128>,
    posted: Vec<List>,
    unexpected: Vec<List>,
    /// Operations that became free at the rank of the event and at the other one.
    free: [Vec<Operation>; 2],
    busy: Vec<u64>,
    messages: u64,
    sent: u64,
    received: u64,
}

/// Runs a program from time 0 to its end.
///
/// # Errors
/// The errors of [`super::run`].
pub fn simulate(program: &mut dyn Program, parameters: &Parameters) -> Result<Finished> {
    Engine::of(program, *parameters).run()
}

impl<'p> Engine<'p> {
    fn of(program: &'p mut dyn Program, parameters: Parameters) -> Self {
        let ranks = program.ranks() as usize;
        let (cpus, nics) = program.places();
        Engine {
            program,
            parameters,
            events: BinaryHeap::new(),
            order: 0,
            slots: Vec::new(),
            unused: NONE,
            places: Places {
                cpus,
                nics,
                cpu: vec![0; ranks * cpus],
                sending: vec![0; ranks * nics],
                receiving: vec![0; ranks * nics],
            },
            waiting: vec![Vec::new(); ranks],
            wakes: vec![u128::MAX; ranks],
            posted: vec![List::EMPTY; ranks],
            unexpected: vec![List::EMPTY; ranks],
            free: Default::default(),
            busy: vec![0; ranks * cpus],
            messages: 0,
            sent: 0,
            received: 0,
        }
    }

    fn run(mut self) -> Result<Finished> {
        for rank in 0..self.program.ranks() {
            self.program.begin(rank, &mut self.free[0]);
            self.release(0, rank)?;
        }
        while let Some((time, slot)) = self.next() {
            let Slot { rank, state, .. } = self.slots[slot as usize];
            match state {
                State::Operation(Kind::Compute) => self.compute(time, slot)?,
                State::Operation(Kind::Send) => self.send(time, slot)?,
                State::Operation(Kind::Receive) => self.receive(time, slot)?,
                State::Message => self.arrive(time, slot)?,
            }
            if self.wakes[rank as usize] == 0 {
                self.wake(rank);
            }
        }
        self.finished()
    }

    /// Takes the first event whose cpu and interface are free. If it was the first that waited at a rank, the next one
    /// there must be found.
    fn next(&mut self) -> Option<(u64, u32)> {
        loop {
            let mut first = self.events.peek_mut()?;
            let Reverse(key) = *first;
            let (time, order, what) = ((key >> 64) as u64, (key >> 32) as u32, key as u32);
            if what & WAKE == 0 {
                let Slot { rank, state, cpu, nic, .. } = self.slots[what as usize];
                let possible = self.places.possible(rank, state, cpu, nic);
                if state == State::Operation(Kind::Receive) || possible <= time {
                    PeekMut::pop(first);
                    return Some((time, what));
                }
                self.waiting[rank as usize].push(Waiting { order, slot: what, cpu, nic, state });
                let (wake, earliest) = (event(possible, order, WAKE | rank), &mut self.wakes[rank as usize]);
                if wake < *earliest {
                    (*earliest, *first) = (wake, Reverse(wake));
                } else {
                    PeekMut::pop(first);
                }
                continue;
            }
            let rank = what & !WAKE;
            let (wake, waiting) = (&mut self.wakes[rank as usize], &mut self.waiting[rank as usize]);
            match self.places.first(rank, waiting) {
                Some((at, event)) if *wake == key && event == key => {
                    PeekMut::pop(first);
                    *wake = 0;
                    return Some((time, waiting.swap_remove(at).slot));
                }
                Some((_, event)) if *wake == key => (*wake, *first) = (event, Reverse(event)),
                _ => drop(PeekMut::pop(first)),
            }
        }
    }

    /// Adds an event for the first that waits at a rank.
    fn wake(&mut self, rank: u32) {
        let first = self.places.first(rank, &self.waiting[rank as usize]);
        self.wakes[rank as usize] = first.map_or(u128::MAX, |(_, event)| event);
        self.events.extend(first.map(|(_, event)| Reverse(event)));
    }

    fn charge(&mut self, rank: u32, cpu: u16, time: u64, cost: u64) {
        let cpu = self.places.of_cpu(rank, cpu);
        self.places.cpu[cpu] = time.saturating_add(cost);
        self.busy[cpu] = self.busy[cpu].saturating_add(cost);
    }

    fn compute(&mut self, time: u64, slot: u32) -> Result<()> {
        let Slot { amount, rank, number, cpu, .. } = self.slots[slot as usize];
        self.charge(rank, cpu, time, amount);
        self.give_back(slot);
        self.program.started(rank, number, &mut self.free[0]);
        self.program.over(rank, number, &mut self.free[0]);
        self.release(0, rank)
    }

    fn send(&mut self, time: u64, slot: u32) -> Result<()> {
        let Parameters { latency, overhead, gap, gap_per_byte, overhead_per_byte, eager } = self.parameters;
        let Slot { amount, rank, peer, number, cpu, nic, .. } = self.slots[slot as usize];
        let more = amount.saturating_sub(1);
        self.charge(rank, cpu, time, overhead.saturating_add(more.saturating_mul(overhead_per_byte)));
        let nic = self.places.of_nic(rank, nic);
        self.places.sending[nic] = time.saturating_add(gap).saturating_add(more.saturating_mul(gap_per_byte));
        (self.messages, self.sent) = (self.messages + 1, self.sent.saturating_add(amount));
        let message = &mut self.slots[slot as usize];
        (message.state, message.rank, message.peer) = (State::Message, peer, rank);
        self.put(time.saturating_add(overhead).saturating_add(latency), slot)?;
        self.program.started(rank, number, &mut self.free[0]);
        if amount <= eager {
            self.program.over(rank, number, &mut self.free[0]);
        }
        self.release(0, rank)
    }

    fn receive(&mut self, time: u64, slot: u32) -> Result<()> {
        let Slot { rank, peer, tag, number, .. } = self.slots[slot as usize];
        self.program.started(rank, number, &mut self.free[0]);
        let meets = |message: &Slot| {
            (peer == ANY || message.peer == peer) && (tag == ANY || message.tag == ANY || message.tag == tag)
        };
        match self.unexpected[rank as usize].take(&mut self.slots, meets) {
            Some(message) => self.meet(time, message, slot, slot),
            None => {
                self.posted[rank as usize].push(&mut self.slots, slot);
                self.release(0, rank)
            }
        }
    }

    fn arrive(&mut self, time: u64, slot: u32) -> Result<()> {
        let Parameters { overhead, gap, gap_per_byte, overhead_per_byte, .. } = self.parameters;
        let Slot { amount, rank, peer, tag, cpu, nic, .. } = self.slots[slot as usize];
        let more = amount.saturating_sub(1);
        let bytes = more.saturating_mul(gap_per_byte.max(overhead_per_byte));
        self.charge(rank, cpu, time, overhead.saturating_add(bytes));
        let nic = self.places.of_nic(rank, nic);
        self.places.receiving[nic] = time.saturating_add(gap).saturating_add(more.saturating_mul(gap_per_byte));
        let meets = |posted: &Slot| {
            (posted.peer == ANY || posted.peer == peer) && (tag == ANY || posted.tag == ANY || posted.tag == tag)
        };
        match self.posted[rank as usize].take(&mut self.slots, meets) {
            Some(receive) => self.meet(time, slot, receive, slot),
            None => {
                self.unexpected[rank as usize].push(&mut self.slots, slot);
                Ok(())
            }
        }
    }

    /// Ends a message and its receive, of which `last` came last.
    fn meet(&mut self, time: u64, message: u32, receive: u32, last: u32) -> Result<()> {
        let Slot { amount, peer: sender, number: send, .. } = self.slots[message as usize];
        let Slot { rank, number, .. } = self.slots[receive as usize];
        let Slot { cpu, nic, .. } = self.slots[last as usize];
        self.give_back(message);
        self.give_back(receive);
        self.received = self.received.saturating_add(amount);
        let other = usize::from(sender != rank);
        if amount > self.parameters.eager {
            let cpu = self.places.of_cpu(sender, cpu);
            let nic = self.places.of_nic(sender, nic);
            self.places.cpu[cpu] = time.max(self.places.cpu[cpu]);
            self.places.sending[nic] = time.max(self.places.sending[nic]);
            self.program.over(sender, send, &mut self.free[other]);
        }
        self.program.over(rank, number, &mut self.free[0]);
        let (lower, higher) = if sender < rank { ((other, sender), (0, rank)) } else { ((0, rank), (other, sender)) };
        self.release(lower.0, lower.1)?;
        self.release(higher.0, higher.1)
    }

    /// Adds events for operations that became free at `rank`.
    fn release(&mut self, which: usize, rank: u32) -> Result<()> {
        let mut free = std::mem::take(&mut self.free[which]);
        free.sort_by_key(|operation| operation.kind);
        for Operation { kind, amount, peer, tag, number, cpu, nic } in free.drain(..) {
            let state = State::Operation(kind);
            let time = self.places.possible(rank, state, cpu, nic);
            let slot = self.slot(Slot { amount, rank, peer, tag, number, next: NONE, cpu, nic, state })?;
            if kind == Kind::Receive {
                self.put(time, slot)?;
                continue;
            }
            let order = self.order(time)?;
            self.waiting[rank as usize].push(Waiting { order, slot, cpu, nic, state });
            let (wake, earliest) = (event(time, order, WAKE | rank), &mut self.wakes[rank as usize]);
            if wake < *earliest {
                *earliest = wake;
                self.events.push(Reverse(wake));
            }
        }
        self.free[which] = free;
        Ok(())
    }

    fn slot(&mut self, content: Slot) -> Result<u32> {
        if self.unused != NONE {
            let slot = self.unused;
            self.unused = std::mem::replace(&mut self.slots[slot as usize], content).next;
            return Ok(slot);
        }
        let slot = self.slots.len() as u32;
        if slot == WAKE {
            let next = "simulate fewer ranks or smaller schedules";
            return Err(Fault::new("the simulation", "more than 2 billion operations are in progress", next)
                .of_kind(FaultKind::Limit));
        }
        self.slots.push(content);
        Ok(slot)
    }

    fn give_back(&mut self, slot: u32) {
        self.slots[slot as usize].next = std::mem::replace(&mut self.unused, slot);
    }

    fn put(&mut self, time: u64, slot: u32) -> Result<()> {
        let order = self.order(time)?;
        self.events.push(Reverse(event(time, order, slot)));
        Ok(())
    }

    /// The order of the next operation to become free, among all events of the same time.
    fn order(&mut self, time: u64) -> Result<u32> {
        if time == u64::MAX {
            let cause = "it takes longer than 64 bits of nanoseconds hold, 584 years";
            return Err(
                Fault::new("the program", cause, "check its sizes and the parameters").of_kind(FaultKind::Limit)
            );
        }
        if self.order == u32::MAX {
            self.renumber();
        }
        self.order += 1;
        Ok(self.order - 1)
    }

    /// Renumbers all events from 0 on, in the same order.
    fn renumber(&mut self) {
        let mut events = std::mem::take(&mut self.events).into_vec();
        events.retain(|Reverse(key)| *key as u32 & WAKE == 0);
        let order = |key: &u128| (key >> 32) as u32;
        let mut known: Vec<u32> = events.iter().map(|Reverse(key)| order(key)).collect();
        known.extend(self.waiting.iter().flatten().map(|one| one.order));
        known.sort_unstable();
        let new = |old: u32| known.partition_point(|order| *order < old) as u32;
        for Reverse(key) in &mut events {
            *key = event((*key >> 64) as u64, new(order(key)), *key as u32);
        }
        for one in self.waiting.iter_mut().flatten() {
            one.order = new(one.order);
        }
        self.order = known.len() as u32;
        self.events = events.into();
        for rank in 0..self.waiting.len() as u32 {
            // Where it is 0, the rank's event is being handled, and its next one follows that.
            if self.wakes[rank as usize] != 0 {
                self.wake(rank);
            }
        }
    }

    fn finished(self) -> Result<Finished> {
        let left = |lists: &[List]| lists.iter().position(|list| list.head != NONE).map(|at| lists[at].head);
        let peer = |slot: &Slot| if slot.peer == ANY { "any rank".to_owned() } else { format!("rank {}", slot.peer) };
        if let Some(slot) = left(&self.posted).map(|slot| &self.slots[slot as usize]) {
            let cause = format!("its receive of {} B from {} gets no message", count::grouped(slot.amount), peer(slot));
            return Err(Fault::new(format!("rank {}", slot.rank), cause, "add the send, or compare tags"));
        }
        if let Some(slot) = left(&self.unexpected).map(|slot| &self.slots[slot as usize]) {
            let cause =
                format!("nothing receives the message of {} B from {}", count::grouped(slot.amount), peer(slot));
            return Err(Fault::new(format!("rank {}", slot.rank), cause, "add the receive, or compare tags"));
        }
        if let Some(rank) = self.program.stuck() {
            let cause = "an operation never begins, since operations require each other";
            return Err(Fault::new(format!("rank {rank}"), cause, "break the circle of requirements"));
        }
        let ranks: Vec<u64> =
            self.places.cpu.chunks(self.places.cpus).map(|cpus| cpus.iter().copied().max().unwrap_or(0)).collect();
        if ranks.contains(&u64::MAX) {
            let cause = "it takes longer than 64 bits of nanoseconds hold, 584 years";
            return Err(
                Fault::new("the program", cause, "check its sizes and the parameters").of_kind(FaultKind::Limit)
            );
        }
        let Places { cpu, sending, receiving, .. } = &self.places;
        let words = cpu.capacity() + self.busy.capacity() + sending.capacity() + receiving.capacity();
        let lists = self.posted.capacity() + self.unexpected.capacity();
        let waiting: usize = self.waiting.iter().map(Vec::capacity).sum();
        let memory = words * size_of::<u64>()
            + lists * size_of::<List>()
            + self.waiting.capacity() * size_of::<Vec<Waiting>>()
            + waiting * size_of::<Waiting>()
            + self.slots.capacity() * size_of::<Slot>()
            + (self.events.capacity() + self.wakes.capacity()) * size_of::<u128>();
        let (messages, sent, received) = (self.messages, self.sent, self.received);
        Ok(Finished { ranks, busy: self.busy, messages, sent, received, memory })
    }
}

#[cfg(test)]
mod tests {
    use super::super::programs::{Halo, Lazy};
    use super::*;

    #[test]
    fn new_numbers_of_events_change_nothing() {
        let halo = Halo { extents: vec![3, 4], steps: 4, bytes: 999, computing: 500, uneven: 900, seed: 1, sum: true };
        let finished = |order: u32| {
            let mut program = Lazy::of(halo.clone());
            let mut engine = Engine::of(&mut program, Parameters::default());
            engine.order = order;
            engine.run().unwrap()
        };
        let plain = finished(0);
        assert!((1..200).all(|before| finished(u32::MAX - 7 * before).ranks == plain.ranks));
    }
}
