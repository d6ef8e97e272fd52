//! Messages: the beginnings of their halves, and their ends.

use super::{Cursor, NO_LANE, Replay, UNKNOWN, WAITS, waiter, waiting};
use crate::graph::CallId;
use crate::model::{Price, Progress};

/// The beginning of a half of a message or of a member.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun {
    /// The instant after the modelled work before it in its call.
    pub at: i64,
    /// The entry of that call: the certain lower bound.
    pub entered: i64,
}

pub(super) const NOT_BEGUN: Begun = Begun { at: UNKNOWN, entered: UNKNOWN };

impl Replay<'_, '_> {
    pub(super) fn price(&self, message: u32) -> Price {
        self.conditions.prices.kinds[self.graph.messages[message as usize].kind as usize]
    }

    /// Begins one half of a message.
    pub(super) fn begin(&mut self, message: u32, begun: Begun, receiver: bool) {
        let (price, now) = (self.price(message), begun.at);
        let at = message as usize;
        if !price.rendezvous && receiver {
            return;
        }
        let half = self.half[at];
        self.half[at] =
            if half.at == UNKNOWN { begun } else { Begun { entered: half.entered.max(begun.entered), ..half } };
        let begun = match (price.rendezvous, half.at) {
            (false, _) if self.buffers.is_some() => return self.queue(message, now),
            (false, _) => now,
            (true, UNKNOWN) => return,
            (true, half) => {
                let of = self.graph.messages[at];
                let (last, first) = if receiver { (of.receiver, of.sender) } else { (of.sender, of.receiver) };
                let both = now.max(half);
                let (begun, mover) = self.next_in_call(self.graph.lane(first), both).unwrap_or((both, last));
                if let Some(moved) = self.movers.get_mut(at) {
                    *moved = if begun > both || now >= half { mover } else { first };
                }
                begun
            }
        };
        if price.engine == 0 && price.link == 0 {
            return self.settle(message, begun + price.trip);
        }
        self.serve(message, false, begun);
    }

    /// When a lane that computes at `now` is in a call again, and which. `None`: it need not be, or is in one.
    pub(super) fn next_in_call(&self, lane: usize, now: i64) -> Option<(i64, CallId)> {
        let Cursor { call, left, entered, inside, .. } = self.cursors[lane];
        let computes = !inside && entered > now && call > self.graph.lanes[lane].first && left < now;
        (self.conditions.progress == Progress::Calls && computes).then_some((entered, call))
    }

    /// Sets the end of a message, which is known from now on.
    pub(super) fn settle(&mut self, message: u32, over: i64) {
        let waits = std::mem::replace(&mut self.over[message as usize], over);
        if let Some(lane) = waiter(waits) {
            self.wake_all(lane);
        }
    }

    /// The hosts of the sender and of the receiver.
    pub(super) fn hosts(&self, message: u32) -> [usize; 2] {
        let message = self.graph.messages[message as usize];
        [message.sender, message.receiver].map(|call| self.graph.host(call))
    }

    /// The end of a message, and its lower bound. `None`: not begun; the lane is then woken when it has.
    pub(super) fn message(&mut self, place: usize, message: u32) -> Option<(i64, i64)> {
        let over = self.over[message as usize];
        if over < WAITS {
            // Both ends of a rendezvous may wait.
            self.cursors[place].next = waiter(over).unwrap_or(NO_LANE);
            self.over[message as usize] = waiting(place as u32);
            return None;
        }
        Some((over, self.half[message as usize].entered))
    }
}
