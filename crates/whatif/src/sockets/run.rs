//! One run of a graph over sockets: which core moves which piece when.
//!
//! An event-driven replay. A rank's core does one thing at a time: in a call the pieces of its sends before those that came;
//! between calls its computing. Softirqs stop it, and pieces that came for a rank outside of calls wait.

mod work;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use machine::{Fault, Result};
use timeline::Collective;

use super::plan::{Plan, UNRECORDED};
use super::stages::{Pieces, Stages};
use crate::graph::{CallId, Graph, Reach, Step};
use crate::model::Prices;
use crate::replay::{Buffer, PS};

/// Where ranks are among softirqs: by rank.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seats<'a> {
    /// The share of its host's softirqs that is done on its core.
    pub shares: &'a [f64],
    /// Whether it is in another package than the cores that do most of them; empty: none is.
    pub far: &'a [bool],
}

/// The work between calls.
pub(super) enum Gaps<'a> {
    /// Calls begin when they were recorded to, or later: the work is learned.
    Learn(&'a mut Learned),
    /// By call: the work before it, ps.
    Known(&'a [i64]),
}

/// What a run that follows the recording learns.
#[derive(Debug, Default)]
pub(super) struct Learned {
    /// By call, ps: softirqs in the gap before it.
    pub taken: Vec<i64>,
    /// By call, ps: what the gap before it has beyond the recorded one, so that the call begins when it was recorded to.
    pub residuals: Vec<i64>,
    /// By call, ps: how much later it ended than it was recorded to.
    pub late: Vec<i64>,
}

/// What is run, and under which figures.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conditions<'a> {
    pub graph: &'a Graph,
    pub plan: &'a Plan,
    pub stages: &'a Stages,
    pub pieces: &'a Pieces,
    pub prices: &'a Prices,
    pub seats: Seats<'a>,
    pub buffer: Buffer,
    /// The most calls that are run.
    pub calls: usize,
}

/// The least share of a host's softirqs for which a core counts.
const COUNTS: f64 = 0.02;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The end of a lane's job, unless softirqs have delayed it.
    Done(u32),
    /// A lane that follows the recording enters its next call, or may leave its call.
    Due(u32),
    Landed(u32, u64),
    Arrived(u32, u64),
    Delivered(u32, u64),
    Acknowledged(u32, u64),
    Opened(u32, u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Job {
    Compute,
    /// Copies a piece into the library's buffer.
    Copy(u32),
    /// Copies a piece and hands it to the socket.
    Place(u32),
    Hand(u32),
    Take(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Computing,
    Calling,
    /// After its last call, where it still moves what is left.
    Ended,
}

#[derive(Debug)]
struct Lane {
    state: State,
    call: CallId,
    left: i64,
    entered: i64,
    /// When the present call was recorded to be entered.
    recorded: i64,
    /// Softirqs on its core until it left the last call.
    executed: i64,
    job: Option<(Job, i64)>,
    /// Steps of the call that are done.
    done: u32,
    due: i64,
    /// Sends that are not yet over, or not yet with the library.
    posting: Vec<u32>,
    /// Messages with pieces to hand, and to take, by the other rank's number.
    sending: Vec<(u32, u32)>,
    arrived: Vec<(u32, u32)>,
}

/// Bytes of a message, from its start, that passed a stage.
#[derive(Debug, Clone, Copy, Default)]
struct Passed {
    copied: u64,
    handed: u64,
    delivered: u64,
    taken: u64,
    /// Of a rendezvous: halves that have begun.
    halves: u8,
    sent: bool,
    received: bool,
}

/// A core that does softirqs one after the other.
#[derive(Debug, Clone, Copy, Default)]
struct Core {
    free: i64,
    served: i64,
}

impl Core {
    /// Softirqs that it has done until `now`.
    fn executed(&self, now: i64) -> i64 {
        self.served - (self.free - now).max(0)
    }
}

#[derive(Debug, Default)]
struct Gathered {
    came: u32,
    /// By member: when it came.
    at: Vec<i64>,
    waiting: Vec<u32>,
}

pub(super) struct Run<'a> {
    of: Conditions<'a>,
    gaps: Gaps<'a>,
    now: i64,
    sequence: u32,
    events: BinaryHeap<Reverse<(i64, u32, Event)>>,
    wakes: VecDeque<u32>,
    lanes: Vec<Lane>,
    messages: Vec<Passed>,
    /// By connection: bytes in the library's buffer and in the sockets.
    held: Vec<[u64; 2]>,
    /// By rank its core's, then by host those on no rank's core.
    cores: Vec<Core>,
    /// By host: its cores with softirqs, each with the sum of the shares up to it.
    softirqs: Vec<Vec<(usize, f64)>>,
    /// By host: when its link is free, out and in.
    links: Vec<[i64; 2]>,
    gathered: HashMap<u32, Gathered>,
    socket: u64,
    library: u64,
    left: usize,
    total: i64,
}

impl<'a> Run<'a> {
    pub(super) fn of(of: Conditions<'a>, mut gaps: Gaps<'a>) -> Run<'a> {
        let graph = of.graph;
        let start = graph.lanes.iter().map(|lane| lane.begun).min().unwrap_or(0);
        let lane = |begun: i64| Lane {
            state: State::Computing,
            call: 0,
            left: (begun - start) * PS,
            entered: 0,
            recorded: (begun - start) * PS,
            executed: 0,
            job: None,
            done: 0,
            due: i64::MAX,
            posting: Vec::new(),
            sending: Vec::new(),
            arrived: Vec::new(),
        };
        let hosts = graph.hosts.iter().max().map_or(0, |host| *host as usize + 1);
        let ranks = graph.hosts.len();
        let mut softirqs: Vec<Vec<(usize, f64)>> = vec![Vec::new(); hosts];
        for (rank, (host, share)) in graph.hosts.iter().zip(of.seats.shares).enumerate() {
            if *share >= COUNTS {
                let cores = &mut softirqs[*host as usize];
                cores.push((rank, cores.last().map_or(0.0, |last| last.1) + share));
            }
        }
        for (host, cores) in softirqs.iter_mut().enumerate() {
            let known = cores.last().map_or(0.0, |last| last.1);
            if known < 1.0 - COUNTS {
                cores.push((ranks + host, 1.0));
            }
        }
        let (socket, library) = match of.buffer {
            Buffer::Unlimited => (u64::MAX, u64::MAX),
            Buffer::Of(size) => (size.0.max(1), 0),
            Buffer::Behind { socket, library } => (socket.0.max(1), library.0),
        };
        let unrecorded = |ends: &[u32; 2]| ends.contains(&UNRECORDED);
        let message = |ends| Passed { sent: unrecorded(ends), received: unrecorded(ends), ..Passed::default() };
        if let Gaps::Learn(learned) = &mut gaps {
            for of in [&mut learned.taken, &mut learned.residuals, &mut learned.late] {
                of.clear();
                of.resize(graph.len(), 0);
            }
        }
        Run {
            gaps,
            now: 0,
            sequence: 0,
            events: BinaryHeap::new(),
            wakes: VecDeque::new(),
            lanes: graph.lanes.iter().map(|of| lane(of.begun)).collect(),
            messages: of.plan.ends.iter().map(message).collect(),
            held: vec![[0; 2]; of.plan.connections],
            cores: vec![Core::default(); ranks + hosts],
            softirqs,
            links: vec![[0; 2]; hosts],
            gathered: HashMap::new(),
            socket,
            library,
            left: graph.len(),
            total: 0,
            of,
        }
    }

    /// Runs it; the time until the last call ended, ps.
    pub(super) fn run(mut self) -> Result<i64> {
        let graph = self.of.graph;
        let enough = graph.len().saturating_sub(self.of.calls);
        for (at, lane) in graph.lanes.iter().enumerate() {
            if lane.first == lane.end {
                self.lanes[at].state = State::Ended;
                continue;
            }
            self.now = self.lanes[at].left;
            self.gap(at, lane.first);
        }
        self.settle();
        while self.left > enough {
            let Some(Reverse((now, _, event))) = self.events.pop() else { return Err(self.stuck()) };
            self.now = now;
            self.take(event);
            self.settle();
        }
        Ok(self.total)
    }

    fn stuck(&self) -> Fault {
        let cause = format!("{} calls wait for each other for ever", self.left);
        Fault::new("the replay", cause, "profile the program again with --trace")
    }

    fn at(&mut self, time: i64, event: Event) {
        self.sequence = self.sequence.wrapping_add(1);
        self.events.push(Reverse((time, self.sequence, event)));
    }

    fn settle(&mut self) {
        while let Some(lane) = self.wakes.pop_front() {
            self.advance(lane as usize);
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Done(lane) => {
                let Some((job, ends)) = self.lanes[lane as usize].job else { return };
                if ends > self.now {
                    return self.at(ends, event);
                }
                self.lanes[lane as usize].job = None;
                self.worked(lane as usize, job);
                self.wakes.push_back(lane);
            }
            Event::Due(lane) => {
                if self.lanes[lane as usize].state == State::Computing {
                    self.enter(lane as usize);
                }
                self.wakes.push_back(lane);
            }
            Event::Landed(message, bytes) => {
                let [_, to] = self.hosts(message);
                let time = (self.of.stages.link * self.of.pieces.work(message, bytes)) as i64;
                let link = &mut self.links[to][1];
                *link = (*link).max(self.now - time) + time;
                match *link > self.now {
                    true => {
                        let at = *link;
                        self.at(at, Event::Arrived(message, bytes));
                    }
                    false => self.arrived(message, bytes),
                }
            }
            Event::Arrived(message, bytes) => self.arrived(message, bytes),
            Event::Delivered(message, bytes) => {
                let passed = &mut self.messages[message as usize];
                let waits = passed.delivered > passed.taken;
                passed.delivered += bytes;
                let [from, to] = self.of.plan.ends[message as usize];
                if !waits {
                    let peer = self.of.graph.lanes[from as usize].rank;
                    put(&mut self.lanes[to as usize].arrived, (peer, message));
                }
                self.wakes.push_back(to);
            }
            Event::Acknowledged(message, bytes) => {
                let [from, _] = self.hosts(message);
                let work = self.of.stages.acknowledges(from) * self.of.pieces.work(message, bytes);
                let done = self.interrupt(message, from, work as i64);
                self.at(done, Event::Opened(message, bytes));
            }
            Event::Opened(message, bytes) => self.opened(message, bytes),
        }
    }

    fn hosts(&self, message: u32) -> [usize; 2] {
        let graph = self.of.graph;
        self.of.plan.ends[message as usize].map(|lane| graph.hosts[graph.lanes[lane as usize].rank as usize] as usize)
    }

    fn reach(&self, message: u32) -> Reach {
        self.of.graph.kinds[self.of.graph.messages[message as usize].kind as usize].reach
    }

    /// Softirq work of a message on a host's core for it, which stops the rank there; when it is done.
    fn interrupt(&mut self, message: u32, host: usize, work: i64) -> i64 {
        if work == 0 {
            return self.now;
        }
        let cores = &self.softirqs[host];
        let place = self.of.plan.place(message);
        let core = cores.iter().find(|(_, until)| place < *until).or(cores.last()).map_or(0, |of| of.0);
        if let Some(lanes) = self.of.plan.lanes.get(core) {
            for lane in lanes {
                if let Some((_, ends)) = &mut self.lanes[*lane as usize].job {
                    *ends += work;
                }
            }
        }
        let core = &mut self.cores[core];
        core.free = core.free.max(self.now) + work;
        core.served += work;
        core.free
    }

    fn arrived(&mut self, message: u32, bytes: u64) {
        let [_, to] = self.hosts(message);
        let work = self.of.stages.receives(to) * self.of.pieces.work(message, bytes);
        let done = self.interrupt(message, to, work as i64);
        self.at(done, Event::Delivered(message, bytes));
    }

    fn opened(&mut self, message: u32, bytes: u64) {
        self.held[self.of.plan.connection[message as usize] as usize][1] -= bytes;
        self.wakes.push_back(self.of.plan.ends[message as usize][0]);
    }

    /// Begins what is before a call.
    fn gap(&mut self, at: usize, call: CallId) {
        let graph = self.of.graph;
        let rank = graph.lanes[at].rank as usize;
        let executed = self.cores[rank].executed(self.now);
        let lane = &mut self.lanes[at];
        (lane.state, lane.call, lane.left, lane.executed) = (State::Computing, call, self.now, executed);
        let due = match &self.gaps {
            Gaps::Learn(_) => {
                lane.recorded += graph.calls.gap.get(call) * PS;
                lane.recorded
            }
            Gaps::Known(work) if work[call as usize] <= 0 => self.now,
            Gaps::Known(work) => {
                let ends = self.cores[rank].free.max(self.now) + work[call as usize];
                lane.job = Some((Job::Compute, ends));
                return self.at(ends, Event::Done(at as u32));
            }
        };
        if due > self.now {
            return self.at(due, Event::Due(at as u32));
        }
        self.enter(at);
        self.wakes.push_back(at as u32);
    }

    fn enter(&mut self, at: usize) {
        let graph = self.of.graph;
        let Lane { call, left, executed, .. } = self.lanes[at];
        if let Gaps::Learn(learned) = &mut self.gaps {
            let rank = graph.lanes[at].rank as usize;
            let taken = self.cores[rank].executed(self.now) - executed;
            let gap = graph.calls.gap.get(call) * PS;
            learned.taken[call as usize] = taken;
            learned.residuals[call as usize] = self.now - left - taken - (gap - taken).max(0);
        }
        let lane = &mut self.lanes[at];
        (lane.state, lane.entered, lane.done, lane.due) = (State::Calling, self.now, 0, i64::MAX);
        for step in graph.steps(call) {
            match step {
                Step::Send(message) | Step::Post(message) => self.begin(message, matches!(step, Step::Send(_))),
                Step::Enter(member) => self.gather(member),
                Step::Sent(_) | Step::Received(_) | Step::Leave(_) => {}
            }
        }
        if graph.class(call).opaque {
            self.wait_until(at, self.now + graph.calls.inside.get(call) * PS);
        }
    }

    fn begin(&mut self, message: u32, sends: bool) {
        let [from, to] = self.of.plan.ends[message as usize];
        if [from, to].contains(&UNRECORDED) {
            return;
        }
        let kind = self.of.graph.messages[message as usize].kind as usize;
        let rendezvous = self.of.prices.kinds[kind].rendezvous;
        let passed = &mut self.messages[message as usize];
        passed.halves += 1;
        match rendezvous {
            true if passed.halves < 2 => return,
            true => passed.copied = self.of.pieces.bytes(message),
            false if !sends => return,
            false => {}
        }
        let peer = self.of.graph.lanes[to as usize].rank;
        let lane = &mut self.lanes[from as usize];
        lane.posting.push(message);
        put(&mut lane.sending, (peer, message));
        self.wakes.push_back(from);
    }

    fn wait_until(&mut self, at: usize, due: i64) {
        if due > self.now && self.lanes[at].due != due {
            self.lanes[at].due = due;
            self.at(due, Event::Due(at as u32));
        }
    }

    fn gather(&mut self, member: u32) {
        let number = self.of.graph.gathering(member);
        let of = self.of.graph.gatherings[number as usize];
        let gathered = self.gathered.entry(number).or_default();
        gathered.at.resize(of.members as usize, i64::MIN);
        gathered.at[(member - of.first) as usize] = self.now;
        gathered.came += 1;
        self.wakes.extend(gathered.waiting.drain(..));
    }

    /// When a member may leave; `None`: some that it waits for have not come.
    fn leaves(&mut self, at: usize, member: u32) -> Option<i64> {
        let number = self.of.graph.gathering(member);
        let of = self.of.graph.gatherings[number as usize];
        let gathered = self.gathered.get_mut(&number)?;
        let (own, all) = ((member - of.first) as usize, gathered.came == of.members);
        let latest = |times: &[i64]| {
            times
                .iter()
                .copied()
                .min()
                .filter(|least| *least > i64::MIN)
                .map(|_| times.iter().copied().max().unwrap_or(0))
        };
        let price = self.of.prices.kinds[of.kind as usize];
        let root = of.root as usize;
        let (begun, cost) = match of.who {
            Collective::ToRoot if own != root => (Some(gathered.at[own]), price.send),
            Collective::FromRoot if own == root => (Some(gathered.at[own]), price.send),
            Collective::FromRoot => (Some(gathered.at[root]).filter(|at| *at > i64::MIN), price.trip),
            Collective::Prefix => (latest(&gathered.at[..=own]), price.trip),
            Collective::All | Collective::Neighbours | Collective::ToRoot => {
                (if all { latest(&gathered.at) } else { None }, price.trip)
            }
        };
        if begun.is_none() && !gathered.waiting.contains(&(at as u32)) {
            gathered.waiting.push(at as u32);
        }
        begun.map(|begun| begun + cost)
    }

    /// Has a lane do its next work.
    fn advance(&mut self, at: usize) {
        loop {
            if self.lanes[at].job.is_some() || self.lanes[at].state == State::Computing {
                return;
            }
            self.return_from_sends(at);
            if self.lanes[at].state == State::Calling && self.is_over(at) {
                self.leave(at);
                continue;
            }
            if let Some(job) = self.select(at) {
                self.start(at, job);
            }
            return;
        }
    }

    /// Whether all steps of a lane's call are done.
    fn is_over(&mut self, at: usize) -> bool {
        let graph = self.of.graph;
        let Lane { call, done, entered, .. } = self.lanes[at];
        if graph.class(call).opaque {
            return self.now >= entered + graph.calls.inside.get(call) * PS;
        }
        let first = graph.first_step(call);
        for (place, step) in graph.steps_from(call, done) {
            let over = match step {
                Step::Send(_) | Step::Post(_) | Step::Enter(_) => true,
                Step::Sent(message) => self.messages[message as usize].sent,
                Step::Received(message) => self.messages[message as usize].received,
                Step::Leave(member) => match self.leaves(at, member) {
                    Some(when) if when > self.now => {
                        self.wait_until(at, when);
                        false
                    }
                    when => when.is_some(),
                },
            };
            if !over {
                self.lanes[at].done = place - first;
                return false;
            }
        }
        true
    }

    fn leave(&mut self, at: usize) {
        let graph = self.of.graph;
        let call = self.lanes[at].call;
        self.left -= 1;
        self.total = self.total.max(self.now);
        if let Gaps::Learn(learned) = &mut self.gaps {
            let lane = &mut self.lanes[at];
            lane.recorded += graph.calls.inside.get(call) * PS;
            learned.late[call as usize] = self.now - lane.recorded;
        }
        match call + 1 == graph.lanes[at].end {
            true => self.lanes[at].state = State::Ended,
            false => self.gap(at, call + 1),
        }
    }
}

fn put(queue: &mut Vec<(u32, u32)>, entry: (u32, u32)) {
    let at = queue.partition_point(|(key, _)| *key <= entry.0);
    queue.insert(at, entry);
}
