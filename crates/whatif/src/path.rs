//! The critical path: from the last exit back to the event that each exit waited for. Its parts add up to the time of the replay.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use crate::graph::{CallId, Graph, Kind, Message, Reach, Step};
use crate::replay::{Conditions, PS, Replayed};
use record::functions::FunctionId;
use timeline::Collective;

/// The parts of the critical path's time, ps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Parts {
    /// Time outside of calls.
    pub computing: i64,
    /// Modelled work of calls, and messages on their way.
    pub work: i64,
    pub messages: i64,
    /// Calls that are taken as measured.
    pub opaque: i64,
    /// Time in calls beyond the model, or less where the model has too much.
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

/// Counts of messages on the critical path: derivatives of its time by costs.
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

/// The key of calls on the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spot {
    pub rank: u32,
    /// The site, as in [`crate::graph::Calls::site`].
    pub site: u32,
    pub function: FunctionId,
    /// The size class ([`crate::graph::Class`]).
    pub bits: u8,
}

/// The part of the path that belongs to calls.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OnPath {
    /// The number of calls on the path.
    pub calls: u64,
    /// Computing before the calls, ps.
    pub computing: i64,
    /// Time in the calls, and of messages that they send while these are on their way, ps.
    pub time: i64,
    /// Counts of the calls' own work and of messages and collective operations that begin with them: d time / d costs here.
    pub counts: Counts,
}

impl AddAssign for OnPath {
    fn add_assign(&mut self, other: OnPath) {
        self.calls += other.calls;
        self.computing += other.computing;
        self.time += other.time;
        self.counts += other.counts;
    }
}

/// The critical path of a replay.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Path {
    pub parts: Parts,
    /// Counts within hosts, and between them.
    pub counts: [Counts; 2],
    pub spots: BTreeMap<Spot, OnPath>,
}

impl Path {
    /// Sums over the calls with equal `key`.
    pub fn by<K: Ord>(&self, key: impl Fn(&Spot) -> K) -> BTreeMap<K, OnPath> {
        let mut sums: BTreeMap<K, OnPath> = BTreeMap::new();
        self.spots.iter().for_each(|(spot, of)| *sums.entry(key(spot)).or_default() += *of);
        sums
    }
}

/// Walks back from the last exit of `replayed`.
pub fn critical(graph: &Graph, conditions: &Conditions, replayed: &Replayed) -> Path {
    let mut path = Path::default();
    let mut lane = replayed.last;
    let Some(mut call) = graph.lanes.get(lane).and_then(|lane| lane.end.checked_sub(1)) else { return path };
    // The instant walked back to: an exit first, then the beginning of what it waited for.
    let mut at = replayed.exits[call as usize];
    loop {
        let entered = entry(graph, conditions, replayed, lane, call);
        let (begun, source) = begin(graph, conditions, replayed, call, entered);
        let awaited = source.map_or(call, |(other, _)| other);
        path.exit(graph, conditions, replayed, (call, awaited), at - begun);
        // In the call that began it, the work before that step.
        let (other, other_entered) = match source {
            Some((other, ends)) => {
                lane = graph.lane(other);
                path.at(graph, other).calls += 1;
                path.count(graph, other, ends);
                (other, entry(graph, conditions, replayed, lane, other))
            }
            None => (call, entered),
        };
        path.parts.work += begun - other_entered;
        let first = graph.lanes[lane].first;
        let gap = other_entered - if other == first { 0 } else { replayed.exits[other as usize - 1] };
        let begins = if other == first { conditions.gap(graph, lane, graph.lanes[lane].first) } else { gap };
        path.parts.computing += begins;
        *path.at(graph, other) += OnPath { computing: begins, time: begun - other_entered, ..OnPath::default() };
        if other == first {
            // The time before this lane began, spent in the first one.
            path.parts.opaque += gap - begins;
            return path;
        }
        call = other - 1;
        at = replayed.exits[call as usize];
    }
}

pub(crate) fn entry(graph: &Graph, conditions: &Conditions, replayed: &Replayed, lane: usize, call: CallId) -> i64 {
    let gap = conditions.gap(graph, lane, call);
    if call == graph.lanes[lane].first {
        let start = graph.lanes.iter().map(|lane| lane.begun).min().unwrap_or(0);
        return (graph.lanes[lane].begun - start) * PS + gap;
    }
    replayed.exits[call as usize - 1] + gap
}

/// The beginning of what the exit of `call` waited for, with the call that began it and that call's work before; `None`: the exit
/// waited for the call itself, at its entry.
fn begin(
    graph: &Graph,
    conditions: &Conditions,
    replayed: &Replayed,
    call: CallId,
    entered: i64,
) -> (i64, Option<(CallId, [Counts; 2])>) {
    let Some(place) = replayed.causes[call as usize].step() else { return (entered, None) };
    let (other, wanted) = match graph.step_at(place) {
        Step::Sent(message) | Step::Received(message) if replayed.held.contains_key(&message) => {
            let held = replayed.held[&message];
            if held.kept < held.placed && matches!(graph.step_at(place), Step::Sent(_)) {
                return (entered, None);
            }
            return if held.call == call { (entered, None) } else { (held.begun, Some((held.call, NOTHING))) };
        }
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
                // A prefix operation waits for the last of the members before it, which need not be the last of all.
                Collective::Prefix => latest(graph, conditions, replayed, gathering.first..=member),
                _ => replayed.latest_member[number as usize],
            };
            (graph.members[awaited as usize], Step::Enter(awaited))
        }
        Step::Send(_) | Step::Post(_) | Step::Enter(_) => return (entered, None),
    };
    if other == call {
        return (entered, None);
    }
    let lane = graph.lane(other);
    let at = entry(graph, conditions, replayed, lane, other);
    let (work, ends) = before(graph, conditions, other, Some(wanted));
    (at + work, Some((other, ends)))
}

fn latest(graph: &Graph, conditions: &Conditions, replayed: &Replayed, members: std::ops::RangeInclusive<u32>) -> u32 {
    let entered = |member: &u32| {
        let call = graph.members[*member as usize];
        entry(graph, conditions, replayed, graph.lane(call), call)
    };
    let first = *members.start();
    members.max_by_key(entered).unwrap_or(first)
}

/// The own work of a call before one of its steps, or all of it, and the ends of messages that the work is for; nothing, where it
/// has not that step.
pub(crate) fn before(graph: &Graph, conditions: &Conditions, call: CallId, step: Option<Step>) -> (i64, [Counts; 2]) {
    let (mut work, mut counts) = (0, NOTHING);
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

pub(crate) const NOTHING: [Counts; 2] = [Counts { trips: 0, bytes: 0, ends: 0 }; 2];

/// Counts of a message or a gathering on its way.
pub(crate) fn trip(graph: &Graph, kind: u32) -> [Counts; 2] {
    let Kind { trips, bytes, .. } = graph.kinds[kind as usize];
    let trips = u64::from(trips);
    of_reach(graph, kind, Counts { trips, bytes: trips * bytes, ends: 0 })
}

pub(crate) fn of_reach(graph: &Graph, kind: u32, counts: Counts) -> [Counts; 2] {
    let mut both = NOTHING;
    both[reach(graph, kind)] = counts;
    both
}

fn reach(graph: &Graph, kind: u32) -> usize {
    usize::from(graph.kinds[kind as usize].reach == Reach::Between)
}

impl Path {
    fn at(&mut self, graph: &Graph, call: CallId) -> &mut OnPath {
        let (class, site) = (graph.class(call), graph.calls.site[call as usize]);
        let spot = Spot { rank: graph.lanes[graph.lane(call)].rank, site, function: class.function, bits: class.bits };
        self.spots.entry(spot).or_default()
    }

    /// Adds counts to those of `call`, within hosts and between them.
    fn count(&mut self, graph: &Graph, call: CallId, counts: [Counts; 2]) {
        let [within, between] = counts;
        self.counts[0] += within;
        self.counts[1] += between;
        let here = self.at(graph, call);
        here.counts += within;
        here.counts += between;
    }

    /// Adds an exit that came `length` after the awaited call began what it waited for.
    fn exit(
        &mut self,
        graph: &Graph,
        conditions: &Conditions,
        replayed: &Replayed,
        (call, awaited): (CallId, CallId),
        length: i64,
    ) {
        let price = |kind: u32| conditions.prices.kinds[kind as usize];
        let (class, here) = (graph.class(call), self.at(graph, call));
        here.calls += 1;
        let modelled = match replayed.causes[call as usize].step().map(|place| graph.step_at(place)) {
            Some(step @ (Step::Sent(message) | Step::Received(message))) => {
                let Message { sender, kind, .. } = graph.messages[message as usize];
                let begun = replayed.exits[call as usize] - length;
                let held = replayed.held.get(&message);
                if let Some(held) = held {
                    let trips = Counts { trips: held.trips.into(), ..Counts::default() };
                    self.count(graph, sender, of_reach(graph, kind, trips));
                }
                match (step, held) {
                    (Step::Sent(_), Some(held)) => self.message(graph, sender, held.kept - begun),
                    _ => self.trip(graph, sender, kind, replayed.over[message as usize] - begun),
                }
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
                    let time = price(gathering.kind).send;
                    let end = Counts { ends: 1, ..Counts::default() };
                    self.count(graph, call, of_reach(graph, gathering.kind, end));
                    self.message(graph, call, time)
                } else {
                    self.trip(graph, awaited, gathering.kind, price(gathering.kind).trip)
                }
            }
            _ if class.opaque => {
                here.time += length;
                self.parts.opaque += length;
                return;
            }
            _ => {
                let (time, ends) = before(graph, conditions, call, None);
                self.count(graph, call, ends);
                self.at(graph, call).time += time;
                self.parts.work += time;
                time
            }
        };
        self.at(graph, call).time += length - modelled;
        self.leave(length - modelled);
    }

    /// Adds a message or a gathering that `call` began, for the time of its trips.
    fn trip(&mut self, graph: &Graph, call: CallId, kind: u32, time: i64) -> i64 {
        self.count(graph, call, trip(graph, kind));
        self.message(graph, call, time)
    }

    /// Adds the time of a message that `call` began.
    fn message(&mut self, graph: &Graph, call: CallId, time: i64) -> i64 {
        self.at(graph, call).time += time;
        self.parts.messages += time;
        time
    }

    fn leave(&mut self, residual: i64) {
        if residual >= 0 {
            self.parts.unexplained += residual;
        } else {
            self.parts.overexplained += residual;
        }
    }
}
