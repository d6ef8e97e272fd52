//! A walk through the calls of a rank, with the operations that they begin and complete.

use foldhash::{HashMap, HashMapExt};
use record::functions::{FunctionId, named};
use record::trace::{Call, Decoder, Event, Matched, peer, tag};

use super::roles::{Collective, Role, part_of};
use super::{Rank, Timeline};
use crate::places::Places;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Send,
    Receive,
    Collective {
        who: Collective,
        /// Whether it is of a window; these are ordered apart from those of communicators.
        window: bool,
        /// Its index among those of its communicator.
        index: u64,
    },
}

/// One end of a message, or one rank's part in a collective operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    pub kind: Kind,
    /// The function that began it.
    pub function: FunctionId,
    /// Index in [`Timeline::communicators`]; `None` where the timeline does not tell.
    pub communicator: Option<u32>,
    /// Rank in the world of the other end, or of the root. Negative where there is none ([`record::trace::peer`]).
    pub peer: i32,
    pub tag: i32,
    /// Bytes; of a receive those posted, or those received where it had a wildcard.
    pub bytes: u64,
    /// Index among the operations of its rank, in the order in which they are begun.
    pub order: u64,
    /// When the call that began it was entered, ns.
    pub posted: i64,
}

#[derive(Debug)]
pub struct Step<'w> {
    pub thread: u16,
    /// Index in [`Timeline::places`] of where the call was made; `None`: not known.
    pub site: Option<u32>,
    pub event: &'w Event,
    /// Nanoseconds on the clock of the timeline.
    pub entered: i64,
    pub left: i64,
    /// Operations that begin with it.
    pub begun: &'w [Operation],
    /// Operations that are over when it leaves.
    pub completed: &'w [Operation],
    /// The message that a probe waited for, as the receive that it would be.
    pub probed: Option<Operation>,
}

/// A walk; not an iterator, since a step borrows it.
pub struct Walk<'t> {
    rank: &'t Rank,
    places: &'t Places,
    lanes: Vec<Reader<'t>>,
    pending: HashMap<(u16, u64), Pending>,
    /// Number of collective operations begun so far, by communicator and whether of windows.
    collectives: HashMap<(u32, bool), u64>,
    order: u64,
    event: Event,
    site: Option<u32>,
    begun: Vec<Operation>,
    completed: Vec<Operation>,
}

struct Reader<'t> {
    thread: u16,
    sites: &'t [u32],
    decoder: Decoder<'t>,
    next: Option<Event>,
}

/// An operation that is not complete, or a persistent one.
#[derive(Debug, Clone, Copy)]
struct Pending {
    parts: [Option<Operation>; 2],
    persistent: bool,
    /// The number of its last start.
    started: Option<u64>,
}

impl<'t> Walk<'t> {
    pub(super) fn new(timeline: &'t Timeline, place: usize) -> Walk<'t> {
        let rank = &timeline.ranks[place];
        let reader = |lane: &'t super::Lane| {
            let mut reader =
                Reader { thread: lane.thread, sites: &lane.sites, decoder: Decoder::new(&lane.file).ok()?, next: None };
            reader.next = reader.decoder.next_event().ok().flatten().cloned();
            Some(reader)
        };
        Walk {
            rank,
            places: &timeline.places,
            lanes: rank.lanes.iter().filter_map(reader).collect(),
            pending: HashMap::new(),
            collectives: HashMap::new(),
            order: 0,
            event: Event {
                call: Call::new(FunctionId(0), 0, 0),
                operation: 0,
                references: Vec::new(),
                matched: Vec::new(),
            },
            site: None,
            begun: Vec::new(),
            completed: Vec::new(),
        }
    }

    /// The next call, in the order in which calls were entered.
    pub fn step(&mut self) -> Option<Step<'_>> {
        let thread = self.take()?;
        self.begun.clear();
        self.completed.clear();
        let call = self.event.call;
        let (entered, left) = (self.rank.clock.at(call.entered), self.rank.clock.at(call.left));
        let part = part_of(call.function);
        let mut probed = None;
        match part.role {
            Role::Send | Role::Receive | Role::Exchange | Role::Collective(_) => {
                let parts = self.parts(&call, part.role, entered);
                if part.persistent {
                    self.hold(thread, 0, Pending { parts, persistent: true, started: None });
                } else {
                    self.begin(thread, 0, parts, part.blocking);
                }
            }
            Role::Start => {
                for place in 0..self.event.references.len() {
                    let reference = self.event.references[place];
                    let own = self.event.operation + place as u64;
                    let Some(template) = self.pending.get_mut(&(reference.thread, reference.ordinal)) else { continue };
                    template.started = Some(own);
                    let mut parts = template.parts;
                    for one in parts.iter_mut().flatten() {
                        one.posted = entered;
                    }
                    self.begin(thread, place as u64, parts, false);
                }
            }
            Role::Complete => self.complete(),
            Role::Cancel => {
                for reference in &self.event.references {
                    self.pending.remove(&(reference.thread, reference.ordinal));
                }
            }
            Role::Probe | Role::Take => {
                let parts = self.parts(&call, Role::Receive, entered);
                // A probe that found nothing received nothing.
                let found = named_peer(&call) || !self.event.matched.is_empty();
                let asked = part_of_asking(call.function);
                match (part.role, parts[0]) {
                    (Role::Take, _) if found && (!asked || !self.event.matched.is_empty()) => {
                        self.begin(thread, 0, parts, true);
                    }
                    (Role::Probe, Some(operation)) if !asked => probed = Some(self.got(operation, 0)),
                    _ => {}
                }
            }
            Role::Local | Role::Other => {}
        }
        let (event, site, begun, completed) = (&self.event, self.site, &self.begun, &self.completed);
        Some(Step { thread, site, event, entered, left, begun, completed, probed })
    }

    /// Receives that are not complete, in no order.
    pub(super) fn open(&self) -> impl Iterator<Item = &Operation> {
        self.pending.values().filter(|pending| !pending.persistent).flat_map(|pending| pending.parts.iter().flatten())
    }

    /// Moves the call that was entered first into `self.event`, and returns its thread.
    fn take(&mut self) -> Option<u16> {
        let entered = |reader: &Reader| reader.next.as_ref().map(|event| event.call.entered);
        let first = (0..self.lanes.len())
            .filter(|lane| self.lanes[*lane].next.is_some())
            .min_by_key(|lane| entered(&self.lanes[*lane]))?;
        let reader = &mut self.lanes[first];
        let next = reader.next.as_mut()?;
        std::mem::swap(&mut self.event, next);
        let Call { site, function, .. } = self.event.call;
        let place = reader.sites.get(usize::from(site)).copied();
        // A number that belongs to another function is damaged.
        self.site = place.filter(|place| self.places.get(*place).is_some_and(|place| place.function == function));
        match reader.decoder.next_event() {
            Ok(Some(event)) => next.clone_from(event),
            _ => reader.next = None,
        }
        Some(reader.thread)
    }

    /// The operations of a call, not yet numbered.
    fn parts(&self, call: &Call, role: Role, posted: i64) -> [Option<Operation>; 2] {
        let communicator = self.rank.communicators.get(&call.communicator).copied();
        let operation = |kind, peer, tag, bytes| {
            Some(Operation { kind, function: call.function, communicator, peer, tag, bytes, order: 0, posted })
        };
        match role {
            Role::Send => [operation(Kind::Send, call.peer, call.tag, call.bytes), None],
            Role::Receive => [operation(Kind::Receive, call.peer, call.tag, call.bytes), None],
            Role::Exchange => [
                operation(Kind::Send, call.peer, call.tag, call.bytes),
                operation(Kind::Receive, call.source, call.source_tag, call.source_bytes),
            ],
            Role::Collective(who) => {
                let window = is_of_window(call.function);
                [operation(Kind::Collective { who, window, index: 0 }, call.peer, tag::NONE, call.bytes), None]
            }
            _ => [None, None],
        }
    }

    /// Begins operations, as the `place`th of the call.
    fn begin(&mut self, thread: u16, place: u64, mut parts: [Option<Operation>; 2], blocking: bool) {
        for operation in parts.iter_mut().flatten() {
            operation.order = self.order;
            self.order += 1;
            if let Kind::Collective { window, index, .. } = &mut operation.kind
                && let Some(communicator) = operation.communicator
            {
                let count = self.collectives.entry((communicator, *window)).or_default();
                *index = *count;
                *count += 1;
            }
            // The source and tag of a receive with wildcards are those found when all was seen.
            if operation.kind == Kind::Receive
                && let Some((source, tag)) = self.rank.resolved.get(&operation.order)
            {
                (operation.peer, operation.tag) = (*source, *tag);
            }
            if blocking && operation.kind == Kind::Receive {
                let got = take(&self.event.matched, *operation, 0);
                self.begun.push(got);
                self.completed.push(got);
            } else {
                self.begun.push(*operation);
                if blocking {
                    self.completed.push(*operation);
                }
            }
        }
        if !blocking {
            self.hold(thread, place, Pending { parts, persistent: false, started: None });
        }
    }

    fn hold(&mut self, thread: u16, place: u64, pending: Pending) {
        // Without a number no completion could name it.
        if u64::from(self.event.call.begun) > place {
            self.pending.insert((thread, self.event.operation + place), pending);
        }
    }

    fn complete(&mut self) {
        for place in 0..self.event.references.len() {
            let mut key = (self.event.references[place].thread, self.event.references[place].ordinal);
            if let Some(template) = self.pending.get(&key).filter(|pending| pending.persistent) {
                match template.started {
                    Some(started) => key.1 = started,
                    None => continue,
                }
            }
            let Some(pending) = self.pending.remove(&key) else { continue };
            for operation in pending.parts.into_iter().flatten() {
                let got = self.got(operation, place as u32);
                self.completed.push(got);
            }
        }
    }

    fn got(&self, operation: Operation, place: u32) -> Operation {
        if operation.kind != Kind::Receive { operation } else { take(&self.event.matched, operation, place) }
    }
}

/// A receive with the source, tag and bytes that it got.
fn take(matched: &[Matched], operation: Operation, place: u32) -> Operation {
    match matched.iter().find(|matched| matched.place == place) {
        Some(matched) => Operation { peer: matched.source, tag: matched.tag, bytes: matched.bytes, ..operation },
        None => operation,
    }
}

fn named_peer(call: &Call) -> bool {
    call.peer != peer::ANY && call.tag != tag::ANY
}

/// Whether the function is a nonblocking probe.
fn part_of_asking(function: FunctionId) -> bool {
    named("Iprobe").is_some_and(|f| f.id == function) || named("Improbe").is_some_and(|f| f.id == function)
}

fn is_of_window(function: FunctionId) -> bool {
    named("Win_fence").is_some_and(|f| f.id == function)
}
