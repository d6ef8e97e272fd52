//! What two peers share: one region with a ring of slots and a bulk ring in each direction.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use machine::{Bytes, Fault, Result};

use super::bulk::{BulkReader, BulkWriter, Span};
use crate::region::Region;
use crate::ring::{Memory, PAYLOAD, Progress, Reader, Slot, Writer};

const PAGE: usize = 4096;

/// Sizes of one direction. The peer that creates the region decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Slots; a power of two from 4 to 65,536.
    pub slots: usize,
    /// Bytes of the bulk ring; a power of two from 4 times the mtu to 64 MiB.
    pub bulk: usize,
    /// Largest packet, up to 32 KiB.
    pub mtu: usize,
}

impl Default for Geometry {
    /// Chosen with `cargo bench -p linux --bench shm`: the slots of both directions stay in a first-level cache, the
    /// bulk rings in a second-level one.
    fn default() -> Self {
        Geometry { slots: 256, bulk: 256 << 10, mtu: (8 << 10) + 64 }
    }
}

impl Geometry {
    /// A fault that names the figure out of range. What this accepts, both ends can address.
    pub(super) fn check(&self) -> Result<()> {
        let refuse = |what: String, range: &str| {
            Err(Fault::new("shared-memory port", what, format!("the peer that creates it must choose {range}")))
        };
        if !self.slots.is_power_of_two() || !(4..=1 << 16).contains(&self.slots) {
            return refuse(format!("{} slots", self.slots), "a power of two from 4 to 65536");
        }
        if !(PAYLOAD..=32 << 10).contains(&self.mtu) {
            return refuse(format!("an mtu of {}", Bytes(self.mtu as u64)), "56 B to 32 KiB");
        }
        if !self.bulk.is_power_of_two() || !(PAGE.max(4 * self.mtu)..=64 << 20).contains(&self.bulk) {
            let what = format!("a bulk ring of {} for an mtu of {}", Bytes(self.bulk as u64), Bytes(self.mtu as u64));
            return refuse(what, "a power of two from 4 mtu to 64 MiB");
        }
        Ok(())
    }

    /// Bytes from one direction's start to the next's.
    fn direction(&self) -> usize {
        PAGE + (self.slots * size_of::<Slot>()).next_multiple_of(PAGE) + self.bulk
    }

    pub(super) fn region_length(&self) -> usize {
        2 * self.direction()
    }
}

/// The control page of a direction. Producer and consumer write different lines.
#[repr(C)]
struct Control {
    progress: Progress,
    /// 1 once the producer's port was closed in good order.
    closed: Closed,
}

#[repr(C, align(128))]
struct Closed(AtomicU64);

const _: () = assert!(size_of::<Slot>() == 64 && size_of::<Control>() <= PAGE);

/// Pointers to one direction's parts; valid while the region lives.
struct Direction {
    control: NonNull<Control>,
    slots: NonNull<Slot>,
    bulk: NonNull<u8>,
}

impl Direction {
    /// `number` is 0 for packets of the region's creator, 1 for those of the other.
    fn of(region: &Region, geometry: &Geometry, number: usize) -> Direction {
        assert!(region.len() >= geometry.region_length() && number < 2);
        let slots_end = PAGE + (geometry.slots * size_of::<Slot>()).next_multiple_of(PAGE);
        // SAFETY: all three offsets lie inside the region, as asserted, and are page aligned like its base.
        unsafe {
            let base = region.base().add(number * geometry.direction());
            Direction { control: base.cast(), slots: base.add(PAGE).cast(), bulk: base.add(slots_end) }
        }
    }
}

/// The end that sends packets.
pub(super) struct Outgoing {
    slots: Writer<Arc<Region>>,
    bulk: BulkWriter,
    control: NonNull<Control>,
}

// SAFETY: the control page is atomics only, and the region that holds it is kept by `slots`.
unsafe impl Send for Outgoing {}

/// The end that receives packets.
pub(super) struct Incoming {
    slots: Reader<Arc<Region>>,
    bulk: BulkReader,
    control: NonNull<Control>,
    mtu: usize,
}

// SAFETY: as for `Outgoing`.
unsafe impl Send for Incoming {}

/// Both directions of `region` as its creator (`true`) or the other peer sees them.
pub(super) fn ends(region: Region, geometry: &Geometry, creator: bool) -> (Outgoing, Incoming) {
    let region = Arc::new(region);
    let (out, back) = if creator { (0, 1) } else { (1, 0) };
    let memory = |direction: &Direction| {
        // SAFETY: `Progress` is the control page's first field; the region outlives the memory, which keeps it. Each
        // process makes one writer for its direction out and one reader for the other.
        unsafe { Memory::new(direction.slots, geometry.slots, direction.control.cast::<Progress>(), region.clone()) }
    };
    // SAFETY: `Direction::of` leaves `bulk` bytes there, in the region that the slots of the same end keep.
    let span = |direction: &Direction| unsafe { Span::new(direction.bulk, geometry.bulk) };
    let out = Direction::of(&region, geometry, out);
    let back = Direction::of(&region, geometry, back);
    (
        Outgoing { slots: Writer::new(memory(&out)), bulk: BulkWriter::new(span(&out)), control: out.control },
        Incoming {
            slots: Reader::new(memory(&back)),
            bulk: BulkReader::new(span(&back)),
            control: back.control,
            mtu: geometry.mtu,
        },
    )
}

impl Outgoing {
    /// False where the rings are full. `length` is at most the mtu.
    #[inline(always)]
    pub fn send(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        if !self.slots.has_room() {
            return false;
        }
        if length <= PAYLOAD {
            self.slots.write(length as u16, |payload| fill(&mut payload[..length]));
            return true;
        }
        if !self.bulk.write(length, self.slots.progress(), fill) {
            return false;
        }
        self.slots.write(length as u16, |_| ());
        true
    }

    /// Tells the peer that no more packets come.
    pub fn close(&self) {
        // SAFETY: valid while the region lives, which `slots` keeps.
        unsafe { self.control.as_ref() }.closed.0.store(1, Ordering::Release);
    }
}

impl Incoming {
    /// Delivers at most `budget` packets; returns how many.
    #[inline(always)]
    pub fn receive(&mut self, budget: usize, mut deliver: impl FnMut(&[u8])) -> usize {
        let mut delivered = 0;
        while delivered < budget {
            let Some(length) = self.slots.peek() else { break };
            let length = usize::from(length);
            if length <= PAYLOAD {
                let payload = self.slots.payload();
                self.slots.advance();
                deliver(&payload[..length]);
            } else {
                // A length over the mtu is a hostile peer's; what it gets read then is its own garbage.
                let length = length.min(self.mtu);
                self.bulk.read(length, self.slots.progress(), &mut deliver);
                self.slots.advance();
            }
            delivered += 1;
        }
        delivered
    }

    /// Whether everything that was sent has been delivered.
    pub fn is_drained(&self) -> bool {
        self.slots.peek().is_none()
    }

    /// Whether the peer has said that no more packets come.
    pub fn is_closed(&self) -> bool {
        // SAFETY: valid while the region lives, which `slots` keeps.
        unsafe { self.control.as_ref() }.closed.0.load(Ordering::Acquire) != 0
    }
}
