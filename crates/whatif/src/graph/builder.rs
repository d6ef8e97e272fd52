//! Making a graph, thread by thread.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use record::functions::{FunctionId, named};
use timeline::Collective;

use super::{Class, Gathering, Graph, Item, Kind, Lane, Message, NO_CALL, NO_SITE, Reach, Step};

/// A graph under construction. Callers number messages and gatherings, before the calls that name them.
#[derive(Debug)]
pub struct Builder {
    graph: Graph,
    kinds: HashMap<Kind, u32>,
    classes: HashMap<Class, u32>,
}

/// A call to be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adding {
    pub function: FunctionId,
    /// Computing before it, and from its entry to its exit, ns.
    pub gap: i64,
    pub inside: i64,
    pub opaque: bool,
}

/// A function that does such steps.
pub fn called(steps: &[Step]) -> FunctionId {
    let count = |of: fn(&Step) -> bool| steps.iter().filter(|step| of(step)).count();
    let sends = count(|step| matches!(step, Step::Send(_)));
    let posts = count(|step| matches!(step, Step::Post(_)));
    let completes = count(|step| matches!(step, Step::Sent(_) | Step::Received(_) | Step::Leave(_)));
    let name = match (sends, posts, completes) {
        (0, 0, 0) => "Finalize",
        (0, 0, _) => "Waitall",
        (1, 0, 0) => "Isend",
        (0, 1, 0) => "Irecv",
        (_, _, 0) => "Startall",
        (_, 0, _) => "Send",
        (0, _, _) => "Recv",
        _ => "Sendrecv",
    };
    named(name).map_or(FunctionId(0), |function| function.id)
}

impl Builder {
    /// `hosts` of the ranks, by rank.
    pub fn new(hosts: Vec<u32>, messages: u32) -> Builder {
        let none = Message { sender: NO_CALL, receiver: NO_CALL, kind: 0 };
        let mut graph = Graph { hosts, messages: vec![none; messages as usize], ..Graph::default() };
        Arc::make_mut(&mut graph.calls).first.push(0);
        Builder { graph, kinds: HashMap::new(), classes: HashMap::new() }
    }

    /// Begins a lane: further calls are those of a thread of `rank`.
    pub fn lane(&mut self, rank: u32, begun: i64) {
        let first = self.graph.len() as u32;
        self.graph.lanes.push(Lane { rank, first, end: first, begun, recording: 0 });
    }

    /// Sets the overhead of recording in each gap of the last lane, ns.
    pub fn recorded(&mut self, recording: i64) {
        self.graph.lanes.last_mut().expect("a lane was begun").recording = recording;
    }

    /// Adds a call to the last lane. Steps that begin something come before those that complete something.
    pub fn call(&mut self, adding: Adding, steps: &[Step]) {
        let call = self.graph.len() as u32;
        let (mut bytes, mut reach, mut completes) = (0, Reach::Host, 0u8);
        for step in steps {
            let kind = match *step {
                Step::Send(place) => {
                    self.graph.messages[place as usize].sender = call;
                    self.graph.messages[place as usize].kind
                }
                Step::Post(place) => {
                    self.graph.messages[place as usize].receiver = call;
                    self.graph.messages[place as usize].kind
                }
                Step::Sent(place) | Step::Received(place) => self.graph.messages[place as usize].kind,
                Step::Enter(member) => {
                    Arc::make_mut(&mut self.graph.members)[member as usize] = call;
                    self.graph.gatherings[self.graph.gathering(member) as usize].kind
                }
                Step::Leave(member) => self.graph.gatherings[self.graph.gathering(member) as usize].kind,
            };
            let kind = self.graph.kinds[kind as usize];
            bytes = bytes.max(kind.bytes);
            reach = reach.max(kind.reach);
            completes += u8::from(matches!(step, Step::Sent(_) | Step::Received(_) | Step::Leave(_)) && completes < 3);
            Arc::make_mut(&mut self.graph.items).push(Item::from(*step));
        }
        let bits = if steps.is_empty() { 0 } else { (u64::BITS - bytes.leading_zeros()) as u8 };
        let class = Class { function: adding.function, bits, reach, completes, opaque: adding.opaque };
        let next = self.classes.len() as u32;
        let class = *self.classes.entry(class).or_insert_with(|| {
            self.graph.classes.push(class);
            next
        });
        let calls = Arc::make_mut(&mut self.graph.calls);
        calls.gap.push(adding.gap);
        calls.inside.push(adding.inside);
        calls.class.push(class);
        calls.site.push(NO_SITE);
        calls.first.push(self.graph.items.len() as u32);
        self.graph.lanes.last_mut().expect("a lane was begun").end = call + 1;
    }

    /// Sets the site of the last call.
    pub fn made_at(&mut self, site: u32) {
        *Arc::make_mut(&mut self.graph.calls).site.last_mut().expect("a call was added") = site;
    }

    pub fn kind(&mut self, kind: Kind) -> u32 {
        let next = self.kinds.len() as u32;
        *self.kinds.entry(kind).or_insert_with(|| {
            self.graph.kinds.push(kind);
            next
        })
    }

    /// Sets the kind of message `number`, before any call names it.
    pub fn message(&mut self, number: u32, kind: Kind) {
        self.graph.messages[number as usize].kind = self.kind(kind);
    }

    /// Adds a gathering; returns the place of its first member.
    pub fn gathering(&mut self, members: u32, who: Collective, root: u32, kind: Kind) -> u32 {
        let (first, kind) = (self.graph.members.len() as u32, self.kind(kind));
        Arc::make_mut(&mut self.graph.members).resize(first as usize + members as usize, NO_CALL);
        self.graph.gatherings.push(Gathering { first, members, who, root, kind });
        first
    }

    pub fn note(&mut self, note: String) {
        self.graph.notes.push(note);
    }

    pub fn finish(self) -> Graph {
        self.graph
    }
}
