//! The layout of a channel's region. Both ends compute it from the specification; nothing that a peer writes is ever
//! used as an address.
//!
//! ```text
//!  page 0: Head | Ends, 256 B each | slots of direction 0 | buffers | slots of direction 1 | buffers
//! ```

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use machine::channel::Cast;
use machine::channel::Specification;
use machine::{Bytes, Fault, Result};

use super::lapping;
use super::track::{INLINE, Slot, Track};
use linux::region::Region;

const PAGE: usize = 4096;
const LINE: usize = 64;
/// Most readers of a multicast channel at a time.
pub const MOST_READERS: usize = 63;
/// Most bytes of one channel, all directions together.
const MOST_BYTES: usize = 1 << 30;

/// The part common to all ends.
#[repr(C, align(128))]
pub(super) struct Head {
    /// Number of ends that have left, in good order or found dead. Read with every write, and changed so rarely that it
    /// stays in each core's cache.
    pub departures: AtomicU64,
    /// 1 once an end was handed to another process: from then on one may die without saying so.
    pub away: AtomicU64,
    /// 1 once an end may sleep; writers read it with every write, beside the departures.
    pub sleepers: AtomicU64,
}

/// One end; its index in the region is that of its end.
#[repr(C)]
pub(super) struct End {
    pub progress: Line,
    pub state: Line,
}

/// A value on lines of its own, two of them because of the adjacent-line prefetcher.
#[repr(C, align(128))]
pub(super) struct Line(pub AtomicU64);

const _: () = assert!(size_of::<Slot>() == LINE && size_of::<Head>() <= PAGE && size_of::<End>() == 256);

/// The sizes of a channel's parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    count: usize,
    size: usize,
    stride: usize,
    /// Number of seats: two, or a writer and as many readers as there can be.
    pub seats: usize,
    directions: usize,
}

impl Layout {
    /// The layout of a channel; a fault names what is out of range. Every end can address an accepted layout.
    pub fn of(specification: &Specification) -> Result<Layout> {
        let refuse = |what: String, next: &str| Err(Fault::new("channel in shared memory", what, next));
        let buffers = &specification.buffers;
        let count = buffers.count as usize;
        if !count.is_power_of_two() || !(4..=1 << 16).contains(&count) {
            return refuse(format!("{count} buffers"), "ask for a power of two from 4 to 65536");
        }
        let size = usize::try_from(buffers.size.0).unwrap_or(usize::MAX);
        if !(1..=MOST_BYTES / 8).contains(&size) {
            return refuse(format!("buffers of {}", buffers.size), "ask for 1 B to 128 MiB");
        }
        let (seats, directions) = match specification.cast {
            Cast::Unicast => (2, 2),
            Cast::Multicast => (1 + MOST_READERS, 1),
        };
        let layout = Layout { count, size, stride: stride(size), seats, directions };
        if layout.length() > MOST_BYTES {
            let what = format!("{count} buffers of {} take {}", buffers.size, Bytes(layout.length() as u64));
            return refuse(what, "ask for fewer or smaller ones: 1 GiB in all");
        }
        Ok(layout)
    }

    fn slots_length(&self) -> usize {
        (self.count * LINE).next_multiple_of(PAGE)
    }

    fn direction_length(&self) -> usize {
        (self.slots_length() + self.count * self.stride).next_multiple_of(PAGE)
    }

    fn directions_start(&self) -> usize {
        PAGE + (self.seats * size_of::<End>()).next_multiple_of(PAGE)
    }

    /// Bytes of the region.
    pub fn length(&self) -> usize {
        self.directions_start() + self.directions * self.direction_length()
    }

    pub fn end<'a>(&self, region: &'a Region, end: usize) -> &'a End {
        assert!(region.len() == self.length() && end < self.seats);
        // SAFETY: `directions_start` leaves room for `seats` ends after the first page; atomics only, as above.
        unsafe { region.base().add(PAGE + end * size_of::<End>()).cast().as_ref() }
    }

    fn parts(&self, region: &Region, direction: usize) -> (NonNull<u8>, NonNull<u8>) {
        assert!(region.len() == self.length() && direction < self.directions);
        let start = self.directions_start() + direction * self.direction_length();
        // SAFETY: both offsets lie inside the region, by `length`.
        unsafe { (region.base().add(start), region.base().add(start + self.slots_length())) }
    }

    /// The only direction of an unreliable multicast channel.
    ///
    /// # Safety
    /// The direction is not used as a [`Track`] too.
    pub unsafe fn lapping(&self, region: &Arc<Region>) -> lapping::Track<Arc<Region>> {
        let (slots, buffers) = self.parts(region, 0);
        // SAFETY: as for `track`; a stride is whole lines.
        unsafe {
            lapping::Track::new(
                (slots.cast(), self.count),
                (buffers.cast(), self.stride / 8),
                self.size,
                region.clone(),
            )
        }
    }

    /// # Safety
    /// There is one outlet over each direction at a time; the direction is not used as a lapping one too.
    pub unsafe fn track(&self, region: &Arc<Region>, direction: usize) -> Track<Arc<Region>> {
        let (slots, buffers) = self.parts(region, direction);
        // SAFETY: `parts` are `count` slots, page aligned, and behind them `count` buffers of `stride` bytes, in the region
        // that the track keeps. The rest is the caller's promise.
        unsafe { Track::new((slots.cast(), self.count), (buffers, self.stride), self.size, region.clone()) }
    }
}

/// Distance of buffers: whole lines, and 0 where a message fits in its slot.
fn stride(size: usize) -> usize {
    if size <= INLINE { 0 } else { size.next_multiple_of(LINE) }
}
