//! Unicast channels: two ends, and a track in each direction.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use machine::channel::{Channel, Counted, Delivery, Sleeper, Specification, Synchronization, Written};
use machine::{Nanoseconds, Result};

use super::bells::{Armed, Both};
use super::held_end::HeldEnd;
use super::passing::{self, State};
use super::refusals::{over_size, polled};
use super::sleep::sleep_until;
use super::track::{Inlet, Outlet};
use linux::region::Region;

/// One end of a unicast channel.
pub struct Memory {
    out: Outlet<Arc<Region>>,
    inlet: Inlet<Arc<Region>>,
    size: usize,
    end: HeldEnd,
    bells: Both,
    armed: Armed,
    specification: Specification,
    dropped: u64,
    full: u64,
}

impl Memory {
    /// # Safety
    /// Nothing else writes the track of this end's direction, nor reads the other's.
    pub(super) unsafe fn at(end: HeldEnd, specification: Specification, state: &State, bells: Both) -> Memory {
        let (mine, theirs) = (end.index(), 1 - end.index());
        // SAFETY: the caller's promise; track n is written from end n.
        let (out, inlet) =
            unsafe { (end.layout().track(end.region(), mine), end.layout().track(end.region(), theirs)) };
        let mut inlet = Inlet::new(inlet, state.read);
        inlet.publish(end.progress(mine));
        Memory {
            out: Outlet::new(out, state.written),
            inlet,
            size: specification.buffers.size.0 as usize,
            end,
            bells,
            armed: Armed::new(&specification),
            specification,
            dropped: state.dropped,
            full: state.full,
        }
    }

    /// Passes this end, with what lies in it, to the process at the other side of `stream`, which calls
    /// [`super::accept`]. On a fault this end is gone.
    pub fn hand_over(mut self, stream: &UnixStream) -> Result<()> {
        self.end.go_away();
        // The other end may sleep; from now on it must check periodically whether this end has died.
        self.rouse();
        let (written, read) = (self.out.position(), self.inlet.position());
        let state = State { written, read, first: 0, dropped: self.dropped, full: self.full };
        passing::hand_over(&mut self.end, &self.specification, &state, stream)
    }

    #[cold]
    fn is_alone(&self) -> bool {
        let (end, other) = (&self.end, 1 - self.end.index());
        let departures = end.departures();
        let alone = !end.is_live(other) || (end.should_ask() && !end.lives(other));
        if !alone {
            end.mark_shared(departures);
        }
        alone
    }

    /// Wakes the other end where it sleeps.
    fn rouse(&self) {
        self.out.rouse();
        self.bells[self.end.index()].ring();
    }

    /// The result of a write without a free slot.
    #[cold]
    fn without_room(&mut self) -> Written {
        if self.is_alone() {
            return Written::Gone;
        }
        match self.specification.delivery {
            Delivery::Reliable => {
                self.full += 1;
                Written::Full
            }
            Delivery::Unreliable => {
                self.dropped += 1;
                Written::Dropped
            }
        }
    }

    #[inline(always)]
    fn send(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) -> Result<Written> {
        if length > self.size {
            return Err(over_size(length, &self.specification));
        }
        if self.end.has_news() && self.is_alone() {
            return Ok(Written::Gone);
        }
        let (end, out) = (&self.end, &mut self.out);
        if !out.has_room(|| end.progress(1 - end.index()).load(std::sync::atomic::Ordering::Acquire)) {
            return Ok(self.without_room());
        }
        if out.write(length, end.sleepers(), fill) {
            self.bells[end.index()].ring();
        }
        Ok(Written::Taken)
    }
}

impl Channel for Memory {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    #[inline]
    fn write_with(&mut self, length: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<Written> {
        self.send(length, |into| fill(into))
    }

    #[inline]
    fn read_with(&mut self, deliver: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let end = &self.end;
        Ok(self.inlet.read(|| end.progress(end.index()), |message| deliver(message)))
    }

    #[inline]
    fn poll(&mut self) -> Result<bool> {
        Ok(self.inlet.is_ready())
    }

    fn wait(&mut self, limit: Nanoseconds) -> Result<bool> {
        if self.specification.synchronization == Synchronization::Poll {
            return Err(polled());
        }
        let inlet = &self.inlet;
        Ok(sleep_until(&self.end, inlet.word(), limit, || inlet.is_ready(), || self.is_alone()))
    }

    fn arm(&mut self, sleeper: &mut dyn Sleeper) -> bool {
        let Memory { inlet, end, bells, armed, .. } = self;
        armed.arm(end, &bells[1 - end.index()], inlet.word(), sleeper, || inlet.is_ready())
    }

    fn is_abandoned(&self) -> bool {
        self.is_alone()
    }

    fn counted(&self) -> Counted {
        let (written, read) = (self.out.position(), self.inlet.position());
        Counted { written, read, dropped: self.dropped, full: self.full }
    }

    #[inline]
    fn write(&mut self, message: &[u8]) -> Result<Written> {
        self.send(message.len(), |into| into.copy_from_slice(message))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.end.stand_up();
        self.rouse();
    }
}
