//! `Progress::Between`: all events of one time occur in the order of their creation, on all ranks, as in LogGOPS.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::super::Time;
use super::super::matching::Half;
use super::{Engine, Rank, Work};

/// Work that waits for its turn.
#[derive(Debug, Default)]
pub(super) struct InOrder {
    /// Ranks that may have work, by the order of their first one.
    ranks: BinaryHeap<Reverse<(u32, u32)>>,
    /// Receives, by the time at which their rank's core is free for them, and their order.
    receives: BTreeMap<(Time, u32), (u32, Half)>,
}

impl Engine<'_> {
    /// The first work of a rank, and its order.
    pub(super) fn first_in_order(&self, rank: &Rank) -> Option<(u32, Work)> {
        let posting = rank.posting.front().map(|slot| (self.messages[*slot].order, *slot));
        let send = posting.and_then(|(order, slot)| {
            let entry = rank.sending.iter().find(|(_, other, _)| *other == slot)?;
            Some((order, Work::Hand(slot, entry.2)))
        });
        let cleared = rank.sending.iter().find(|(_, slot, _)| !rank.posting.contains(slot));
        let cleared = cleared.map(|(_, slot, part)| (self.messages[*slot].order, Work::Hand(*slot, *part)));
        let take = rank.arrived.first().map(|(order, slot, part)| (*order, Work::Take(*slot, *part)));
        let compute = rank.computes.front().map(|(.., order)| (*order, Work::Compute));
        [send, cleared, take, compute].into_iter().flatten().min_by_key(|(order, _)| *order)
    }

    /// Posts a receive, which takes no time of its core but begins only when that is free.
    pub(super) fn post_in_order(&mut self, rank: u32, receive: Half, order: u32) {
        let free = self.ranks[rank as usize].job.map_or(self.now, |job| job.ends.max(self.now));
        self.in_order.receives.insert((free, order), (rank, receive));
    }

    /// Has the first of all ranks do its work. `false`: nothing more happens at this time.
    pub(super) fn goes_on_in_order(&mut self) -> bool {
        while let Some(rank) = self.wakes.pop_front() {
            let order = self.order_of(rank);
            self.in_order.ranks.push(Reverse((order, rank)));
        }
        let receive = self.in_order.receives.first_key_value().filter(|((free, _), _)| *free <= self.now);
        let receive = receive.map(|((_, order), _)| *order);
        let Some(Reverse((order, rank))) = self
            .in_order
            .ranks
            .peek()
            .copied()
            .filter(|Reverse((order, _))| receive.is_none_or(|receive| *order < receive))
        else {
            return match receive.and_then(|_| self.in_order.receives.pop_first()) {
                Some((_, (rank, receive))) => {
                    self.post(rank, receive);
                    if self.over.is_empty() {
                        self.release(rank);
                    }
                    true
                }
                None => false,
            };
        };
        self.in_order.ranks.pop();
        match self.order_of(rank) {
            later if later > order => self.in_order.ranks.push(Reverse((later, rank))),
            _ => self.advance(rank),
        }
        true
    }

    /// The order of a rank's first work; the last order, where it has none or its core is busy.
    fn order_of(&self, rank: u32) -> u32 {
        let of = &self.ranks[rank as usize];
        match of.job {
            Some(job) if job.running => u32::MAX,
            Some(_) => 0,
            None => self.first_in_order(of).map_or(u32::MAX, |(order, _)| order),
        }
    }
}
