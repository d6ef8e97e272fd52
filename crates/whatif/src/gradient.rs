//! The right and the left derivative of a replay's time by each cost, exactly.
//!
//! The time is the largest of sums of costs, so it is convex and piecewise linear in them. Where several critical paths are
//! equally long, more of a cost makes the one longest that has most of it, and less of it leaves the one that has least. Both
//! follow from the beginnings and lengths that an exit is *tight* with, those that no other one exceeds:
//! ```text
//! right(exit) = max over what is tight (right(its beginning) + count)        left: min
//! ```
//! Who receives what, in which call somebody moves a rendezvous, and the queue of an engine's core stay as they are.

use std::cmp::Ordering;
use std::collections::HashMap;

use timeline::Collective;

use crate::graph::{CallId, Graph, Step};
use crate::model::Price;
use crate::path::{Counts, NOTHING, before, entry, of_reach, trip};
use crate::replay::{Conditions, PS, Replayed};

/// Messages on the longest of critical paths that are equally long, and on the shortest, by each count.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Gradient {
    pub right: Counts,
    pub left: Counts,
}

impl Gradient {
    /// Whether the right derivative differs from the left.
    pub fn is_kink(&self) -> bool {
        self.right != self.left
    }

    fn then(self, more: Counts) -> Gradient {
        let add = |mut counts: Counts| {
            counts += more;
            counts
        };
        Gradient { right: add(self.right), left: add(self.left) }
    }

    fn or(self, other: Gradient) -> Gradient {
        let each = |of: fn(u64, u64) -> u64, one: Counts, other: Counts| Counts {
            trips: of(one.trips, other.trips),
            bytes: of(one.bytes, other.bytes),
            ends: of(one.ends, other.ends),
        };
        Gradient { right: each(u64::max, self.right, other.right), left: each(u64::min, self.left, other.left) }
    }
}

/// Gradients within hosts, and between them.
pub type Gradients = [Gradient; 2];

/// A constraint that an exit is tight with: the exit before the beginning (`None`: the lane's own beginning), and the
/// counts of costs since then.
type Tight = (Option<CallId>, [Counts; 2]);

/// The derivatives of `replayed.total`, with the replay's `residual` of each call, ps.
pub fn gradients(
    graph: &Graph,
    conditions: &Conditions,
    replayed: &Replayed,
    residual: impl Fn(CallId) -> i64,
) -> Gradients {
    let mut walk = Walk { graph, conditions, replayed, residual, known: HashMap::new(), gathered: HashMap::new() };
    let last = graph.lanes.iter().filter(|lane| lane.first < lane.end).map(|lane| lane.end - 1);
    let last = last.filter(|call| replayed.exits[*call as usize] == replayed.total);
    last.map(|call| walk.gradients(call)).reduce(or).unwrap_or_default()
}

fn or(one: Gradients, other: Gradients) -> Gradients {
    [one[0].or(other[0]), one[1].or(other[1])]
}

struct Walk<'g, F> {
    graph: &'g Graph,
    conditions: &'g Conditions,
    replayed: &'g Replayed,
    residual: F,
    /// Results of exits that were visited.
    known: HashMap<CallId, Gradients>,
    /// For gatherings in which all wait for all: the last entry, ps, and the constraints that make it so late.
    gathered: HashMap<u32, (i64, Vec<Tight>)>,
}

impl<F: Fn(CallId) -> i64> Walk<'_, F> {
    /// Depth first, with a stack of its own: paths are as long as programs.
    fn gradients(&mut self, call: CallId) -> Gradients {
        let mut stack: Vec<(CallId, Vec<Tight>, usize)> = Vec::new();
        if !self.known.contains_key(&call) {
            stack.push((call, self.tight(call), 0));
        }
        while let Some((call, tight, next)) = stack.last_mut() {
            let missing =
                tight[*next..].iter().position(|(exit, _)| exit.is_some_and(|exit| !self.known.contains_key(&exit)));
            if let Some(missing) = missing {
                *next += missing;
                let Some(exit) = tight[*next].0 else { continue };
                stack.push((exit, self.tight(exit), 0));
                continue;
            }
            let of = |(exit, counts): &Tight| {
                let before = exit.map_or_else(Gradients::default, |exit| self.known[&exit]);
                [before[0].then(counts[0]), before[1].then(counts[1])]
            };
            let gradients = tight.iter().map(of).reduce(or).unwrap_or_default();
            self.known.insert(*call, gradients);
            stack.pop();
        }
        self.known[&call]
    }

    /// All constraints that the exit of a call is tight with.
    fn tight(&mut self, call: CallId) -> Vec<Tight> {
        let graph = self.graph;
        let (entered, residual) = (self.entered(call), (self.residual)(call));
        let (own, counts) = if graph.class(call).opaque {
            (graph.calls.inside.get(call) * PS, NOTHING)
        } else {
            self.before(call, None)
        };
        let itself = vec![(self.exit_before(call), NOTHING)];
        let floor = (entered, itself.clone());
        let mut waits = vec![Wait { over: entered + own, counts, sources: itself, floor }];
        for (place, step) in graph.steps_from(call, 0) {
            let mut wait = match step {
                Step::Sent(message) if !self.price(message).rendezvous => continue,
                Step::Sent(message) | Step::Received(message) => self.message(message),
                Step::Leave(member) => self.leave(member),
                Step::Send(_) | Step::Post(_) | Step::Enter(_) => continue,
            };
            // A message that queued for an engine's core is over later than its trip says.
            if self.replayed.causes[call as usize].step() == Some(place) {
                wait.over = wait.over.max(self.replayed.exits[call as usize] - residual);
            }
            waits.push(wait);
        }
        let latest = waits.iter().map(|wait| wait.over).max().unwrap_or(entered);
        let floor = waits.iter().map(|wait| wait.floor.0).max().unwrap_or(entered);
        let mut tight = Vec::new();
        for Wait { over, counts, sources, floor: (certain, entries) } in waits {
            if over == latest && latest + residual >= floor {
                tight.extend(sources.iter().map(|(before, so_far)| (*before, sum(*so_far, counts))));
            }
            if certain == floor && latest + residual <= floor {
                tight.extend(entries);
            }
        }
        tight
    }

    fn price(&self, message: u32) -> Price {
        self.conditions.prices.kinds[self.graph.messages[message as usize].kind as usize]
    }

    fn entered(&self, call: CallId) -> i64 {
        entry(self.graph, self.conditions, self.replayed, self.graph.lane(call), call)
    }

    /// The exit before a call of its lane; `None` before the first call.
    fn exit_before(&self, call: CallId) -> Option<CallId> {
        let lane = self.graph.lanes[self.graph.lane(call)];
        (call > lane.first).then(|| call - 1)
    }

    /// The own work of a call before one of its steps, or all of it, and the counts of message ends that the work is for.
    fn before(&self, call: CallId, step: Option<Step>) -> (i64, [Counts; 2]) {
        before(self.graph, self.conditions, call, step)
    }

    /// The instant of a step of a call, with its tight constraint.
    fn at(&self, call: CallId, step: Step) -> (i64, Tight) {
        let (work, counts) = self.before(call, Some(step));
        (self.entered(call) + work, (self.exit_before(call), counts))
    }

    /// The entry of a call, with its tight constraint.
    fn entry(&self, call: CallId) -> (i64, Tight) {
        (self.entered(call), (self.exit_before(call), NOTHING))
    }

    fn message(&self, number: u32) -> Wait {
        let message = self.graph.messages[number as usize];
        let (price, mover) = (self.price(number), self.replayed.movers[number as usize]);
        let halves = [(message.sender, Step::Send(number)), (message.receiver, Step::Post(number))];
        let halves = &halves[..if price.rendezvous { 2 } else { 1 }];
        let (begun, sources) = if mover != message.sender && mover != message.receiver {
            latest(std::iter::once(self.entry(mover)))
        } else {
            latest(halves.iter().map(|(call, step)| self.at(*call, *step)))
        };
        let floor = latest(halves.iter().map(|(call, _)| self.entry(*call)));
        Wait { over: begun + price.trip, counts: trip(self.graph, message.kind), sources, floor }
    }

    fn leave(&mut self, member: u32) -> Wait {
        let number = self.graph.gathering(member);
        let gathering = self.graph.gatherings[number as usize];
        let root = gathering.first + gathering.root;
        let all = gathering.first..gathering.first + gathering.members;
        let entered = |of: u32| self.at(self.graph.members[of as usize], Step::Enter(of));
        let hands_over = match gathering.who {
            Collective::ToRoot => member != root,
            Collective::FromRoot => member == root,
            _ => false,
        };
        let (begun, sources) = match gathering.who {
            Collective::FromRoot => latest(std::iter::once(entered(root))),
            Collective::ToRoot if member != root => latest(std::iter::once(entered(member))),
            Collective::Prefix => latest((gathering.first..=member).map(entered)),
            _ => match self.gathered.get(&number) {
                Some(known) => known.clone(),
                None => {
                    let found = latest(all.map(entered));
                    self.gathered.insert(number, found.clone());
                    found
                }
            },
        };
        let price = self.conditions.prices.kinds[gathering.kind as usize];
        if hands_over {
            let counts = of_reach(self.graph, gathering.kind, Counts { ends: 1, ..Counts::default() });
            return Wait { over: begun + price.send, counts, floor: (begun, sources.clone()), sources };
        }
        let counts = trip(self.graph, gathering.kind);
        Wait { over: begun + price.trip, counts, floor: (begun, sources.clone()), sources }
    }
}

/// An event that an exit waits for.
struct Wait {
    over: i64,
    /// Counts from the beginning to the end of the event.
    counts: [Counts; 2],
    /// The constraints that the beginning is tight with.
    sources: Vec<Tight>,
    /// The lower bound of an exit that waits for the event, with its tight constraints.
    floor: (i64, Vec<Tight>),
}

fn sum(mut one: [Counts; 2], other: [Counts; 2]) -> [Counts; 2] {
    one[0] += other[0];
    one[1] += other[1];
    one
}

/// The latest of some instants, with all constraints of those that are as late.
fn latest(all: impl Iterator<Item = (i64, Tight)>) -> (i64, Vec<Tight>) {
    let mut last = (i64::MIN, Vec::new());
    for (at, tight) in all {
        match at.cmp(&last.0) {
            Ordering::Greater => last = (at, vec![tight]),
            Ordering::Equal => last.1.push(tight),
            Ordering::Less => {}
        }
    }
    last
}
