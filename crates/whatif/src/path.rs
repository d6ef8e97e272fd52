//! The critical path: back from the last exit along what was waited for. Its parts add up to the time of the replay.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use crate::graph::{CallId, Graph, Kind, Reach, Step};
use crate::replay::{Conditions, PS, Replayed};
use profile::timeline::Collective;

/// Where the time of the critical path goes, ps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Parts {
    /// Outside of calls.
    pub computing: i64,
    /// Calls' own work that is modelled, and messages on their way.
    pub work: i64,
    pub messages: i64,
    /// Calls that are taken as they were measured.
    pub opaque: i64,
    /// In calls, beyond what the model says; and what the model says too much.
    pub unexplained: i64,
    pub overexplained: i64,
}

impl Parts {
    pub fn total(&self) -> i64 {
        self.computing + self.work + self.messages + self.opaque + self.unexplained + self.overexplained
    }

    /// The part of the time that is neither measured computing nor modelled.
    pub fn unknown_share(&self) -> f64 {
        let unknown = self.unexplained + self.overexplained.abs() + self.opaque;
        unknown as f64 / self.total().max(1) as f64
    }
}

/// Messages on the critical path: what time changes by for a change of their cost.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counts {
    /// Trips one after the other: d time / d latency.
    pub trips: u64,
    /// Bytes of these: d time / d (time per byte).
    pub bytes: u64,
    /// Ends of messages whose work on a rank's core is on the path: d time / d overhead.
    pub ends: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.trips += other.trips;
        self.bytes += other.bytes;
        self.ends += other.ends;
    }
}

/// The critical path of a replay.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Path {
    pub parts: Parts,
    /// Within hosts, and between them.
    pub counts: [Counts; 2],
    /// By rank: its computing that is on the path, ps.
    pub computing: BTreeMap<u32, i64>,
    /// By function and bits of the size ([`crate::graph::Class`]): calls on the path, and their time there, ps.
    pub calls: BTreeMap<(u16, u8), (u64, i64)>,
}

/// Walks back from the last exit of `replayed`.
pub fn critical(graph: &Graph, conditions: &Conditions, replayed: &Replayed) -> Path {
    let mut path = Path::default();
    let mut lane = replayed.last;
    let Some(mut call) = graph.lanes.get(lane).and_then(|lane| lane.end.checked_sub(1)) else { return path };
    // The instant that is looked at: an exit first, then the beginning of what was waited for.
    let mut at = replayed.exits[call as usize];
    loop {
        let entered = entry(graph, conditions, replayed, lane, call);
        let (begun, source, ends) = begin(graph, conditions, replayed, call, entered);
        path.count(ends);
        path.exit(graph, conditions, replayed, call, at - begun);
        // In the call that began it: the work before it there.
        let (other, other_entered) = match source {
            Some(other) => {
                lane = graph.lane(other);
                (other, entry(graph, conditions, replayed, lane, other))
            }
            None => (call, entered),
        };
        path.parts.work += begun - other_entered;
        let first = graph.lanes[lane].first;
        let gap = other_entered - if other == first { 0 } else { replayed.exits[other as usize - 1] };
        let begins = if other == first { first_gap(graph, conditions, lane) } else { gap };
        path.parts.computing += begins;
        *path.computing.entry(graph.lanes[lane].rank).or_default() += begins;
        if other == first {
            // What the first lane was before this one.
            path.parts.opaque += gap - begins;
            return path;
        }
        call = other - 1;
        at = replayed.exits[call as usize];
    }
}

fn first_gap(graph: &Graph, conditions: &Conditions, lane: usize) -> i64 {
    conditions.gap(graph, lane, graph.lanes[lane].first)
}

pub(crate) fn entry(graph: &Graph, conditions: &Conditions, replayed: &Replayed, lane: usize, call: CallId) -> i64 {
    let gap = conditions.gap(graph, lane, call);
    if call == graph.lanes[lane].first {
        let start = graph.lanes.iter().map(|lane| lane.begun).min().unwrap_or(0);
        return (graph.lanes[lane].begun - start) * PS + gap;
    }
    replayed.exits[call as usize - 1] + gap
}

/// When what the exit of `call` waited for began, the call that began it (`None`: the call itself, at its entry), and what that
/// worked for before.
fn begin(
    graph: &Graph,
    conditions: &Conditions,
    replayed: &Replayed,
    call: CallId,
    entered: i64,
) -> (i64, Option<CallId>, [Counts; 2]) {
    let itself = (entered, None, Default::default());
    let Some(place) = replayed.causes[call as usize].step() else { return itself };
    let (other, wanted) = match graph.step_at(place) {
        Step::Sent(message) | Step::Received(message) => {
            let mover = replayed.movers[message as usize];
            let of = graph.messages[message as usize];
            (mover, if mover == of.sender { Step::Send(message) } else { Step::Post(message) })
        }
        Step::Leave(member) => {
            let number = graph.gathering(member);
            let gathering = graph.gatherings[number as usize];
            let root = gathering.first + gathering.root;
            let awaited = match gathering.who {
                Collective::FromRoot => root,
                Collective::ToRoot if member != root => member,
                // A prefix waits for the last of those before it, which need not be the last of all.
                Collective::Prefix => latest(graph, conditions, replayed, gathering.first..=member),
                _ => replayed.latest_member[number as usize],
            };
            (graph.members[awaited as usize], Step::Enter(awaited))
        }
        Step::Send(_) | Step::Post(_) | Step::Enter(_) => return itself,
    };
    if other == call {
        return itself;
    }
    let lane = graph.lane(other);
    let at = entry(graph, conditions, replayed, lane, other);
    let (work, ends) = before(graph, conditions, other, Some(wanted));
    (at + work, Some(other), ends)
}

fn latest(graph: &Graph, conditions: &Conditions, replayed: &Replayed, members: std::ops::RangeInclusive<u32>) -> u32 {
    let entered = |member: &u32| {
        let call = graph.members[*member as usize];
        entry(graph, conditions, replayed, graph.lane(call), call)
    };
    let first = *members.start();
    members.max_by_key(entered).unwrap_or(first)
}

/// The own work of a call before one of its steps, or all of it, and the ends of messages that it is for; none, where it has
/// not that step.
pub(crate) fn before(graph: &Graph, conditions: &Conditions, call: CallId, step: Option<Step>) -> (i64, [Counts; 2]) {
    let (mut work, mut counts) = (0, <[Counts; 2]>::default());
    if step.is_some_and(|step| graph.steps(call).all(|one| one != step)) {
        return (work, counts);
    }
    for one in graph.steps(call).take_while(|one| Some(*one) != step) {
        let (Step::Send(message) | Step::Received(message)) = one else { continue };
        let kind = graph.messages[message as usize].kind;
        let price = conditions.prices.kinds[kind as usize];
        work += if matches!(one, Step::Send(_)) { price.send } else { price.receive };
        counts[reach(graph, kind)].ends += 1;
    }
    (work, counts)
}

impl Path {
    /// An exit that took `length` from the beginning of what it waited for.
    fn exit(&mut self, graph: &Graph, conditions: &Conditions, replayed: &Replayed, call: CallId, length: i64) {
        let class = graph.class(call);
        let of = self.calls.entry((class.function.0, class.bits)).or_default();
        *of = (of.0 + 1, of.1 + length);
        let price = |kind: u32| conditions.prices.kinds[kind as usize];
        let modelled = match replayed.causes[call as usize].step().map(|place| graph.step_at(place)) {
            Some(Step::Sent(message) | Step::Received(message)) => {
                let kind = graph.messages[message as usize].kind;
                self.count(trip(graph, kind));
                price(kind).trip
            }
            Some(Step::Leave(member)) => {
                let gathering = graph.gatherings[graph.gathering(member) as usize];
                let root = member == gathering.first + gathering.root;
                let hands_over = match gathering.who {
                    Collective::ToRoot => !root,
                    Collective::FromRoot => root,
                    _ => false,
                };
                if hands_over {
                    self.counts[reach(graph, gathering.kind)].ends += 1;
                    price(gathering.kind).send
                } else {
                    self.count(trip(graph, gathering.kind));
                    price(gathering.kind).trip
                }
            }
            _ => return self.own(graph, conditions, call, class.opaque, length),
        };
        self.parts.messages += modelled;
        self.leave(length - modelled);
    }

    fn count(&mut self, counts: [Counts; 2]) {
        self.counts[0] += counts[0];
        self.counts[1] += counts[1];
    }

    fn own(&mut self, graph: &Graph, conditions: &Conditions, call: CallId, opaque: bool, length: i64) {
        if opaque {
            self.parts.opaque += length;
            return;
        }
        let (modelled, counts) = before(graph, conditions, call, None);
        self.count(counts);
        self.parts.work += modelled;
        self.leave(length - modelled);
    }

    fn leave(&mut self, residual: i64) {
        if residual >= 0 {
            self.parts.unexplained += residual;
        } else {
            self.parts.overexplained += residual;
        }
    }
}

/// What a message or a gathering counts on its way.
pub(crate) fn trip(graph: &Graph, kind: u32) -> [Counts; 2] {
    let mut counts = <[Counts; 2]>::default();
    let Kind { trips, bytes, .. } = graph.kinds[kind as usize];
    let trips = u64::from(trips);
    counts[reach(graph, kind)] = Counts { trips, bytes: trips * bytes, ends: 0 };
    counts
}

pub(crate) fn reach(graph: &Graph, kind: u32) -> usize {
    usize::from(graph.kinds[kind as usize].reach == Reach::Between)
}
