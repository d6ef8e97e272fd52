//! The virtual hosts: cores, engines, wires and the clock.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use engine::{Direction, Engine, Source, Status, TagSelector};
use machine::fault::{Fault, Result};
use machine::{Nanoseconds, PeerIndex};
use rounds::random::Random;

use super::account::Account;
use super::events::{Event, Events, LONGEST, Packet};
use super::hosts::{Seated, paced};
use super::message::Message;
use super::path::{Path, known, times};
use super::{Hosts, Outcome, Placement, Settings};
use crate::{ANY, Kind, Operation, Program};

mod finished;

/// The packets that a driver takes from its port before it sends any, and the commands that an engine's core takes from a rank
/// before the engine is polled (`endpoint`).
const RECEIVE_BUDGET: usize = 64;
const COMMANDS: usize = 32;
/// The longest message whose bytes go through the rings between a rank and an engine's core; the engine reads longer ones
/// from the rank's memory.
const INLINE: u64 = 8 << 10;
/// Marks a send that was over for its rank when the engine's core took it.
const GONE: u64 = 1 << 32;
/// The time without progress after which the run is stuck: longer than any timer of the engine, ps.
const TIMEOUT: u64 = 120_000_000_000_000;

/// The time of the engine's clock.
fn ns(clock: u64) -> Nanoseconds {
    Nanoseconds(clock / 1000)
}

/// Another rank, as a rank knows it.
pub(super) struct Peer {
    rank: usize,
    /// The peer's index of this rank.
    back: PeerIndex,
    /// Packets from the peer that were not taken in yet.
    held: u32,
    /// Whether the peer has no room for packets of this rank.
    full: bool,
    /// When the latest packet to the peer arrives.
    latest: u64,
}

/// A rank and its engine.
pub(super) struct Rank {
    host: usize,
    /// The factor by which work takes longer on its core.
    pace: f64,
    account: Account,
    engine: Engine<Message>,
    peers: Vec<Peer>,
    numbers: HashMap<usize, PeerIndex>,
    inbox: VecDeque<(PeerIndex, Vec<u8>)>,
    /// Operations that can begin, by cpu.
    ready: Vec<VecDeque<Operation>>,
    /// Commands to the engine's core, each with the time at which that sees it.
    commands: VecDeque<(u64, Operation)>,
    /// Completions from the engine's core: the time at which the rank sees them, the operation, its kind, bytes that come
    /// with it.
    told: VecDeque<(u64, u32, Kind, u64)>,
    /// Whether its engine has work that no event announces.
    again: bool,
}

#[derive(Default, Clone)]
struct Core {
    free: u64,
    busy: u64,
    /// The time of its next look.
    planned: Option<u64>,
}

#[derive(Default, Clone)]
struct Host {
    ranks: Vec<usize>,
    /// The pace of its engine's core.
    pace: f64,
    /// When its wire is free, outwards and inwards.
    out: u64,
    into: u64,
    /// The index of the rank whose engine is polled next.
    seat: usize,
}

pub(super) struct World<'p> {
    program: &'p mut dyn Program,
    placement: Placement,
    cpus: usize,
    /// The share of computing that follows the pace of its core.
    clocked: f64,
    /// The path within a host, and, where ranks are on several, between hosts.
    paths: Vec<Path>,
    handover: u64,
    copied: f64,
    turn: u64,
    now: u64,
    events: Events,
    ranks: Vec<Rank>,
    /// The cores of the ranks, rank by rank, then those of the engines.
    cores: Vec<Core>,
    hosts: Vec<Host>,
    random: Random,
    free: Vec<Operation>,
    /// Bytes written to receives.
    received: Rc<Cell<u64>>,
    /// Operations that are not over, those of them that compute, packets under way.
    outstanding: usize,
    computing: usize,
    under_way: usize,
    progressed: u64,
    first_busy: usize,
    outcome: Outcome,
}

impl<'p> World<'p> {
    pub fn of(program: &'p mut dyn Program, settings: &Settings) -> Result<Self> {
        let cpus = if matches!(settings.hosts, Hosts::Each(_)) { program.places().0 } else { 1 };
        let seated = settings.hosts.seated(program.ranks() as usize)?;
        let mut paths = vec![Path::of(&settings.within)?];
        if seated.is_spread() {
            let path = Path::of(&settings.between)?;
            if path.link.remote_read {
                let cause = "no network of plimsoll reads the memory of another host";
                return Err(Fault::new(
                    "settings of a carrier",
                    cause,
                    "leave remote_read to the carrier within a host",
                ));
            }
            paths.push(path);
        }
        let Seated { ranks, engines, clocked } = seated;
        let count = ranks.len();
        let mut hosts: Vec<Host> = engines.iter().map(|pace| Host { pace: *pace, ..Host::default() }).collect();
        for (rank, (host, _)) in ranks.iter().enumerate() {
            hosts[*host].ranks.push(rank);
        }
        let rank = |(host, pace)| Rank {
            host,
            pace,
            account: Account::default(),
            engine: Engine::new(),
            peers: Vec::new(),
            numbers: HashMap::new(),
            inbox: VecDeque::new(),
            ready: vec![VecDeque::new(); cpus],
            commands: VecDeque::new(),
            told: VecDeque::new(),
            again: false,
        };
        let engines = if settings.placement == Placement::Core { hosts.len() } else { 0 };
        Ok(World {
            program,
            placement: settings.placement,
            cpus,
            clocked,
            paths,
            handover: known("a cache line to another core", &settings.handover)?.round() as u64,
            copied: known("a byte to another core", &settings.copied)?,
            turn: known("a look at an engine", &settings.turn)?.round() as u64,
            now: 0,
            events: Events::default(),
            ranks: ranks.into_iter().map(rank).collect(),
            cores: vec![Core::default(); count * cpus + engines],
            hosts,
            random: Random::new(settings.seed),
            free: Vec::new(),
            received: Rc::default(),
            outstanding: 0,
            computing: 0,
            under_way: 0,
            progressed: 0,
            first_busy: 0,
            outcome: Outcome { ranks: vec![0; count], ..Outcome::default() },
        })
    }

    pub fn run(mut self) -> Result<Outcome> {
        for rank in 0..self.ranks.len() {
            self.program.begin(rank as u32, &mut self.free);
            self.release(rank)?;
        }
        while let Some((at, event)) = self.events.next() {
            self.now = at;
            if self.computing == 0 && at > self.progressed + TIMEOUT {
                break;
            }
            self.happen(event)?;
            if self.outstanding == 0 && self.is_quiet() {
                break;
            }
        }
        self.finished()
    }

    fn happen(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Look(core) => self.look(core),
            Event::Over { rank, number, kind } => {
                self.outstanding -= 1;
                self.computing -= usize::from(kind == Kind::Compute);
                self.ranks[rank].account.ends(self.now, kind == Kind::Send);
                self.progressed = self.now;
                self.outcome.ranks[rank] = self.now;
                self.program.over(rank as u32, number, &mut self.free);
                self.release(rank)
            }
            Event::Leave(packet) => {
                let from = self.ranks[packet.to].peers[packet.from.0 as usize].rank;
                let host = &mut self.hosts[self.ranks[from].host];
                let path = &self.paths[1];
                let start = self.now.max(host.out);
                host.out = start + times(packet.bytes.len() as u64, path.wire);
                if path.loss > 0.0 && self.random.unit() < path.loss {
                    self.under_way -= 1;
                    self.outcome.lost += 1;
                    return Ok(());
                }
                self.put(start + path.latency, Event::Enter(packet))
            }
            Event::Enter(packet) => {
                let host = &mut self.hosts[self.ranks[packet.to].host];
                host.into = self.now.max(host.into) + times(packet.bytes.len() as u64, self.paths[1].wire);
                let at = host.into;
                self.put(at, Event::Arrive(packet))
            }
            Event::Arrive(Packet { to, from, bytes }) => {
                self.under_way -= 1;
                self.ranks[to].inbox.push_back((from, bytes));
                self.schedule_poll(to, self.now)
            }
        }
    }

    fn put(&mut self, at: u64, event: Event) -> Result<()> {
        self.events.put(at, event)
    }

    /// Queues operations that became free at `rank`: those that begin a message before computing.
    fn release(&mut self, rank: usize) -> Result<()> {
        let mut free = std::mem::take(&mut self.free);
        free.sort_by_key(|operation| operation.kind == Kind::Compute);
        for operation in free.drain(..) {
            self.outstanding += 1;
            let cpu = usize::from(operation.cpu).min(self.cpus - 1);
            self.ranks[rank].ready[cpu].push_back(operation);
            self.wake(rank * self.cpus + cpu, self.now)?;
        }
        self.free = free;
        Ok(())
    }

    fn wake(&mut self, core: usize, at: u64) -> Result<()> {
        let Core { free, planned, .. } = &mut self.cores[core];
        let at = at.max(self.now).max(*free);
        if planned.is_none_or(|planned| at < planned) {
            *planned = Some(at);
            self.put(at, Event::Look(core))?;
        }
        Ok(())
    }

    /// Schedules a look of the core that polls the engine of `rank`.
    fn schedule_poll(&mut self, rank: usize, at: u64) -> Result<()> {
        match self.placement {
            Placement::App => self.wake_rank(rank, at),
            Placement::Core => self.wake(self.ranks.len() * self.cpus + self.ranks[rank].host, at),
        }
    }

    fn wake_rank(&mut self, rank: usize, at: u64) -> Result<()> {
        (rank * self.cpus..(rank + 1) * self.cpus).try_for_each(|core| self.wake(core, at))
    }

    fn look(&mut self, core: usize) -> Result<()> {
        if self.cores[core].planned != Some(self.now) {
            return Ok(());
        }
        self.cores[core].planned = None;
        match core.checked_sub(self.ranks.len() * self.cpus) {
            None => self.rank_looks(core),
            Some(host) => self.engines_turn(host, core),
        }
    }

    /// A look of a rank's core: begins an operation, takes in completions from the engine's core, or polls its own engine.
    fn rank_looks(&mut self, core: usize) -> Result<()> {
        let (rank, cpu) = (core / self.cpus, core % self.cpus);
        let mut clock = self.now;
        if let Some(operation) = self.ranks[rank].ready[cpu].pop_front() {
            self.begin(rank, operation, &mut clock)?;
        } else if let Some((_, number, kind, bytes)) = self.ranks[rank].told.pop_front_if(|(at, ..)| *at <= self.now) {
            self.hand_over(rank, bytes, &mut clock);
            self.put(clock, Event::Over { rank, number, kind })?;
        } else if self.placement == Placement::App && self.is_due(rank) {
            self.turn(rank, &mut clock)?;
        }
        self.cores[core].busy += clock - self.now;
        self.cores[core].free = clock;
        if !self.ranks[rank].ready[cpu].is_empty() {
            self.wake(core, clock)?;
        }
        if let Some((at, ..)) = self.ranks[rank].told.front() {
            self.wake(core, *at)?;
        }
        match self.due(rank) {
            Some(at) if self.placement == Placement::App => self.wake_rank(rank, at),
            _ => Ok(()),
        }
    }

    /// A look of an engines' core: polls the next engine that has work; while there is none, the core cycles through all.
    fn engines_turn(&mut self, host: usize, core: usize) -> Result<()> {
        let seats = self.hosts[host].ranks.len();
        let turn = paced(self.turn, self.hosts[host].pace);
        let rounds = (self.now - self.cores[core].free).checked_div(turn).unwrap_or(0);
        let start = self.hosts[host].seat + (rounds % seats as u64) as usize;
        let mut clock = self.now;
        let at = |passed: usize| (start + passed) % seats;
        if let Some(passed) = (0..seats).find(|passed| self.is_due(self.hosts[host].ranks[at(*passed)])) {
            let (seat, rank) = (at(passed), self.hosts[host].ranks[at(passed)]);
            clock += turn * (passed as u64 + 1);
            let begun = clock;
            for _ in 0..COMMANDS {
                let now = self.now;
                let Some((_, operation)) = self.ranks[rank].commands.pop_front_if(|(at, _)| *at <= now) else { break };
                self.ask(rank, operation, &mut clock)?;
            }
            self.turn(rank, &mut clock)?;
            self.cores[core].busy += clock - begun;
            self.hosts[host].seat = (seat + 1) % seats;
        }
        self.cores[core].free = clock;
        match self.hosts[host].ranks.iter().filter_map(|rank| self.due(*rank)).min() {
            Some(at) => self.wake(core, at),
            None => Ok(()),
        }
    }

    /// When the engine of `rank` has work.
    fn due(&self, rank: usize) -> Option<u64> {
        let Rank { engine, inbox, commands, again, .. } = &self.ranks[rank];
        if *again || !inbox.is_empty() {
            return Some(0);
        }
        let timeout = engine.next_timeout().map(|at| at.0.saturating_mul(1000));
        [commands.front().map(|(at, _)| *at), timeout].into_iter().flatten().min()
    }

    fn is_due(&self, rank: usize) -> bool {
        self.due(rank).is_some_and(|at| at <= self.now)
    }

    fn hand_over(&mut self, rank: usize, bytes: u64, clock: &mut u64) {
        *clock += paced(self.handover + times(bytes, self.copied), self.ranks[rank].pace);
        self.outcome.handovers += 1;
        self.outcome.inlined += bytes;
    }

    /// Begins an operation on its rank's core.
    fn begin(&mut self, rank: usize, operation: Operation, clock: &mut u64) -> Result<()> {
        let Operation { kind, amount, number, .. } = operation;
        if kind == Kind::Send {
            self.ranks[rank].account.sends(*clock);
        }
        if kind == Kind::Compute {
            let pace = 1.0 + self.clocked * (self.ranks[rank].pace - 1.0);
            let computing = paced(amount.saturating_mul(1000), pace).min(LONGEST + 1);
            self.ranks[rank].account.computes(*clock, *clock + computing);
            *clock += computing;
            self.outcome.computing = self.outcome.computing.saturating_add(computing);
            self.computing += 1;
            self.put(*clock, Event::Over { rank, number, kind })?;
        } else if self.placement == Placement::App {
            self.ask(rank, operation, clock)?;
            self.complete(rank, clock)?;
        } else {
            let inline = is_inline(&operation);
            self.hand_over(rank, if inline { amount } else { 0 }, clock);
            self.ranks[rank].commands.push_back((*clock, operation));
            if inline {
                self.put(*clock, Event::Over { rank, number, kind })?;
            }
            self.schedule_poll(rank, *clock)?;
        }
        self.program.started(rank as u32, number, &mut self.free);
        self.release(rank)
    }

    /// Passes a request to the engine of `rank`, as a driver does, and sends what can leave.
    fn ask(&mut self, rank: usize, operation: Operation, clock: &mut u64) -> Result<()> {
        let Operation { kind, amount, peer, tag, number, .. } = operation;
        let number = u64::from(number);
        if kind == Kind::Send {
            let to = self.peer(rank, peer as usize);
            *clock += self.work(rank, self.path(rank, peer as usize).message);
            self.outcome.messages += 1;
            self.outcome.sent = self.outcome.sent.saturating_add(amount);
            let gone = if self.placement == Placement::Core && is_inline(&operation) { GONE } else { 0 };
            let message = Message::sent(amount, &self.received);
            let asked = self.ranks[rank].engine.send(to, u64::from(tag), message, number | gone);
            asked.map_err(|_| unknown(rank))?;
            return self.transmit(rank, clock);
        }
        let source = match peer {
            ANY => Source::Any,
            peer => Source::Peer(self.peer(rank, peer as usize)),
        };
        let selector = if tag == ANY { TagSelector::any() } else { TagSelector::exactly(u64::from(tag)) };
        let before = self.received.get();
        let engine = &mut self.ranks[rank].engine;
        engine.receive(source, selector, Message::to_receive(&self.received), number).map_err(|_| unknown(rank))?;
        self.ranks[rank].again |= self.ranks[rank].engine.ready_peers() > 0;
        let copied = self.received.get() - before;
        let path = if peer == ANY { &self.paths[0] } else { self.path(rank, peer as usize) };
        *clock += self.work(rank, times(copied, path.byte));
        self.outcome.copied += copied;
        Ok(())
    }

    /// The time of an engine's `work` on the core that polls it.
    fn work(&self, rank: usize, work: u64) -> u64 {
        let Rank { host, pace, .. } = self.ranks[rank];
        paced(work, if self.placement == Placement::App { pace } else { self.hosts[host].pace })
    }

    /// One poll by a driver.
    fn turn(&mut self, rank: usize, clock: &mut u64) -> Result<()> {
        self.ranks[rank].again = false;
        for _ in 0..RECEIVE_BUDGET {
            let Some((peer, bytes)) = self.ranks[rank].inbox.pop_front() else { break };
            let Peer { rank: from, back, .. } = self.ranks[rank].peers[peer.0 as usize];
            let path = self.path(rank, from);
            *clock += self.work(rank, path.handled(bytes.len()));
            self.outcome.taken += bytes.len() as u64;
            let Rank { engine, peers, .. } = &mut self.ranks[rank];
            let unexpected = engine.queue_lengths().1;
            engine.handle_packet(ns(*clock), peer, &bytes);
            self.outcome.unexpected += engine.queue_lengths().1.saturating_sub(unexpected) as u64;
            peers[peer.0 as usize].held = peers[peer.0 as usize].held.saturating_sub(1);
            if std::mem::take(&mut self.ranks[from].peers[back.0 as usize].full) {
                self.ranks[from].again = true;
                self.schedule_poll(from, *clock)?;
            }
        }
        let engine = &mut self.ranks[rank].engine;
        if engine.next_timeout().is_some_and(|at| at <= ns(*clock)) {
            engine.handle_timeout(ns(*clock));
        }
        let mut reads = 0;
        let fetched = engine.carry_out_reads(|_, address, _| {
            reads += u64::from(address == Message::ADDRESS);
            true
        });
        // A long message is read in pieces.
        self.ranks[rank].again |= fetched > 0;
        self.outcome.fetched += fetched;
        *clock += self.work(rank, reads * self.paths[0].read + times(fetched, self.paths[0].fetched));
        self.transmit(rank, clock)?;
        self.complete(rank, clock)
    }

    /// Passes the engine's packets to the wires.
    fn transmit(&mut self, rank: usize, clock: &mut u64) -> Result<()> {
        for _ in 0..self.ranks[rank].engine.ready_peers() {
            let Some(peer) = self.ranks[rank].engine.next_ready() else { break };
            let Peer { rank: to, back, .. } = self.ranks[rank].peers[peer.0 as usize];
            while let Some(length) = self.ranks[rank].engine.plan(ns(*clock), peer) {
                let path = self.path(rank, to);
                if path.reliable && self.ranks[to].peers[back.0 as usize].held >= path.slots {
                    let Rank { engine, peers, .. } = &mut self.ranks[rank];
                    engine.defer(peer);
                    peers[peer.0 as usize].full = true;
                    break;
                }
                *clock += self.work(rank, path.handled(length));
                let mut bytes = vec![0; length];
                self.ranks[rank].engine.write(ns(*clock), peer, &mut bytes);
                self.outcome.written += length as u64;
                self.launch(rank, peer, bytes, *clock)?;
            }
        }
        Ok(())
    }

    fn launch(&mut self, rank: usize, peer: PeerIndex, bytes: Vec<u8>, clock: u64) -> Result<()> {
        let Peer { rank: to, back, latest, .. } = self.ranks[rank].peers[peer.0 as usize];
        let path = self.path(rank, to);
        let arrival = (clock + path.latency + times(bytes.len() as u64, path.wire)).max(latest);
        let held = u32::from(path.reliable);
        self.under_way += 1;
        self.ranks[to].peers[back.0 as usize].held += held;
        let packet = Packet { to, from: back, bytes };
        if self.ranks[rank].host == self.ranks[to].host {
            self.ranks[rank].peers[peer.0 as usize].latest = arrival;
            return self.put(arrival, Event::Arrive(packet));
        }
        self.put(clock, Event::Leave(packet))
    }

    /// Tells the program which operations the engine has completed.
    fn complete(&mut self, rank: usize, clock: &mut u64) -> Result<()> {
        while let Some(done) = self.ranks[rank].engine.next_completion() {
            let from = self.ranks[rank].peers[done.envelope.peer.0 as usize].rank;
            if done.status != Status::Done {
                let cause = format!("its engine gave rank {from} up, which was silent for too long");
                let next = "lengthen the silence limit, compute for less long between calls, or choose core";
                return Err(Fault::new(format!("rank {rank}"), cause, next));
            }
            if done.context & GONE != 0 {
                continue;
            }
            let mut bytes = 0;
            if done.direction == Direction::Receive {
                *clock += self.work(rank, self.path(rank, from).message);
                self.outcome.received += done.buffer.written;
                bytes = if done.envelope.length <= INLINE { done.envelope.length } else { 0 };
            }
            let number = done.context as u32;
            let kind = if done.direction == Direction::Send { Kind::Send } else { Kind::Receive };
            match self.placement {
                Placement::App => self.put(*clock, Event::Over { rank, number, kind })?,
                Placement::Core => {
                    self.ranks[rank].told.push_back((*clock, number, kind, bytes));
                    self.wake_rank(rank, *clock)?;
                }
            }
        }
        Ok(())
    }

    fn path(&self, one: usize, other: usize) -> &Path {
        &self.paths[usize::from(self.ranks[one].host != self.ranks[other].host)]
    }

    /// The index that `rank` has for `other`; engines meet when one first names the other.
    fn peer(&mut self, rank: usize, other: usize) -> PeerIndex {
        if let Some(peer) = self.ranks[rank].numbers.get(&other) {
            return *peer;
        }
        let mut link = self.path(rank, other).link.clone();
        if let Some(reliability) = &mut link.reliability {
            reliability.session = (rank.min(other) as u32) ^ (rank.max(other) as u32).rotate_left(16);
        }
        let one = self.ranks[rank].engine.add_peer(link.clone());
        let back = if rank == other { one } else { self.ranks[other].engine.add_peer(link) };
        let mut know = |rank: usize, other: usize, number: PeerIndex, back: PeerIndex| {
            let Rank { peers, numbers, .. } = &mut self.ranks[rank];
            peers.push(Peer { rank: other, back, held: 0, full: false, latest: 0 });
            numbers.insert(other, number);
        };
        know(rank, other, one, back);
        if rank != other {
            know(other, rank, back, one);
        }
        one
    }

    /// Whether nothing is outstanding. Looks first at the rank that was not quiet the last time.
    fn is_quiet(&mut self) -> bool {
        if self.under_way > 0 {
            return false;
        }
        let quiet = |rank: &Rank| rank.inbox.is_empty() && rank.commands.is_empty() && rank.engine.is_quiet();
        let (before, rest) = self.ranks.split_at(self.first_busy);
        let first_busy = rest.iter().chain(before).position(|rank| !quiet(rank));
        self.first_busy = (self.first_busy + first_busy.unwrap_or(0)) % self.ranks.len().max(1);
        first_busy.is_none()
    }
}

fn is_inline(operation: &Operation) -> bool {
    operation.kind == Kind::Send && operation.amount <= INLINE
}

fn unknown(rank: usize) -> Fault {
    Fault::new(format!("rank {rank}"), "its engine refused a request", "report this as a bug of plimsoll")
}
