//! Running a graph under costs: when each call is entered and left, and how long it all takes.
//!
//! An event-driven replay: the thread whose next call is entered first goes on, until it waits for something that has not begun.
//! Messages are those that were recorded, so that who receives what does not change with the costs; who is served first by an
//! engine's core does.
//!
//! With `t` in picoseconds, `e` the entry and `x` the exit of a call, `own` what the model says that its work on the rank's core
//! takes, and `r` its residual:
//! ```text
//! e = x of the call before + gap
//! ready of an eager message      = sent + trip           sent = e of the send + own work before it in the call
//! ready of a rendezvous          = max(sent, posted, in) + trip    in: when the half that came first is next in a call
//! x = max(e + own, ready of what it completes) + r,  and no earlier than the e of the call that began what it waited for
//! ```
//! Messages queue at engines' cores and at links ([`servers`]) and wait for room in finite buffers ([`buffers`]).
//! The residual is what makes the recorded run come back: `r = measured x - max(..)` at measured times.

mod buffers;
mod gatherings;
mod messages;
mod order;
mod servers;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use machine::{Fault, Result};
use record::functions::function;

use crate::graph::{CallId, Graph, Lane, Step};
use crate::model::{Prices, Progress};
use crate::work::Work;
pub use buffers::Buffer;
pub(crate) use buffers::Held;
use buffers::{Buffers, Room};
use messages::{Begun, NOT_BEGUN};
pub use order::Order;
use servers::Servers;

/// Picoseconds in a nanosecond.
pub const PS: i64 = 1000;

/// The unexplained part of calls.
#[derive(Debug)]
pub enum Residuals<'r> {
    /// Residuals to learn from the recorded times, ps, by call.
    Learn(&'r mut Vec<i64>),
    /// Residuals by call.
    Own(&'r [i64]),
    /// Residuals by class of calls.
    Class(&'r [i64]),
    None,
}

/// The conditions of a replay.
#[derive(Debug, Clone)]
pub struct Conditions {
    pub prices: Prices,
    /// By lane: the factor of its computing over the recorded one.
    pub computing: Vec<f64>,
    pub progress: Progress,
    /// Whether the overhead of recording is left out: the program as it runs by itself.
    pub unrecorded: bool,
    pub buffer: Buffer,
}

impl Conditions {
    /// The recorded conditions under `prices`, with unlimited buffers.
    pub fn of(graph: &Graph, prices: Prices, progress: Progress) -> Conditions {
        let computing = vec![1.0; graph.lanes.len()];
        Conditions { prices, computing, progress, unrecorded: false, buffer: Buffer::default() }
    }

    /// The computing of a lane before a call, ps.
    pub(crate) fn gap(&self, graph: &Graph, lane: usize, call: CallId) -> i64 {
        let recording = if self.unrecorded { graph.lanes[lane].recording } else { 0 };
        let gap = (graph.calls.gap.get(call) - recording).max(0) * PS;
        let factor = self.computing[lane];
        if factor == 1.0 { gap } else { (gap as f64 * factor).round() as i64 }
    }
}

/// The last cause that an exit waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cause(u32);

impl Cause {
    /// The call's own work.
    const OWN: Cause = Cause(u32::MAX);

    /// The step that waited, by its index among the steps of all calls; `None`: own work.
    pub(crate) fn step(self) -> Option<u32> {
        (self != Cause::OWN).then_some(self.0)
    }
}

/// A replay that has ended.
#[derive(Debug)]
pub struct Replayed {
    /// Time from the first instant to the last, ps.
    pub total: i64,
    /// The lane that ended last.
    pub last: usize,
    /// By call: its exit, ps from the first instant; empty, like `causes` and `movers`, for a replay by [`timed`].
    pub exits: Vec<i64>,
    pub(crate) causes: Vec<Cause>,
    /// By message: the call by whose entry or step it began to move.
    pub(crate) movers: Vec<CallId>,
    /// Work for messages.
    pub work: Work,
    /// By message: its end for the receiver; a low number where it never ended.
    pub(crate) over: Vec<i64>,
    /// Messages that had to wait for room.
    pub(crate) held: HashMap<u32, Held>,
    pub(crate) latest_member: Vec<u32>,
    /// Exits that lie, by the recorded clocks, before the entry of the call that began what they waited for: number, and
    /// the most, ps.
    pub backwards: (u64, i64),
}

const UNKNOWN: i64 = i64::MIN;
/// The limit below which an instant stands for a waiting lane.
const WAITS: i64 = i64::MIN / 2;

fn waiting(lane: u32) -> i64 {
    UNKNOWN + 1 + i64::from(lane)
}

fn waiter(instant: i64) -> Option<u32> {
    (instant != UNKNOWN && instant < WAITS).then(|| (instant - UNKNOWN - 1) as u32)
}

#[derive(Debug, Clone, Copy)]
struct Cursor {
    call: CallId,
    /// The exit of the previous call.
    left: i64,
    entered: i64,
    /// Whether the call has been entered, and the number of its steps that are done.
    inside: bool,
    done: u32,
    /// The exit so far, and its cause.
    latest: i64,
    cause: Cause,
    /// The lower bound of the exit, and the cause of that.
    floor: i64,
    floor_cause: Cause,
    /// The next lane that waits for the same message or gathering.
    next: u32,
}

const NO_LANE: u32 = u32::MAX;

/// The most ranks that a fault names.
const NAMED: usize = 4;

struct Replay<'g, 'r> {
    graph: &'g Graph,
    conditions: &'g Conditions,
    residuals: Residuals<'r>,
    cursors: Vec<Cursor>,
    /// Lanes by the time at which they continue; behind their numbers, messages by the time at which they reach their
    /// receiver's host; behind these, the stages of parcels.
    ready: BinaryHeap<Reverse<(i64, u32)>>,
    /// Lanes that were woken, which come before all that is ready; seldom more than one.
    woken: BinaryHeap<Reverse<(i64, u32)>>,
    /// By message: its first half, the later entry of both, and its end for the receiver; or the lane that waits.
    half: Vec<Begun>,
    over: Vec<i64>,
    movers: Vec<CallId>,
    /// By member: when it entered.
    entered: Vec<Begun>,
    /// By gathering: the number of members that came, the last of them, lanes that wait.
    came: Vec<u32>,
    latest_member: Vec<u32>,
    waiting: Vec<u32>,
    servers: Servers,
    order: Option<Order>,
    buffers: Option<Box<Buffers>>,
    exits: Vec<i64>,
    causes: Vec<Cause>,
    backwards: (u64, i64),
}

/// Replays `graph`. Instants count from the beginning of the first lane.
///
/// # Errors
/// Calls wait for each other for ever, which only clocks or incompatible halves of messages can cause.
pub fn replay(graph: &Graph, conditions: &Conditions, residuals: Residuals) -> Result<Replayed> {
    replay_in(None, graph, conditions, residuals)
}

/// Replays for the time alone, without the data of paths.
///
/// # Errors
/// The errors of [`replay`].
pub fn timed(graph: &Graph, conditions: &Conditions, residuals: Residuals) -> Result<Replayed> {
    Replay::of(None, false, graph, conditions, residuals).run()
}

/// Replays with an imposed order of the servers.
///
/// # Errors
/// The errors of [`replay`], and an order that is impossible for this program.
pub fn replay_in(
    order: Option<Order>,
    graph: &Graph,
    conditions: &Conditions,
    residuals: Residuals,
) -> Result<Replayed> {
    Replay::of(order, true, graph, conditions, residuals).run()
}

impl<'g, 'r> Replay<'g, 'r> {
    fn of(
        order: Option<Order>,
        traced: bool,
        graph: &'g Graph,
        conditions: &'g Conditions,
        residuals: Residuals<'r>,
    ) -> Replay<'g, 'r> {
        let start = graph.lanes.iter().map(|lane| lane.begun).min().unwrap_or(0);
        let cursor = |begun: i64| Cursor {
            call: 0,
            left: (begun - start) * PS,
            entered: (begun - start) * PS,
            inside: false,
            done: 0,
            latest: 0,
            cause: Cause::OWN,
            floor: 0,
            floor_cause: Cause::OWN,
            next: NO_LANE,
        };
        let hosts = graph.hosts.iter().max().map_or(0, |host| *host as usize + 1);
        let (messages, gatherings) = (graph.messages.len(), graph.gatherings.len());
        let (calls, moved) = if traced { (graph.len(), &graph.messages[..]) } else { (0, &[][..]) };
        let mut replay = Replay {
            graph,
            conditions,
            residuals,
            cursors: graph.lanes.iter().map(|lane| cursor(lane.begun)).collect(),
            ready: BinaryHeap::with_capacity(graph.lanes.len()),
            woken: BinaryHeap::new(),
            half: vec![NOT_BEGUN; messages],
            over: vec![UNKNOWN; messages],
            movers: moved.iter().map(|message| message.sender).collect(),
            entered: vec![NOT_BEGUN; graph.members.len()],
            came: vec![0; gatherings],
            latest_member: vec![u32::MAX; gatherings],
            waiting: vec![NO_LANE; gatherings],
            servers: Servers::of(hosts),
            order,
            buffers: Buffers::of(graph, conditions),
            exits: vec![0; calls],
            causes: vec![Cause::OWN; calls],
            backwards: (0, 0),
        };
        if let Residuals::Learn(all) = &mut replay.residuals {
            all.clear();
            all.resize(graph.len(), 0);
        }
        replay
    }

    fn run(mut self) -> Result<Replayed> {
        let graph = self.graph;
        let (mut total, mut last, mut left) = (0, 0, graph.len());
        for (place, lane) in graph.lanes.iter().enumerate() {
            let begun = self.cursors[place].entered;
            if lane.first == lane.end {
                continue;
            }
            self.cursors[place].call = lane.first;
            self.cursors[place].entered = begun + self.conditions.gap(graph, place, lane.first);
            self.ready.push(Reverse((self.cursors[place].entered, place as u32)));
        }
        while let Some(Reverse((now, place))) = self.next() {
            let place = place as usize;
            if let Some(event) = place.checked_sub(graph.lanes.len()) {
                match event.checked_sub(graph.messages.len()) {
                    Some(parcel) => self.parcel(parcel, now),
                    None => self.serve(event as u32, true, now),
                }
                continue;
            }
            // A lane continues by itself while no other event is earlier.
            while let Some(exit) = self.advance(place) {
                left -= 1;
                let cursor = &mut self.cursors[place];
                let next = cursor.call + 1;
                if exit > total {
                    (total, last) = (exit, place);
                }
                cursor.call = next;
                if next == graph.lanes[place].end {
                    break;
                }
                cursor.inside = false;
                let entered = exit + self.conditions.gap(graph, place, next);
                (self.cursors[place].left, self.cursors[place].entered) = (exit, entered);
                let waits = |first: &Reverse<(i64, u32)>| first.0 < (entered, place as u32);
                if self.ready.peek().max(self.woken.peek()).is_some_and(waits) {
                    self.ready.push(Reverse((entered, place as u32)));
                    break;
                }
            }
        }
        if left > 0 {
            return Err(self.stuck(left));
        }
        debug_assert!(self.buffers.as_ref().is_none_or(|buffers| buffers.are_empty()));
        Ok(Replayed {
            total,
            last,
            exits: self.exits,
            causes: self.causes,
            movers: self.movers,
            work: self.servers.done,
            over: self.over,
            held: self.buffers.map(|buffers| buffers.held).unwrap_or_default(),
            latest_member: self.latest_member,
            backwards: self.backwards,
        })
    }

    /// The next event and its time.
    fn next(&mut self) -> Option<Reverse<(i64, u32)>> {
        if self.woken.peek() > self.ready.peek() { self.woken.pop() } else { self.ready.pop() }
    }

    /// The fault of `left` calls that wait for each other, with the first of them.
    fn stuck(&self, left: usize) -> Fault {
        let graph = self.graph;
        let waits = graph
            .lanes
            .iter()
            .zip(&self.cursors)
            .filter(|(lane, cursor)| lane.first < lane.end && cursor.call < lane.end);
        let named = |(lane, cursor): (&Lane, &Cursor)| {
            let name = function(graph.class(cursor.call).function).map_or("a call", |function| function.name);
            format!("rank {} in MPI_{name}", lane.rank)
        };
        let first: Vec<String> = waits.take(NAMED).map(named).collect();
        let cause = format!("{left} calls wait for each other for ever: {}", first.join(", "));
        let next = if graph.scheduled {
            "write each send before what its receive is required by"
        } else {
            "profile the program again with --trace; or, where that is asked, its sends need room or a receive that is posted"
        };
        Fault::new("the replay", cause, next)
    }

    /// Advances the lane's call as far as possible; its exit, or `None` where it waits.
    fn advance(&mut self, place: usize) -> Option<i64> {
        let graph = self.graph;
        let Cursor { call, entered, inside, .. } = self.cursors[place];
        if !inside {
            self.enter(place, call, entered);
        }
        let first = graph.first_step(call);
        for (at, step) in graph.steps_from(call, self.cursors[place].done) {
            let found = match step {
                Step::Send(_) | Step::Post(_) | Step::Enter(_) => continue,
                Step::Sent(message) if !self.price(message).rendezvous => match self.room(place, message) {
                    Room::Had => continue,
                    // The receiver's call in which room was made is known to the model alone.
                    Room::Came(until) => Some((until, entered)),
                    Room::Waits => None,
                },
                Step::Sent(message) | Step::Received(message) => self.message(place, message),
                Step::Leave(member) => self.leave(place, member),
            };
            let Some((until, floor)) = found else {
                self.cursors[place].done = at - first;
                return None;
            };
            let cursor = &mut self.cursors[place];
            if floor > cursor.floor {
                (cursor.floor, cursor.floor_cause) = (floor, Cause(at));
            }
            if until > cursor.latest {
                (cursor.latest, cursor.cause) = (until, Cause(at));
            }
        }
        Some(self.exit(place))
    }

    /// Begins what the call begins, and wakes lanes that wait for it.
    fn enter(&mut self, place: usize, call: CallId, entered: i64) {
        let graph = self.graph;
        let class = graph.class(call);
        let mut now = entered;
        for step in graph.steps(call) {
            let begun = |at| Begun { at, entered };
            match step {
                Step::Send(message) => {
                    self.begin(message, begun(now), false);
                    now += self.price(message).send;
                }
                Step::Post(message) => self.begin(message, begun(now), true),
                Step::Enter(member) => self.gather(member, begun(now)),
                Step::Received(message) => now += self.price(message).receive,
                Step::Sent(_) | Step::Leave(_) => {}
            }
        }
        if !class.opaque {
            self.servers.done.ranks += now - entered;
        } else {
            now = entered + graph.calls.inside.get(call) * PS;
        }
        let cursor = &mut self.cursors[place];
        (cursor.inside, cursor.done) = (true, 0);
        (cursor.latest, cursor.cause) = (now, Cause::OWN);
        (cursor.floor, cursor.floor_cause) = (entered, Cause::OWN);
    }

    /// Schedules the event of a message, or, behind these numbers, of a parcel.
    fn later(&mut self, event: usize, at: i64) {
        self.ready.push(Reverse((at, (self.cursors.len() + event) as u32)));
    }

    /// Wakes a lane, and those that wait for the same message or gathering.
    fn wake_all(&mut self, mut lane: u32) {
        while lane != NO_LANE {
            let next = self.cursors[lane as usize].next;
            self.wake(lane);
            lane = next;
        }
    }

    fn wake(&mut self, lane: u32) {
        self.woken.push(Reverse((self.cursors[lane as usize].entered, lane)));
    }

    /// Ends the call of a lane; returns its exit.
    fn exit(&mut self, place: usize) -> i64 {
        let Cursor { call, entered, latest, cause, floor, floor_cause, .. } = self.cursors[place];
        let at = call as usize;
        let (exit, cause) = match &mut self.residuals {
            Residuals::Learn(all) => {
                let measured = entered + self.graph.calls.inside.get(call) * PS;
                all[at] = measured - latest;
                if measured < floor {
                    self.backwards = (self.backwards.0 + 1, self.backwards.1.max(floor - measured));
                }
                (measured, cause)
            }
            residuals => {
                let residual = match residuals {
                    Residuals::Own(all) => all[at],
                    Residuals::Class(all) => all[self.graph.calls.class[at] as usize],
                    Residuals::Learn(_) | Residuals::None => 0,
                };
                if latest + residual >= floor { (latest + residual, cause) } else { (floor, floor_cause) }
            }
        };
        if let (Some(left), Some(waited)) = (self.exits.get_mut(at), self.causes.get_mut(at)) {
            (*left, *waited) = (exit, cause);
        }
        exit
    }
}

#[cfg(test)]
mod tests;
