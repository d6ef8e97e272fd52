//! The execution graph of a program: each thread's calls in order, and the messages and collective operations between them.
//!
//! A call has an entry and an exit. Before the entry the thread computes for the call's *gap*. The exit waits for what the call
//! completes; waiting has no length of its own, it is what the latest of its causes leaves over. Lengths are measured
//! nanoseconds; instants and costs are picoseconds ([`crate::replay`]).

mod align;
pub mod build;
mod builder;
mod excerpt;
mod schedule;

use std::collections::HashMap;
use std::sync::Arc;

use record::functions::FunctionId;
use timeline::Collective;

pub use builder::called;
pub use builder::{Adding, Builder};

/// Index of a call in [`Graph::calls`].
pub type CallId = u32;

/// The index of a call that is not there.
pub const NO_CALL: CallId = u32::MAX;

/// The index of a call site that is not known.
pub const NO_SITE: u32 = u32::MAX;

/// A recorded program. A clone shares its calls.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// Threads of all ranks, by rank.
    pub lanes: Vec<Lane>,
    pub calls: Arc<Calls>,
    items: Arc<Vec<Item>>,
    pub messages: Vec<Message>,
    pub gatherings: Vec<Gathering>,
    /// The call by which each member entered, gathering by gathering.
    pub members: Arc<Vec<CallId>>,
    /// The distinct kinds of messages and gatherings.
    pub kinds: Vec<Kind>,
    /// The distinct classes of calls.
    pub classes: Vec<Class>,
    /// Hosts of the ranks, by rank.
    pub hosts: Vec<u32>,
    /// Whether it is of a schedule, whose calls have no measured length.
    pub scheduled: bool,
    /// Remarks on missing or uncertain parts.
    pub notes: Vec<String>,
}

/// The calls of one thread: a range of [`Graph::calls`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    pub rank: u32,
    pub first: CallId,
    pub end: CallId,
    /// The beginning of the lane, ns: its rank left MPI_Init.
    pub begun: i64,
    /// Overhead of recording in each gap, ns.
    pub recording: i64,
}

/// Calls, field by field.
#[derive(Debug, Clone, Default)]
pub struct Calls {
    /// Computing before the call, ns.
    pub gap: Lengths,
    /// From entry to exit as measured, ns.
    pub inside: Lengths,
    /// Indices in [`Graph::classes`].
    pub class: Vec<u32>,
    /// Indices of the call sites ([`timeline::Timeline::places`]), or [`NO_SITE`].
    pub site: Vec<u32>,
    /// Index of each call's first item; one more than there are calls.
    first: Vec<u32>,
}

/// Nanoseconds in 4 bytes each; lengths of 4.29 s and more are kept apart.
#[derive(Debug, Clone, Default)]
pub struct Lengths {
    short: Vec<u32>,
    long: HashMap<u32, i64>,
}

impl Lengths {
    pub fn push(&mut self, ns: i64) {
        let place = self.short.len() as u32;
        match u32::try_from(ns) {
            Ok(short) if short != u32::MAX => self.short.push(short),
            _ => {
                self.short.push(u32::MAX);
                self.long.insert(place, ns.max(0));
            }
        }
    }

    #[inline]
    pub fn get(&self, place: u32) -> i64 {
        match self.short[place as usize] {
            u32::MAX => self.long[&place],
            short => i64::from(short),
        }
    }

    pub fn len(&self) -> usize {
        self.short.len()
    }

    pub fn is_empty(&self) -> bool {
        self.short.is_empty()
    }
}

/// A step of a call, with the index of the message or of the member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Begins to send a message.
    Send(u32),
    /// Posts the receive of a message.
    Post(u32),
    /// Enters a gathering as the member.
    Enter(u32),
    /// Waits until the sender may reuse the message's buffer.
    Sent(u32),
    /// Waits until a message is received.
    Received(u32),
    /// Waits until the member may leave its gathering.
    Leave(u32),
}

/// A [`Step`] in 4 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Item(u32);

const PLACE_BITS: u32 = 29;

/// The most messages, and members of gatherings, in a graph.
pub const MOST: u32 = 1 << PLACE_BITS;

impl From<Step> for Item {
    fn from(step: Step) -> Item {
        let (tag, place) = match step {
            Step::Send(place) => (0, place),
            Step::Post(place) => (1, place),
            Step::Enter(place) => (2, place),
            Step::Sent(place) => (3, place),
            Step::Received(place) => (4, place),
            Step::Leave(place) => (5, place),
        };
        Item(tag << PLACE_BITS | place)
    }
}

impl From<Item> for Step {
    fn from(item: Item) -> Step {
        let place = item.0 & (MOST - 1);
        match item.0 >> PLACE_BITS {
            0 => Step::Send(place),
            1 => Step::Post(place),
            2 => Step::Enter(place),
            3 => Step::Sent(place),
            4 => Step::Received(place),
            _ => Step::Leave(place),
        }
    }
}

/// A message with both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// The call that began to send it.
    pub sender: CallId,
    /// The call that posted its receive.
    pub receiver: CallId,
    /// Index in [`Graph::kinds`].
    pub kind: u32,
}

/// One collective operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gathering {
    /// Index in [`Graph::members`] of the first member.
    pub first: u32,
    pub members: u32,
    /// The rule of who waits for whom.
    pub who: Collective,
    /// The member that is its root, counted from 0.
    pub root: u32,
    /// Index in [`Graph::kinds`].
    pub kind: u32,
}

/// How far apart two ranks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    Host,
    Between,
}

/// The attributes of a message or a gathering that determine its cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    pub bytes: u64,
    /// The reach; of a gathering that of its farthest members.
    pub reach: Reach,
    /// Consecutive messages: 1, or the rounds of a collective operation's usual algorithm.
    pub trips: u16,
}

/// The kind of gatherings that only order lanes and take no time.
const ORDER: Kind = Kind { bytes: 0, reach: Reach::Host, trips: 0 };

/// A class of calls that the model treats alike: their residuals have one mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class {
    pub function: FunctionId,
    /// Bits of the largest message that it begins or completes; 0 where there is none.
    pub bits: u8,
    pub reach: Reach,
    /// Messages and gatherings that it completes, at most 3.
    pub completes: u8,
    /// Whether none of it is modelled, so that it takes the measured time.
    pub opaque: bool,
}

impl Graph {
    /// The steps of a call: those that begin something before those that complete something.
    pub fn steps(&self, call: CallId) -> impl Iterator<Item = Step> + '_ {
        self.steps_from(call, 0).map(|(_, step)| step)
    }

    /// The steps after the first `skip`, each with its index among the steps of all calls.
    pub(crate) fn steps_from(&self, call: CallId, skip: u32) -> impl Iterator<Item = (u32, Step)> + '_ {
        let (first, end) = (self.calls.first[call as usize] + skip, self.calls.first[call as usize + 1]);
        (first..end).map(|place| (place, self.items[place as usize].into()))
    }

    pub(crate) fn first_step(&self, call: CallId) -> u32 {
        self.calls.first[call as usize]
    }

    pub(crate) fn step_at(&self, place: u32) -> Step {
        self.items[place as usize].into()
    }

    pub fn class(&self, call: CallId) -> Class {
        self.classes[self.calls.class[call as usize] as usize]
    }

    /// The farthest reach of what a call begins and completes.
    pub fn reach(&self, call: CallId) -> Reach {
        let kind = |step| match step {
            Step::Send(message) | Step::Post(message) | Step::Sent(message) | Step::Received(message) => {
                self.messages[message as usize].kind
            }
            Step::Enter(member) | Step::Leave(member) => self.gatherings[self.gathering(member) as usize].kind,
        };
        self.steps(call).map(|step| self.kinds[kind(step) as usize].reach).max().unwrap_or(Reach::Host)
    }

    /// The gathering of a member.
    pub fn gathering(&self, member: u32) -> u32 {
        self.gatherings.partition_point(|gathering| gathering.first <= member) as u32 - 1
    }

    /// The lane that a call is of.
    pub fn lane(&self, call: CallId) -> usize {
        self.lanes.partition_point(|lane| lane.end <= call)
    }

    /// The host that a call was made on.
    pub fn host(&self, call: CallId) -> usize {
        self.hosts[self.lanes[self.lane(call)].rank as usize] as usize
    }

    pub fn len(&self) -> usize {
        self.calls.class.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_and_lengths_come_back_as_they_were_put() {
        let steps = [Step::Send, Step::Post, Step::Enter, Step::Sent, Step::Received, Step::Leave];
        for step in steps.iter().flat_map(|of| [of(0), of(MOST - 1)]) {
            assert_eq!(Step::from(Item::from(step)), step);
        }
        let mut lengths = Lengths::default();
        let all = [0, 1, i64::from(u32::MAX) - 1, i64::from(u32::MAX), 1 << 40];
        all.into_iter().for_each(|ns| lengths.push(ns));
        assert_eq!((0..5).map(|place| lengths.get(place)).collect::<Vec<_>>(), all);
    }
}
