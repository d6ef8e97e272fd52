//! Multicast channels: one writer, many readers, one write.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use machine::channel::{Channel, Counted, Delivery, Loss, Sleeper, Specification, Synchronization, Written};
use machine::{Fault, Nanoseconds, Result};

use super::bells::{Armed, Both};
use super::held_end::HeldEnd;
use super::layout::MOST_READERS;
use super::passing::{self, State};
use super::refusals::{not_the_writer, over_size, polled};
use super::sleep::sleep_until;
use super::{lapping, track};
use linux::region::Region;

const WRITER: usize = 0;

/// The writing end of a multicast channel, held by its creator.
pub struct Writer {
    lane: Outlet,
    /// Seats of the readers that were alive at the last check.
    readers: Vec<usize>,
    size: usize,
    end: HeldEnd,
    bells: Both,
    specification: Specification,
    full: u64,
}

enum Outlet {
    Waiting(track::Outlet<Arc<Region>>),
    Lapping(lapping::Outlet<Arc<Region>>),
}

/// An end of a multicast channel that reads.
pub struct Reader {
    lane: Inlet,
    /// The first message that was meant for it.
    first: u64,
    end: HeldEnd,
    bells: Both,
    armed: Armed,
    specification: Specification,
}

enum Inlet {
    Waiting(track::Inlet<Arc<Region>>),
    Lapping(lapping::Inlet<Arc<Region>>),
}

impl Writer {
    /// # Safety
    /// Nothing else writes the channel.
    pub(super) unsafe fn at(end: HeldEnd, specification: Specification, state: &State, bells: Both) -> Writer {
        let (layout, region) = (end.layout(), end.region());
        // SAFETY: the caller's promise; all ends of a channel take its only direction for what its delivery says.
        let lane = unsafe {
            match specification.delivery {
                Delivery::Reliable => Outlet::Waiting(track::Outlet::new(layout.track(region, 0), state.written)),
                Delivery::Unreliable => Outlet::Lapping(lapping::Outlet::new(layout.lapping(region), state.written)),
            }
        };
        let mut writer = Writer {
            lane,
            readers: Vec::new(),
            size: specification.buffers.size.0 as usize,
            end,
            bells,
            specification,
            full: state.full,
        };
        writer.readers.extend(WRITER + 1..=MOST_READERS);
        writer.is_alone_now();
        writer
    }

    fn position(&self) -> u64 {
        match &self.lane {
            Outlet::Waiting(out) => out.position(),
            Outlet::Lapping(out) => out.position(),
        }
    }

    fn rouse(&self) {
        match &self.lane {
            Outlet::Waiting(out) => out.rouse(),
            Outlet::Lapping(out) => out.rouse(),
        }
        self.bells[WRITER].ring();
    }

    /// A new reader, which gets messages written from now on. It is for the offcode to be attached, or to be handed over.
    ///
    /// A fault where there are [`MOST_READERS`] already.
    pub fn attach(&mut self) -> Result<Reader> {
        self.is_alone_now();
        let free = (WRITER + 1..=MOST_READERS).filter(|end| !self.readers.contains(end));
        // A reader that just left may still hold its lock.
        let Some(end) =
            free.filter_map(|index| HeldEnd::take(self.end.region().clone(), *self.end.layout(), index).ok()).next()
        else {
            let cause = format!("all of its {MOST_READERS} seats are taken");
            return Err(Fault::new("reader of a multicast channel", cause, "end a reader, or open a second channel"));
        };
        let position = self.position();
        end.progress(end.index()).store(position, Ordering::Release);
        self.readers.push(end.index());
        self.is_alone_now();
        let state = State { read: position, first: position, ..State::default() };
        Ok(Reader::at(end, self.specification, &state, self.bells.clone()))
    }

    /// Number of living readers.
    pub fn readers(&self) -> usize {
        self.readers.iter().filter(|reader| self.end.is_live(**reader)).count()
    }

    /// Passes this end to the process at the other side of `stream`, which calls [`super::accept`]. On a fault this end
    /// is gone.
    pub fn hand_over(mut self, stream: &UnixStream) -> Result<()> {
        self.end.go_away();
        // Readers may sleep; from now on they must check periodically whether this end has died.
        self.rouse();
        let state = State { written: self.position(), full: self.full, ..State::default() };
        passing::hand_over(&mut self.end, &self.specification, &state, stream)
    }

    /// Drops the readers that are gone; says whether none is left.
    #[cold]
    fn is_alone_now(&mut self) -> bool {
        let (end, readers) = (&self.end, &mut self.readers);
        let departures = end.departures();
        let ask = end.should_ask();
        readers.retain(|reader| if ask { end.lives(*reader) } else { end.is_live(*reader) });
        // While no reader is left, the next write must check again.
        end.mark_shared(if readers.is_empty() { departures.wrapping_sub(1) } else { departures });
        readers.is_empty()
    }

    /// Tries once more, without the readers that died meanwhile.
    #[cold]
    fn without_room(&mut self, length: usize, fill: &mut dyn FnMut(&mut [u8])) -> Written {
        let before = self.readers.len();
        if self.is_alone_now() {
            return Written::Gone;
        }
        if let Outlet::Waiting(out) = &mut self.lane
            && self.readers.len() < before
            && out.has_room(|| slowest(&self.end, &self.readers, u64::MAX))
        {
            if out.write(length, self.end.sleepers(), fill) {
                self.bells[WRITER].ring();
            }
            return Written::Taken;
        }
        self.full += 1;
        Written::Full
    }

    #[inline(always)]
    fn send(&mut self, length: usize, mut fill: impl FnMut(&mut [u8])) -> Result<Written> {
        if length > self.size {
            return Err(over_size(length, &self.specification));
        }
        if self.end.has_news() && self.is_alone_now() {
            return Ok(Written::Gone);
        }
        let asleep = match &mut self.lane {
            Outlet::Waiting(out) => {
                let position = out.position();
                if !out.has_room(|| slowest(&self.end, &self.readers, position)) {
                    return Ok(self.without_room(length, &mut fill));
                }
                out.write(length, self.end.sleepers(), fill)
            }
            Outlet::Lapping(out) => {
                let asleep = out.write(length, self.end.sleepers(), self.end.progress(WRITER), fill);
                // A writer that never waits checks for dead readers only here.
                if out.is_round() {
                    self.is_alone_now();
                }
                asleep
            }
        };
        if asleep {
            self.bells[WRITER].ring();
        }
        Ok(Written::Taken)
    }
}

/// The progress of the slowest reader. One that claims more than was written counts as having taken all.
fn slowest(end: &HeldEnd, readers: &[usize], position: u64) -> u64 {
    readers.iter().map(|reader| end.progress(*reader).load(Ordering::Acquire)).fold(position, u64::min)
}

impl Channel for Writer {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    #[inline]
    fn write_with(&mut self, length: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<Written> {
        self.send(length, fill)
    }

    fn read_with(&mut self, _deliver: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(false)
    }

    fn poll(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn wait(&mut self, _limit: Nanoseconds) -> Result<bool> {
        Err(Fault::new("wait on a multicast channel", "this end writes: nothing comes", "wait at the readers"))
    }

    /// A writer receives nothing.
    fn arm(&mut self, _sleeper: &mut dyn Sleeper) -> bool {
        true
    }

    fn is_abandoned(&self) -> bool {
        let ask = self.end.should_ask();
        !self.readers.iter().any(|reader| if ask { self.end.lives(*reader) } else { self.end.is_live(*reader) })
    }

    fn counted(&self) -> Counted {
        Counted { written: self.position(), full: self.full, ..Counted::default() }
    }

    #[inline]
    fn write(&mut self, message: &[u8]) -> Result<Written> {
        self.send(message.len(), |into| into.copy_from_slice(message))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.end.stand_up();
        self.rouse();
    }
}

impl Reader {
    pub(super) fn at(end: HeldEnd, specification: Specification, state: &State, bells: Both) -> Reader {
        let (layout, region) = (end.layout(), end.region());
        let lane = match specification.delivery {
            Delivery::Reliable => {
                // SAFETY: no outlet is made; all ends of a channel take its direction for what its delivery says.
                let mut inlet = track::Inlet::new(unsafe { layout.track(region, 0) }, state.read);
                inlet.publish(end.progress(end.index()));
                Inlet::Waiting(inlet)
            }
            Delivery::Unreliable => {
                // SAFETY: as above.
                let track = unsafe { layout.lapping(region) };
                Inlet::Lapping(lapping::Inlet::new(track, state.read, state.dropped))
            }
        };
        Reader { lane, first: state.first, end, bells, armed: Armed::new(&specification), specification }
    }

    /// Passes this end, with what lies before it, to the process at the other side of `stream`, which calls
    /// [`super::accept`]. On a fault this end is gone.
    pub fn hand_over(mut self, stream: &UnixStream) -> Result<()> {
        self.end.go_away();
        let (read, dropped) = self.progress();
        let state = State { read, first: self.first, dropped, ..State::default() };
        passing::hand_over(&mut self.end, &self.specification, &state, stream)
    }

    fn progress(&self) -> (u64, u64) {
        match &self.lane {
            Inlet::Waiting(inlet) => (inlet.position(), 0),
            Inlet::Lapping(inlet) => (inlet.position(), inlet.dropped()),
        }
    }

    fn is_alone(&self) -> bool {
        !self.end.is_live(WRITER) || (self.end.should_ask() && !self.end.lives(WRITER))
    }
}

impl Channel for Reader {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn write_with(&mut self, _length: usize, _fill: &mut dyn FnMut(&mut [u8])) -> Result<Written> {
        Err(not_the_writer())
    }

    #[inline]
    fn read_with(&mut self, deliver: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let end = &self.end;
        Ok(match &mut self.lane {
            Inlet::Waiting(inlet) => inlet.read(|| end.progress(end.index()), deliver),
            Inlet::Lapping(inlet) => inlet.read(|| end.progress(WRITER), deliver),
        })
    }

    #[inline]
    fn poll(&mut self) -> Result<bool> {
        Ok(match &self.lane {
            Inlet::Waiting(inlet) => inlet.is_ready(),
            Inlet::Lapping(inlet) => inlet.is_ready(),
        })
    }

    fn wait(&mut self, limit: Nanoseconds) -> Result<bool> {
        if self.specification.synchronization == Synchronization::Poll {
            return Err(polled());
        }
        let is_alone = || self.is_alone();
        Ok(match &self.lane {
            Inlet::Waiting(inlet) => sleep_until(&self.end, inlet.word(), limit, || inlet.is_ready(), is_alone),
            Inlet::Lapping(inlet) => sleep_until(&self.end, inlet.word(), limit, || inlet.is_ready(), is_alone),
        })
    }

    fn arm(&mut self, sleeper: &mut dyn Sleeper) -> bool {
        let Reader { lane, end, bells, armed, .. } = self;
        match lane {
            Inlet::Waiting(inlet) => armed.arm(end, &bells[WRITER], inlet.word(), sleeper, || inlet.is_ready()),
            Inlet::Lapping(inlet) => armed.arm(end, &bells[WRITER], inlet.word(), sleeper, || inlet.is_ready()),
        }
    }

    fn is_abandoned(&self) -> bool {
        self.is_alone()
    }

    /// A message lost before it was read is counted when the reader finds a later one.
    fn loses(&self) -> Loss {
        Loss::Reader
    }

    fn counted(&self) -> Counted {
        let (position, dropped) = self.progress();
        let read = position.wrapping_sub(self.first).wrapping_sub(dropped);
        Counted { read, dropped, ..Counted::default() }
    }
}
