//! The memory that two peers share: for each direction control lines, a ring of slots and a bulk ring. The first part
//! of the bulk ring has memory from the start, the rest gets it with use.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use machine::bounds::{SHM_GROWN, SHM_LINK};
use machine::{Bytes, Fault, Result};

use crate::bulk::{Growth, Span};
use crate::packets::{PacketReader, PacketWriter};
use crate::ring::{Memory, PAYLOAD, Progress, Slot};
use linux::region::Mapping;

const PAGE: usize = 4096;
/// Bytes of the control lines and the padding behind them.
const CONTROL: usize = 2048;
/// First size of a bulk ring in bytes: with the control lines and 64 slots, two pages.
const FIRST: usize = 2048;
/// Most bytes by which the rings of all peers together grow just to keep senders from waiting.
pub(super) const MOST_GROWN: usize = SHM_GROWN.total.bytes().0 as usize;

/// Sizes of one direction, determined by the peer that creates the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Slots; a power of two from 4 to 65,536.
    pub slots: usize,
    /// Bytes that the bulk ring may grow to; a power of two from 4 times the mtu to 64 MiB.
    pub bulk: usize,
    /// Largest packet, up to 32 KiB.
    pub mtu: usize,
}

impl Default for Geometry {
    /// Chosen with `cargo bench -p ports --bench shm`: 64 slots stay in a first-level cache beside the application's
    /// data (256 cost 15 % of the 8 B latency and gained no rate); bulk rings of 256 KiB and packets of 8 KiB lost a
    /// quarter of the bandwidth, larger ones gained little.
    fn default() -> Self {
        Geometry { slots: 64, bulk: SHM_LINK.each.bytes().0 as usize, mtu: (16 << 10) + 64 }
    }
}

impl Geometry {
    /// A fault that names the figure out of range. Both ends can address an accepted geometry.
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

    /// Bytes from one direction's start to its bulk ring.
    fn head(&self) -> usize {
        CONTROL + self.slots * size_of::<Slot>()
    }

    /// Bytes from one direction's start to the next's.
    fn direction(&self) -> usize {
        (self.head() + self.bulk).next_multiple_of(PAGE)
    }

    pub(super) fn two_way_length(&self) -> usize {
        2 * self.direction()
    }

    /// Length of a link that carries packets one way.
    pub(super) fn one_way_length(&self) -> usize {
        self.direction()
    }

    /// Whether links of this geometry take no more memory and no larger packets than those of `ours`.
    pub(super) fn is_within(&self, ours: &Geometry) -> bool {
        self.slots <= ours.slots && self.bulk <= ours.bulk && self.mtu <= ours.mtu
    }
}

/// The control lines of a direction. Producer and consumer write different ones.
#[repr(C)]
struct Control {
    progress: Progress,
    /// 1 once the producer's port was closed in good order.
    closed: Closed,
    /// 1 once the consumer's port was closed in good order.
    left: Closed,
}

#[repr(C, align(128))]
struct Closed(AtomicU64);

const _: () = assert!(size_of::<Slot>() == 64 && size_of::<Control>() <= CONTROL);

/// One direction of a mapping that two processes share; its initial memory is there.
struct Direction {
    mapping: Arc<Mapping>,
    geometry: Geometry,
    start: usize,
}

impl Direction {
    /// A direction: `number` is 0 for packets of the creator, 1 for those of the other.
    fn of(mapping: &Arc<Mapping>, geometry: &Geometry, number: usize) -> Result<Direction> {
        assert!(mapping.len() >= (number + 1) * geometry.direction() && number < 2);
        let start = number * geometry.direction();
        mapping.provide(start..start + geometry.head() + FIRST)?;
        Ok(Direction { mapping: mapping.clone(), geometry: *geometry, start })
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.geometry.direction());
        // SAFETY: the direction lies inside the mapping, as `of` has asserted.
        unsafe { self.mapping.base().add(self.start + offset) }
    }

    fn control(&self) -> NonNull<Control> {
        self.at(0).cast()
    }

    fn slots(&self) -> Memory<Arc<Mapping>> {
        let (slots, control) = (self.at(CONTROL).cast(), self.control().cast::<Progress>());
        // SAFETY: `Progress` is the control lines' first field; the slots follow these and end before the bulk ring, all
        // aligned in a mapping that begins a page and that the memory keeps. Of the two processes one makes a direction's one
        // writer, the other its one reader.
        unsafe { Memory::new(slots, self.geometry.slots, control, self.mapping.clone()) }
    }

    fn span(&self) -> Span {
        // SAFETY: `Geometry::direction` leaves `bulk` bytes there, in the mapping that the slots of the same end keep.
        unsafe { Span::new(self.at(self.geometry.head()), FIRST, self.geometry.bulk) }
    }
}

/// The sending end. When it is dropped, the peer learns that no more packets come.
pub(super) struct Outgoing {
    packets: PacketWriter<Arc<Mapping>>,
    control: NonNull<Control>,
    mapping: Arc<Mapping>,
    /// Offset of the bulk ring in the mapping.
    bulk: usize,
    /// Bytes by which it has grown.
    grown: usize,
}

// SAFETY: the control lines are atomics only, and the mapping that holds them is kept.
unsafe impl Send for Outgoing {}

/// The receiving end. When it is dropped, the peer learns that no more packets are taken.
pub(super) struct Incoming {
    packets: PacketReader<Arc<Mapping>>,
    control: NonNull<Control>,
}

// SAFETY: as for `Outgoing`; `packets` keeps the mapping.
unsafe impl Send for Incoming {}

/// The sending end of memory with one direction.
pub(super) fn outgoing(mapping: Mapping, geometry: &Geometry) -> Result<Outgoing> {
    Ok(Outgoing::over(&Direction::of(&Arc::new(mapping), geometry, 0)?))
}

/// The receiving end of memory with one direction.
pub(super) fn incoming(mapping: Mapping, geometry: &Geometry) -> Result<Incoming> {
    Ok(Incoming::over(&Direction::of(&Arc::new(mapping), geometry, 0)?))
}

/// Both directions as the memory's creator (`true`) or the other peer sees them.
pub(super) fn ends(mapping: Mapping, geometry: &Geometry, creator: bool) -> Result<(Outgoing, Incoming)> {
    let mapping = Arc::new(mapping);
    let (out, back) = if creator { (0, 1) } else { (1, 0) };
    let out = Direction::of(&mapping, geometry, out)?;
    let back = Direction::of(&mapping, geometry, back)?;
    Ok((Outgoing::over(&out), Incoming::over(&back)))
}

impl Outgoing {
    fn over(direction: &Direction) -> Outgoing {
        Outgoing {
            packets: PacketWriter::new(direction.slots(), direction.span()),
            control: direction.control(),
            mapping: direction.mapping.clone(),
            bulk: direction.start + direction.geometry.head(),
            grown: 0,
        }
    }

    /// Sends a packet; false where the rings are full. `length` is at most the mtu. `grown`: growth of the rings of all peers.
    ///
    /// A fault where the packet needs memory that the kernel does not have.
    #[inline(always)]
    pub fn send(&mut self, length: usize, grown: &mut usize, fill: impl FnOnce(&mut [u8])) -> Result<bool> {
        let Outgoing { packets, mapping, bulk, grown: of_this, .. } = self;
        if length <= PAYLOAD {
            // Before the growth's parts are collected, which a short packet does not need.
            return Ok(packets.send_short(length, fill));
        }
        let provide = |Growth { from, to, needed }: Growth| {
            let more = to - from;
            if !needed && *grown + more > MOST_GROWN {
                return Ok(false);
            }
            match mapping.provide(*bulk + from..*bulk + to) {
                Err(fault) if needed => return Err(fault),
                Err(_) => return Ok(false),
                Ok(()) => {}
            }
            *of_this += more;
            *grown += more;
            Ok(true)
        };
        packets.send_long(length, provide, fill)
    }

    /// Bytes by which its bulk ring has grown.
    pub fn grown(&self) -> usize {
        self.grown
    }

    fn control(&self) -> &Control {
        // SAFETY: valid while the mapping lives, which this end keeps.
        unsafe { self.control.as_ref() }
    }

    /// Whether the consumer has left.
    pub fn is_left(&self) -> bool {
        self.control().left.0.load(Ordering::Acquire) != 0
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.control().closed.0.store(1, Ordering::Release);
    }
}

impl Incoming {
    fn over(direction: &Direction) -> Incoming {
        let packets = PacketReader::new(direction.slots(), direction.span(), direction.geometry.mtu);
        Incoming { packets, control: direction.control() }
    }

    /// Delivers at most `budget` packets; returns how many.
    #[inline(always)]
    pub fn receive(&mut self, budget: usize, deliver: impl FnMut(&[u8])) -> usize {
        self.packets.receive(budget, deliver)
    }

    /// Whether everything that was sent has been delivered.
    #[inline]
    pub fn is_drained(&self) -> bool {
        self.packets.is_drained()
    }

    fn control(&self) -> &Control {
        // SAFETY: valid while the mapping lives, which `packets` keeps.
        unsafe { self.control.as_ref() }
    }

    /// Whether the peer has said that no more packets come.
    pub fn is_closed(&self) -> bool {
        self.control().closed.0.load(Ordering::Acquire) != 0
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.control().left.0.store(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use proptest::prelude::*;

    use super::*;
    use crate::packets::GROWN;
    use linux::region;

    const GEOMETRY: Geometry = Geometry { slots: 8, bulk: 8192, mtu: 2000 };

    /// The same memory mapped twice, as by two processes.
    fn twice(length: usize) -> [Mapping; 2] {
        let fd = region::make("test", length).unwrap();
        [(); 2].map(|()| Mapping::sparse(fd.as_fd(), length).unwrap())
    }

    #[derive(Debug, Clone)]
    enum Step {
        /// The hostile peer writes a word anywhere in the region.
        Scribble {
            at: usize,
            word: u64,
        },
        /// The hostile peer writes a slot that looks next in line, with any tag; the payload begins with any size.
        Forge {
            ahead: u64,
            tag: u16,
            size: u64,
        },
        /// The hostile peer claims any progress.
        Claim {
            slots: u64,
            bulk: u64,
        },
        Send(usize),
        Receive(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..GEOMETRY.two_way_length() / 8, any::<u64>()).prop_map(|(at, word)| Step::Scribble { at: at * 8, word }),
            (
                0u64..4,
                prop_oneof![any::<u16>(), Just(GROWN)],
                prop_oneof![any::<u64>(), (0u32..64).prop_map(|n| 1u64 << n)]
            )
                .prop_map(|(ahead, tag, size)| Step::Forge { ahead, tag, size }),
            (prop_oneof![any::<u64>(), 0u64..64], prop_oneof![any::<u64>(), 0u64..100_000])
                .prop_map(|(slots, bulk)| Step::Claim { slots, bulk }),
            (0..=GEOMETRY.mtu).prop_map(Step::Send),
            (0usize..20).prop_map(Step::Receive),
        ];
        proptest::collection::vec(step, 1..200)
    }

    fn poke(mapping: &Mapping, at: usize, word: u64) {
        assert!(at.is_multiple_of(8) && at + 8 <= mapping.len());
        // SAFETY: in bounds and aligned, of a mapping that this test alone holds.
        unsafe { mapping.base().add(at).cast::<AtomicU64>().as_ref() }.store(word, Ordering::Relaxed);
    }

    proptest! {
        /// Whatever a peer writes, packets stay within the mtu, memory within the region, and nothing panics.
        #[test]
        fn a_hostile_peer_garbles_data_and_nothing_else(steps in steps()) {
            let [mine, theirs] = twice(GEOMETRY.two_way_length());
            let (mut outgoing, mut incoming) = ends(mine, &GEOMETRY, true).unwrap();
            let (mut received, mut grown) = (0u64, 0);
            for step in steps {
                match step {
                    Step::Scribble { at, word } => poke(&theirs, at, word),
                    Step::Forge { ahead, tag, size } => {
                        let position = received + ahead;
                        let slot = GEOMETRY.direction() + CONTROL + (position as usize % GEOMETRY.slots) * 64;
                        poke(&theirs, slot + 8, size);
                        poke(&theirs, slot, (position + 1) << 16 | u64::from(tag));
                    }
                    Step::Claim { slots, bulk } => {
                        poke(&theirs, 0, slots);
                        poke(&theirs, 8, bulk);
                    }
                    Step::Send(length) => {
                        let fill = |into: &mut [u8]| {
                            assert_eq!(into.len(), length);
                            into.fill(1);
                        };
                        outgoing.send(length, &mut grown, fill).unwrap();
                        prop_assert!(grown <= GEOMETRY.bulk - FIRST);
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
            let [mine, theirs] = twice(GEOMETRY.two_way_length());
            let (mut outgoing, _in) = ends(mine, &GEOMETRY, true).unwrap();
            let (_out, mut incoming) = ends(theirs, &GEOMETRY, false).unwrap();
            let mut grown = 0;
            let mut waiting = std::collections::VecDeque::new();
            for (number, (length, budget)) in lengths.into_iter().enumerate() {
                let fill = |into: &mut [u8]| into.fill(number as u8);
                if !outgoing.send(length, &mut grown, fill).unwrap() {
                    incoming.receive(usize::MAX, |packet| check(&mut waiting, packet));
                    prop_assert!(waiting.is_empty() && incoming.is_drained());
                    let sent = outgoing.send(length, &mut grown, fill).unwrap();
                    prop_assert!(sent, "a drained ring takes any packet");
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

    #[test]
    fn memory_comes_with_use_and_no_sooner() {
        let geometry = Geometry::default();
        let fd = region::make("test", geometry.one_way_length()).unwrap();
        let present = || rustix::fs::fstat(&fd).unwrap().st_blocks as usize * 512;
        let map = || Mapping::sparse(fd.as_fd(), geometry.one_way_length()).unwrap();
        let mut incoming = incoming(map(), &geometry).unwrap();
        let mut outgoing = outgoing(map(), &geometry).unwrap();
        let mut grown = 0;
        for length in [0, 8, 56, 57, 300, 512].into_iter().cycle().take(3000) {
            assert!(outgoing.send(length, &mut grown, |into| into.fill(1)).unwrap());
            assert_eq!(incoming.receive(1, |packet| assert_eq!(packet.len(), length)), 1);
        }
        assert_eq!((present(), grown), (2 * PAGE, 0), "short packets fit in two pages");
        assert!(outgoing.send(geometry.mtu, &mut grown, |into| into.fill(2)).unwrap());
        assert_eq!(grown, (128 << 10) - FIRST, "four of the longest packets");
        while outgoing.send(geometry.mtu, &mut grown, |into| into.fill(2)).unwrap() {}
        assert_eq!((grown, outgoing.grown()), (geometry.bulk - FIRST, grown));
        assert!(present() <= geometry.one_way_length());
        assert!(incoming.receive(usize::MAX, |packet| assert!(packet.iter().all(|&byte| byte == 2))) > 50);
        // Where other rings have used up the allowance, a ring grows as far as its packets need, and no further.
        let [mine, theirs] = twice(geometry.one_way_length());
        let (mut thrifty, _reader) =
            (super::outgoing(mine, &geometry).unwrap(), super::incoming(theirs, &geometry).unwrap());
        let mut taken = MOST_GROWN;
        while thrifty.send(geometry.mtu, &mut taken, |into| into.fill(3)).unwrap() {}
        assert_eq!(thrifty.grown(), (128 << 10) - FIRST);
    }
}
