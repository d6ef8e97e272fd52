//! The graph of a recorded timeline.
//!
//!
//! recorded
//! in the graph
//!
//! |---|---|
//!
//! time between two calls of a thread
//! the gap of the second, in which recording took its part
//!
//!
//! a message of which both ends were recorded
//! sent, posted, received as the calls say
//!
//!
//! a collective operation that all members entered
//! one gathering, of the trips of its usual algorithm
//!
//!
//! unsuccessful tests, one after the other
//! one with the call that is answered
//!
//!
//! a probe and the receive after it
//! one, from the entry of the probe
//!
//!
//! the end of a thread while its rank's main thread is in no call
//! what the main thread waits for ([`threads`])
//!
//!
//! one-sided operations, neighbours, halves without the other one
//! opaque: what was measured
//!

mod threads;

use std::collections::BTreeMap;

use machine::{Fault, Result, count};
use profile::export::Pattern;
use record::functions::{Class as Sorted, FunctionId, function, named};
use record::trace::peer;
use record::worlds;
use timeline::{ABSENT, Collective, Kind as Sort, Operation, SHORTEST, Step as Walked, Timeline};

use super::align::Clocks;
use super::builder::{Adding, Builder};
use super::{Graph, Kind, MOST, NO_SITE, Reach, Step};

impl Graph {
    /// The graph of one MPI_COMM_WORLD, an index in [`Timeline::worlds`], from when its ranks left MPI_Init to when they enter
    /// MPI_Finalize. Where there are several, a note names it.
    ///
    /// # Errors
    /// It has more messages than a graph can have, or there is no such world.
    pub fn of(timeline: &Timeline, world: usize) -> Result<Graph> {
        worlds::check_world(&timeline.worlds, world)?;
        if timeline.matches.messages >= u64::from(MOST) {
            let cause = format!("it has {} messages, more than {MOST}", timeline.matches.messages);
            return Err(Fault::new("the timeline", cause, "profile a shorter run"));
        }
        let members = || timeline.ranks.iter().enumerate().filter(|(_, rank)| rank.world == world);
        let mut names: Vec<&str> = Vec::new();
        let mut hosts = Vec::new();
        for (_, rank) in members() {
            let host = names.iter().position(|name| *name == rank.host).unwrap_or_else(|| {
                names.push(&rank.host);
                names.len() - 1
            });
            hosts.resize(hosts.len().max(rank.rank as usize + 1), 0);
            hosts[rank.rank as usize] = host as u32;
        }
        // Where calls were lost, all ranks are cut where the first of them ends.
        let lost = members().any(|(_, rank)| rank.lost > 0);
        let cut = if lost { members().map(|(_, rank)| rank.end()).min() } else { None };
        let mut making = Making {
            timeline,
            builder: Builder::new(hosts.clone(), timeline.matches.messages as u32),
            clocks: Clocks::of(timeline, world, &hosts),
            hosts,
            gatherings: vec![None; timeline.matches.operations as usize],
            cut: cut.unwrap_or(i64::MAX),
            opaque: 0,
            joined: 0,
            ends: Ends::of_mpi(),
        };
        let places: Vec<usize> = members().map(|(place, _)| place).collect();
        places.into_iter().for_each(|place| making.rank(place));
        if timeline.worlds.len() > 1 {
            let which = worlds::named(&timeline.worlds, world);
            making.builder.note(format!("this is {which}; --world N takes another one"));
        }
        if making.opaque > 0 {
            let calls = count::of(making.opaque, "call");
            making
                .builder
                .note(format!("{calls} not modelled: one-sided, of neighbours, or one half was not recorded"));
        }
        if making.joined > 0 {
            let threads = count::of(making.joined, "thread");
            let note = "ended while the main thread was in no call: it is taken to have waited for them";
            making.builder.note(format!("{threads} {note}"));
        }
        timeline.notes.iter().chain(&making.clocks.notes).for_each(|note| making.builder.note(note.clone()));
        Ok(making.builder.finish())
    }
}

/// The functions at both ends of what is replayed.
struct Ends {
    begin: [Option<FunctionId>; 2],
    end: Option<FunctionId>,
}

impl Ends {
    fn of_mpi() -> Ends {
        let id = |name| named(name).map(|function| function.id);
        Ends { begin: [id("Init"), id("Init_thread")], end: id("Finalize") }
    }
}

struct Making<'t> {
    timeline: &'t Timeline,
    builder: Builder,
    hosts: Vec<u32>,
    clocks: Clocks,
    /// The place of the first member, by number.
    gatherings: Vec<Option<u32>>,
    /// The instant after which no entered call is replayed, ns.
    cut: i64,
    opaque: u64,
    /// The number of threads that others waited for.
    joined: u64,
    ends: Ends,
}

/// The calls of a thread until they are added.
#[derive(Debug, Default)]
struct Thread {
    /// The end of the last call.
    left: Option<i64>,
    calls: Vec<(Adding, u32, Vec<Step>)>,
    /// Unsuccessful tests, as one call that is not added yet: its function and site, the first entry and the last exit.
    asked: Option<(Made, i64, i64)>,
}

/// The function that was called, and the site.
type Made = (FunctionId, u32);

impl Thread {
    fn add(&mut self, (function, site): Made, (entered, left): (i64, i64), opaque: bool, steps: Vec<Step>) {
        let gap = (entered - self.left.unwrap_or(entered)).max(0);
        self.left = Some(left.max(entered));
        self.calls.push((Adding { function, gap, inside: (left - entered).max(0), opaque }, site, steps));
    }

    /// Adds the unsuccessful tests as measured computing.
    fn give_up(&mut self) {
        if let Some((made, entered, left)) = self.asked.take() {
            self.add(made, (entered, left), true, Vec::new());
        }
    }
}

impl Making<'_> {
    fn rank(&mut self, place: usize) {
        let timeline = self.timeline;
        let mut threads: BTreeMap<u16, Thread> = BTreeMap::new();
        let (mut begun, mut main) = (None, None);
        let mut walk = timeline.walk(place);
        let host = self.hosts[timeline.ranks[place].rank as usize];
        while let Some(step) = walk.step() {
            let call = step.event.call.function;
            let made = (call, step.site.unwrap_or(NO_SITE));
            let [entered, left] = [step.entered, step.left].map(|instant| self.clocks.at(host, instant));
            if self.ends.begin.contains(&Some(call)) {
                begun = Some(left);
                continue;
            }
            if step.entered > self.cut {
                break;
            }
            // A thread that calls MPI later computes from where its rank left MPI_Init.
            let begun = *begun.get_or_insert(entered);
            let thread = threads.entry(step.thread).or_default();
            thread.left.get_or_insert(begun);
            if Some(call) == self.ends.end {
                main = Some(step.thread);
                thread.give_up();
                thread.add(made, (entered, entered), true, Vec::new());
                break;
            }
            let (asks, receives) = (asks(call), step.completed.iter().any(|one| one.kind == Sort::Receive));
            let together = thread
                .asked
                .filter(|((asked, _), _, left)| (asks || (receives && probes(*asked))) && entered - left < SHORTEST);
            if together.is_none() {
                thread.give_up();
            }
            let entered = together.map_or(entered, |(_, entered, _)| entered);
            if asks && step.completed.is_empty() && step.begun.is_empty() {
                thread.asked = Some((made, entered, left));
                continue;
            }
            thread.asked = None;
            let (steps, whole) = self.steps(place, &step);
            let opaque = !whole || is_opaque(call);
            self.opaque += u64::from(opaque);
            thread.add(made, (entered, left), opaque, steps);
        }
        let rank = &timeline.ranks[place];
        threads.values_mut().for_each(Thread::give_up);
        // In a timeline that was cut, no thread is known to have ended.
        if let Some(main) = main.filter(|_| self.cut == i64::MAX) {
            self.joined += threads::join(&mut threads, main, begun.unwrap_or(0), &mut self.builder);
        }
        for thread in threads.into_values() {
            self.builder.lane(rank.rank, begun.unwrap_or(0));
            self.builder.recorded(rank.recording);
            for (adding, site, steps) in thread.calls {
                self.builder.call(adding, &steps);
                self.builder.made_at(site);
            }
        }
    }

    /// The steps of a call, and whether all of it can be modelled.
    fn steps(&mut self, place: usize, walked: &Walked) -> (Vec<Step>, bool) {
        let rank = self.timeline.ranks[place].rank;
        let (mut steps, mut whole) = (Vec::with_capacity(walked.begun.len() + walked.completed.len()), true);
        let begun = walked.begun.iter().map(|one| (one, true));
        for (operation, begins) in begun.chain(walked.completed.iter().map(|one| (one, false))) {
            let step = match operation.kind {
                Sort::Collective { who, .. } => {
                    self.member(rank, operation, who).map(if begins { Step::Enter } else { Step::Leave })
                }
                _ if operation.peer == peer::NULL => continue,
                sort => self.message(rank, operation).map(match (sort, begins) {
                    (Sort::Send, true) => Step::Send,
                    (Sort::Send, false) => Step::Sent,
                    (_, true) => Step::Post,
                    (_, false) => Step::Received,
                }),
            };
            whole &= step.is_some();
            steps.extend(step);
        }
        (steps, whole)
    }

    fn message(&mut self, rank: u32, operation: &Operation) -> Option<u32> {
        let matches = &self.timeline.matches;
        let (number, bytes) = matches.number(rank, operation)?;
        if self.cut != i64::MAX && matches.partner(rank, operation)?.posted > self.cut {
            return None;
        }
        let reach = self.reach([rank, operation.peer as u32].into_iter());
        self.builder.message(number as u32, Kind { bytes, reach, trips: 1 });
        Some(number as u32)
    }

    fn member(&mut self, rank: u32, operation: &Operation, who: Collective) -> Option<u32> {
        let timeline = self.timeline;
        let instance = timeline.matches.instance(operation).filter(|instance| instance.whole())?;
        let communicator = &timeline.communicators[operation.communicator? as usize];
        let own = communicator.place_of(rank)? as u32;
        if who == Collective::Neighbours || instance.entries.iter().any(|entry| entry.posted > self.cut) {
            return None;
        }
        debug_assert!(instance.entries.iter().all(|entry| entry.posted != ABSENT));
        let number = instance.number as usize;
        if let Some(first) = self.gatherings[number] {
            return Some(first + own);
        }
        let rooted = matches!(who, Collective::FromRoot | Collective::ToRoot);
        let root = u32::try_from(operation.peer).ok().and_then(|root| communicator.place_of(root));
        let root = if rooted { root? as u32 } else { 0 };
        let members = instance.entries.len() as u32;
        let most = instance.entries.iter().map(|entry| entry.bytes).max().unwrap_or(0);
        let name = function(operation.function).map_or("", |function| function.name);
        let (trips, bytes) = trips(Pattern::of(name), members, most);
        let reach = self.reach(communicator.members.iter().copied());
        let first = self.builder.gathering(members, who, root, Kind { bytes, reach, trips });
        self.gatherings[number] = Some(first);
        Some(first + own)
    }

    fn reach(&self, mut ranks: impl Iterator<Item = u32>) -> Reach {
        let host = |rank: u32| self.hosts.get(rank as usize);
        let first = ranks.next().and_then(host);
        if ranks.all(|rank| host(rank) == first) { Reach::Host } else { Reach::Between }
    }
}

/// The consecutive rounds of the usual algorithm, and the bytes of each.
fn trips(pattern: Pattern, members: u32, bytes: u64) -> (u16, u64) {
    let tree = members.next_power_of_two().trailing_zeros() as u16;
    let others = members.saturating_sub(1).min(u32::from(u16::MAX)) as u16;
    match pattern {
        Pattern::Dissemination => (tree, 1),
        Pattern::Broadcast | Pattern::Reduce | Pattern::ReduceToAll | Pattern::Prefix => (tree, bytes),
        // The root's message halves from round to round.
        Pattern::Scatter | Pattern::Gather => (tree, bytes.saturating_mul(u64::from(others)) / u64::from(tree.max(1))),
        Pattern::GatherToAll => (others, bytes),
        Pattern::AllToAll | Pattern::ReduceScatter => (others, bytes / u64::from(members.max(1))),
    }
}

/// Whether a function tests or probes: it is called again where the answer is no, or waits for a yes.
fn asks(call: FunctionId) -> bool {
    function(call).is_some_and(|f| f.name.starts_with("Test") || f.name == "Improbe") || probes(call)
}

/// Whether a function leaves the message to a later receive.
fn probes(call: FunctionId) -> bool {
    function(call).is_some_and(|f| matches!(f.name, "Probe" | "Iprobe"))
}

fn is_opaque(call: FunctionId) -> bool {
    let class = function(call).map(|function| function.class);
    matches!(class, Some(Sorted::OneSided | Sorted::Synchronization | Sorted::Neighbour))
}

#[cfg(test)]
mod tests;
