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
    /// Chosen with `cargo bench -p linux --bench shm`: 64 slots stay in a first-level cache beside the application's data
    /// (256 cost 15 % of the 8 B latency and gained no rate); bulk rings of 256 KiB and packets of 8 KiB lost a quarter
    /// of the bandwidth, larger ones gained little.
    fn default() -> Self {
        Geometry { slots: 64, bulk: 1 << 20, mtu: (16 << 10) + 64 }
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

    /// The region of a link that carries packets one way.
    pub(super) fn one_way_length(&self) -> usize {
        self.direction()
    }
}

/// The control page of a direction. Producer and consumer write different lines.
#[repr(C)]
struct Control {
    progress: Progress,
    /// 1 once the producer's port was closed in good order.
    closed: Closed,
    /// 1 once the consumer's was.
    left: Closed,
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
        assert!(region.len() >= (number + 1) * geometry.direction() && number < 2);
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

/// The sending end of a region with one direction.
pub(super) fn outgoing(region: Region, geometry: &Geometry) -> Outgoing {
    let direction = Direction::of(&region, geometry, 0);
    // SAFETY: as in `ends`: `Progress` is the control page's first field, the memory keeps the region, and the process
    // that made the region makes its one writer.
    let memory = unsafe { Memory::new(direction.slots, geometry.slots, direction.control.cast(), Arc::new(region)) };
    // SAFETY: `Direction::of` leaves `bulk` bytes there, in the region that the slots keep.
    let span = unsafe { Span::new(direction.bulk, geometry.bulk) };
    Outgoing { slots: Writer::new(memory), bulk: BulkWriter::new(span), control: direction.control }
}

/// The receiving end of a region with one direction.
pub(super) fn incoming(region: Region, geometry: &Geometry) -> Incoming {
    let direction = Direction::of(&region, geometry, 0);
    // SAFETY: as above; the process that was passed the region makes its one reader.
    let memory = unsafe { Memory::new(direction.slots, geometry.slots, direction.control.cast(), Arc::new(region)) };
    // SAFETY: as above.
    let span = unsafe { Span::new(direction.bulk, geometry.bulk) };
    Incoming { slots: Reader::new(memory), bulk: BulkReader::new(span), control: direction.control, mtu: geometry.mtu }
}

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

    /// Whether nobody will take packets out any more.
    pub fn is_left(&self) -> bool {
        // SAFETY: valid while the region lives, which `slots` keeps.
        unsafe { self.control.as_ref() }.left.0.load(Ordering::Acquire) != 0
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

    /// Tells the peer that nobody will take packets out any more.
    pub fn leave(&self) {
        // SAFETY: valid while the region lives, which `slots` keeps.
        unsafe { self.control.as_ref() }.left.0.store(1, Ordering::Release);
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GEOMETRY: Geometry = Geometry { slots: 8, bulk: 4096, mtu: 1000 };

    #[derive(Debug, Clone)]
    enum Step {
        /// The hostile peer writes a word anywhere in the region.
        Scribble {
            at: usize,
            word: u64,
        },
        /// It writes a slot that looks next in line, with any tag.
        Forge {
            ahead: u64,
            tag: u16,
        },
        /// It claims any progress.
        Claim {
            slots: u64,
            bulk: u64,
        },
        Send(usize),
        Receive(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..GEOMETRY.region_length() / 8, any::<u64>()).prop_map(|(at, word)| Step::Scribble { at: at * 8, word }),
            (0u64..4, any::<u16>()).prop_map(|(ahead, tag)| Step::Forge { ahead, tag }),
            (prop_oneof![any::<u64>(), 0u64..64], prop_oneof![any::<u64>(), 0u64..100_000])
                .prop_map(|(slots, bulk)| Step::Claim { slots, bulk }),
            (0..=GEOMETRY.mtu).prop_map(Step::Send),
            (0usize..20).prop_map(Step::Receive),
        ];
        proptest::collection::vec(step, 1..200)
    }

    fn poke(region: &Region, at: usize, word: u64) {
        assert!(at.is_multiple_of(8) && at + 8 <= region.len());
        // SAFETY: in bounds and aligned, of a mapping that this test alone holds.
        unsafe { region.base().add(at).cast::<AtomicU64>().as_ref() }.store(word, Ordering::Relaxed);
    }

    proptest! {
        /// Whatever a peer writes, packets stay within the mtu, memory within the region, and nothing panics.
        #[test]
        fn a_hostile_peer_garbles_data_and_nothing_else(steps in steps()) {
            let region = Region::create("test", GEOMETRY.region_length()).unwrap();
            let theirs = Region::adopt(region.fd().try_clone_to_owned().unwrap(), region.len()).unwrap();
            let (mut outgoing, mut incoming) = ends(region, &GEOMETRY, true);
            let mut received = 0u64;
            for step in steps {
                match step {
                    Step::Scribble { at, word } => poke(&theirs, at, word),
                    Step::Forge { ahead, tag } => {
                        let position = received + ahead;
                        let slot = GEOMETRY.direction() + PAGE + (position as usize % GEOMETRY.slots) * 64;
                        poke(&theirs, slot, (position + 1) << 16 | u64::from(tag));
                    }
                    Step::Claim { slots, bulk } => {
                        poke(&theirs, 0, slots);
                        poke(&theirs, 8, bulk);
                    }
                    Step::Send(length) => {
                        outgoing.send(length, |into| {
                            assert_eq!(into.len(), length);
                            into.fill(1);
                        });
                    }
                    Step::Receive(budget) => {
                        let n = incoming.receive(budget, |packet| assert!(packet.len() <= GEOMETRY.mtu));
                        prop_assert!(n <= budget);
                        received += n as u64;
                    }
                }
                let _ = (incoming.is_closed(), incoming.is_drained());
            }
        }

        /// Two honest ends: every packet arrives whole and in order, and a drained ring has room for the largest one.
        #[test]
        fn packets_of_any_size_pass(lengths in proptest::collection::vec((0..=GEOMETRY.mtu, 0usize..5), 1..300)) {
            let region = Region::create("test", GEOMETRY.region_length()).unwrap();
            let theirs = Region::adopt(region.fd().try_clone_to_owned().unwrap(), region.len()).unwrap();
            let (mut outgoing, _) = ends(region, &GEOMETRY, true);
            let (_, mut incoming) = ends(theirs, &GEOMETRY, false);
            let mut waiting = std::collections::VecDeque::new();
            for (number, (length, budget)) in lengths.into_iter().enumerate() {
                let fill = |into: &mut [u8]| into.fill(number as u8);
                if !outgoing.send(length, fill) {
                    incoming.receive(usize::MAX, |packet| check(&mut waiting, packet));
                    prop_assert!(waiting.is_empty() && incoming.is_drained());
                    prop_assert!(outgoing.send(length, fill), "a drained ring takes any packet");
                }
                waiting.push_back((number as u8, length));
                incoming.receive(budget, |packet| check(&mut waiting, packet));
            }
        }
    }

    fn check(waiting: &mut std::collections::VecDeque<(u8, usize)>, packet: &[u8]) {
        let (byte, length) = waiting.pop_front().expect("a packet that was sent");
        assert!(packet.len() == length && packet.iter().all(|&b| b == byte));
    }

    #[test]
    fn figures_out_of_range_are_refused() {
        let good = Geometry::default();
        good.check().unwrap();
        for bad in [
            Geometry { slots: 0, ..good },
            Geometry { slots: 100, ..good },
            Geometry { slots: usize::MAX, ..good },
            Geometry { mtu: 8, ..good },
            Geometry { mtu: usize::MAX, ..good },
            Geometry { bulk: 1 << 14, ..good },
            Geometry { bulk: 3 << 20, ..good },
            Geometry { bulk: 1 << 63, ..good },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
