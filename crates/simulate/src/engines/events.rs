//! Future events in order of time, and of insertion where times are equal.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use machine::fault::{Fault, Result};
use machine::{FaultKind, PeerIndex};

use crate::Kind;

/// The latest time: 106 days, ps.
pub const LONGEST: u64 = u64::MAX / 2;

/// A packet on its way to a rank, which knows the sender as `from`.
pub struct Packet {
    pub to: usize,
    pub from: PeerIndex,
    pub bytes: Vec<u8>,
}

pub enum Event {
    /// A core looks for work.
    Look(usize),
    Over {
        rank: usize,
        number: u32,
        kind: Kind,
    },
    /// A packet comes to the wire of its host, its first byte to the other host, and it is received there.
    Leave(Packet),
    Enter(Packet),
    Arrive(Packet),
}

struct Scheduled {
    at: u64,
    order: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// The queue of events.
#[derive(Default)]
pub struct Events {
    heap: BinaryHeap<Reverse<Scheduled>>,
    order: u64,
}

impl Events {
    /// # Errors
    /// A time beyond [`LONGEST`].
    pub fn put(&mut self, at: u64, event: Event) -> Result<()> {
        if at > LONGEST {
            let next = "check its sizes and the settings";
            return Err(Fault::new("the program", "it takes longer than 106 days", next).of_kind(FaultKind::Limit));
        }
        self.order += 1;
        self.heap.push(Reverse(Scheduled { at, order: self.order, event }));
        Ok(())
    }

    pub fn next(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|Reverse(Scheduled { at, event, .. })| (at, event))
    }
}
