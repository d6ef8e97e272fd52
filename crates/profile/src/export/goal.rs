//! GOAL, the schedules that LogGOPSim simulates: each rank's computing, sends and receives, with their order.
//!
//! Time outside MPI becomes `calc`, in ns; time inside MPI is simulated. Each thread of a rank is a chain of
//! operations on a `cpu` of its own. An operation that does not block is started before the next one of its chain
//! (`irequires`) and required by the operations after its completion. A tag of GOAL, by which the ends of a message match,
//! stands for one communicator and one tag of MPI; each collective operation has a tag of its own.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use machine::count;
use record::functions::{Class, function};
use record::trace::peer;
use record::worlds;

use super::expansion::{Pattern, rounds};
use timeline::{Collective, Kind, Operation, Rank, Step, Timeline};

/// Contents of a written schedule, and events that it lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Goal {
    pub ranks: usize,
    pub messages: u64,
    /// Collective calls expanded to messages.
    pub collectives: u64,
    /// Sends and receives whose other end is not in the timeline: left out.
    pub unmatched: u64,
    /// Calls that GOAL cannot express, and collectives without every member's call: their time is computing.
    pub opaque: u64,
    pub notes: Vec<String>,
}

type Label = u64;

/// The end of one thread's chain of operations.
#[derive(Debug, Default)]
struct Chain {
    /// Operations that are over before the next one starts.
    after: Vec<Label>,
    /// The operation that has started before the next one starts.
    started: Option<Label>,
    /// Computing before the next operation, ns.
    computing: i64,
    /// The return of the last call, ns.
    left: Option<i64>,
}

struct Writer<'t, W> {
    timeline: &'t Timeline,
    rank: &'t Rank,
    out: &'t mut W,
    next: Label,
    chains: HashMap<u16, Chain>,
    /// Labels that must be over for a started operation to be complete, by its order.
    pending: HashMap<u64, Vec<Label>>,
    tags: &'t mut HashMap<(u32, i32), u32>,
    done: Goal,
}

/// Writes the schedule of one MPI_COMM_WORLD, given by its place in [`Timeline::worlds`], rank by rank.
///
/// # Errors
/// The errors of `out`.
pub fn goal(timeline: &Timeline, world: usize, out: &mut impl Write) -> io::Result<Goal> {
    let mut places: BTreeMap<u32, usize> = BTreeMap::new();
    for (place, rank) in timeline.ranks.iter().enumerate().filter(|(_, rank)| rank.world == world) {
        places.entry(rank.rank).or_insert(place);
    }
    let ranks = places.keys().last().map_or(0, |last| *last as usize + 1);
    let mut done = Goal { ranks, ..Goal::default() };
    // Tags of collective operations are their numbers; the tags of messages follow.
    let mut tags = HashMap::new();
    writeln!(out, "num_ranks {ranks}")?;
    for rank in 0..ranks as u32 {
        writeln!(out, "\nrank {rank} {{")?;
        match places.get(&rank) {
            Some(place) => {
                let mut writer = Writer {
                    timeline,
                    rank: &timeline.ranks[*place],
                    out,
                    next: 0,
                    chains: HashMap::new(),
                    pending: HashMap::new(),
                    tags: &mut tags,
                    done: Goal::default(),
                };
                writer.write(*place)?;
                done.messages += writer.done.messages;
                done.collectives += writer.done.collectives;
                done.unmatched += writer.done.unmatched;
                done.opaque += writer.done.opaque;
            }
            None => writeln!(out, "l0: calc 0")?,
        }
        writeln!(out, "}}")?;
    }
    if done.unmatched > 0 {
        done.notes.push(format!(
            "sends and receives that are left out, since their other end is not in the timeline: {}",
            count::grouped(done.unmatched)
        ));
    }
    if done.opaque > 0 {
        done.notes.push(format!(
            "calls that count as computing, since GOAL has no one-sided operations or not every member's call is in the \
             timeline: {}",
            count::grouped(done.opaque)
        ));
    }
    if timeline.worlds.len() > 1 {
        let which = worlds::named(&timeline.worlds, world);
        done.notes.push(format!("this is {which}: GOAL has one at a time; --world N takes another one"));
    }
    done.notes.extend(timeline.notes.iter().cloned());
    Ok(done)
}

impl<W: Write> Writer<'_, W> {
    fn write(&mut self, place: usize) -> io::Result<()> {
        let timeline = self.timeline;
        let mut walk = timeline.walk(place);
        let mut first = None;
        while let Some(step) = walk.step() {
            // A thread computes from the rank's first call to its own first call.
            let first = *first.get_or_insert(step.entered);
            let chain = self.chains.entry(step.thread).or_default();
            chain.computing += (step.entered - chain.left.unwrap_or(first)).max(0);
            chain.left = Some(step.left);
            self.step(&step)?;
        }
        let threads: Vec<u16> = self.chains.keys().copied().collect();
        for thread in threads {
            self.compute(thread)?;
        }
        if self.next == 0 {
            self.write_operation(0, "calc 0".into(), &[], None)?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> io::Result<()> {
        let mut opaque = matches!(
            function(step.event.call.function).map(|f| f.class),
            Some(Class::OneSided | Class::Synchronization | Class::Neighbour)
        );
        if !step.begun.is_empty() || !step.completed.is_empty() {
            self.compute(step.thread)?;
        }
        let chain = self.chains.entry(step.thread).or_default();
        let (after, started) = (chain.after.clone(), chain.started);
        let mut blocking: Vec<Label> = Vec::new();
        let mut last_started = None;
        for operation in step.begun {
            let Some((labels, head)) = self.operation(step.thread, operation, &after, started)? else {
                opaque |= matches!(operation.kind, Kind::Collective { .. });
                continue;
            };
            last_started = head.or(last_started);
            if step.completed.iter().any(|completed| completed.order == operation.order) {
                blocking.extend(labels);
            } else {
                self.pending.insert(operation.order, labels);
            }
        }
        let mut over: Vec<Label> = Vec::new();
        for operation in step.completed {
            over.extend(self.pending.remove(&operation.order).unwrap_or_default());
        }
        let chain = self.chains.entry(step.thread).or_default();
        if !blocking.is_empty() {
            (chain.after, chain.started) = (blocking, None);
        } else if last_started.is_some() {
            (chain.after, chain.started) = (Vec::new(), last_started);
        }
        chain.after.extend(over);
        if opaque {
            chain.computing += step.left - step.entered;
            self.done.opaque += 1;
        }
        Ok(())
    }

    /// Writes an operation after the given labels. Returns the labels that must be over for it to be complete, and its first
    /// label; `None` where the operation is left out.
    fn operation(
        &mut self,
        thread: u16,
        operation: &Operation,
        after: &[Label],
        started: Option<Label>,
    ) -> io::Result<Option<(Vec<Label>, Option<Label>)>> {
        let word = match operation.kind {
            Kind::Send => "send",
            Kind::Receive => "recv",
            Kind::Collective { who, .. } => return self.collective(thread, operation, who, after, started),
        };
        if operation.peer == peer::NULL {
            return Ok(None);
        }
        let Some((_, bytes)) = self.timeline.matches.number(self.rank.rank, operation) else {
            self.done.unmatched += 1;
            return Ok(None);
        };
        let next = self.timeline.matches.operations as u32;
        let next = next.wrapping_add(self.tags.len() as u32);
        let key = (operation.communicator.unwrap_or(u32::MAX), operation.tag);
        let tag = *self.tags.entry(key).or_insert(next);
        self.done.messages += u64::from(operation.kind == Kind::Send);
        let label = self.message(thread, word, bytes, operation.peer as u32, tag, after, started)?;
        Ok(Some((vec![label], Some(label))))
    }

    fn collective(
        &mut self,
        thread: u16,
        operation: &Operation,
        who: Collective,
        after: &[Label],
        started: Option<Label>,
    ) -> io::Result<Option<(Vec<Label>, Option<Label>)>> {
        let timeline = self.timeline;
        let Some(instance) = timeline.matches.instance(operation).filter(|instance| instance.whole()) else {
            return Ok(None);
        };
        let communicator = &timeline.communicators[operation.communicator.unwrap_or_default() as usize];
        let root = u32::try_from(operation.peer).ok().and_then(|root| communicator.place_of(root));
        let rooted = matches!(who, Collective::FromRoot | Collective::ToRoot);
        let own = communicator.place_of(self.rank.rank).filter(|_| who != Collective::Neighbours);
        let (Some(own), Some(root)) = (own, if rooted { root } else { Some(0) }) else { return Ok(None) };
        let name = function(operation.function).map_or("", |f| f.name);
        let bytes: Vec<u64> = instance.entries.iter().map(|entry| entry.bytes).collect();
        let tag = instance.number as u32;
        self.done.collectives += 1;
        let (mut after, mut started, mut head) = (after.to_vec(), started, None);
        for round in rounds(Pattern::of(name), own, root, &bytes) {
            let ends = [("send", &round.sends), ("recv", &round.receives)];
            let mut labels = Vec::new();
            for (word, ends) in ends {
                for (member, bytes) in ends {
                    let peer = communicator.members[*member];
                    let label = self.message(thread, word, *bytes, peer, tag, &after, started)?;
                    head = head.or(Some(label));
                    labels.push(label);
                }
            }
            (after, started) = (labels, None);
        }
        // A communicator of one member exchanges nothing.
        Ok(Some((if head.is_some() { after } else { Vec::new() }, head)))
    }

    #[allow(clippy::too_many_arguments)]
    fn message(
        &mut self,
        thread: u16,
        word: &str,
        bytes: u64,
        peer: u32,
        tag: u32,
        after: &[Label],
        started: Option<Label>,
    ) -> io::Result<Label> {
        let direction = if word == "send" { "to" } else { "from" };
        // The simulator computes a gap of `bytes - 1` bytes.
        let bytes = bytes.max(1);
        self.write_operation(thread, format!("{word} {bytes}b {direction} {peer} tag {tag}"), after, started)
    }

    /// Writes the computing of a thread since its last operation.
    fn compute(&mut self, thread: u16) -> io::Result<()> {
        let chain = self.chains.entry(thread).or_default();
        if chain.computing <= 0 {
            return Ok(());
        }
        let text = format!("calc {}", std::mem::take(&mut chain.computing));
        let (after, started) = (std::mem::take(&mut chain.after), chain.started.take());
        let label = self.write_operation(thread, text, &after, started)?;
        self.chains.entry(thread).or_default().after = vec![label];
        Ok(())
    }

    fn write_operation(
        &mut self,
        thread: u16,
        what: String,
        after: &[Label],
        started: Option<Label>,
    ) -> io::Result<Label> {
        let label = self.next;
        self.next += 1;
        match thread {
            0 => writeln!(self.out, "l{label}: {what}")?,
            thread => writeln!(self.out, "l{label}: {what} cpu {}", thread % 256)?,
        }
        for before in after {
            writeln!(self.out, "l{label} requires l{before}")?;
        }
        if let Some(before) = started {
            writeln!(self.out, "l{label} irequires l{before}")?;
        }
        Ok(label)
    }
}
