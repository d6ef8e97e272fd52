//! Packets of any size in the order sent: short ones in the slots of a [`ring`](crate::ring), longer ones in a bulk ring
//! beside, which grows with use.
//!
//! A bulk ring has addresses for its largest size from the start, and memory for its present size. The writer, which
//! alone decides, provides memory and then announces the new size in a slot between two packets; the reader switches to
//! it at that slot. So no packet is moved or overtaken, an end that dies in between leaves the other with the announced
//! size, and packets that fit in a slot are not affected.
//!
//! A reader accepts the announcement of a larger size within its addresses; any other is a packet of garbage.

use crate::bulk::{BulkReader, BulkWriter, Growth, Span};
use crate::ring::{Memory, PAYLOAD, Reader, Writer};

/// The tag of a slot that announces a size; no packet has this length.
pub(crate) const GROWN: u16 = u16::MAX;

/// The end that sends packets.
pub(crate) struct PacketWriter<Owner> {
    slots: Writer<Owner>,
    bulk: BulkWriter,
}

impl<Owner> PacketWriter<Owner> {
    pub fn new(slots: Memory<Owner>, span: Span) -> Self {
        PacketWriter { slots: Writer::new(slots), bulk: BulkWriter::new(span) }
    }

    /// Sends a packet of more than [`PAYLOAD`] bytes; false where the rings are full. `length` must fit in a bulk ring of the
    /// largest size. `provide` provides memory for a larger bulk ring; false where the ring must not grow.
    #[inline(always)]
    pub fn send_long<E>(
        &mut self,
        length: usize,
        provide: impl FnOnce(Growth) -> Result<bool, E>,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<bool, E> {
        if !self.slots.has_room() {
            return Ok(false);
        }
        if !self.bulk.has_room(length, self.slots.progress()) && !self.make_room(length, provide)? {
            return Ok(false);
        }
        self.bulk.write(length, fill);
        self.slots.write(length as u16, 0, |_| ());
        Ok(true)
    }

    /// Sends a packet of at most [`PAYLOAD`] bytes; false where the ring is full.
    #[inline(always)]
    pub fn send_short(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let has_room = self.slots.has_room();
        if has_room {
            self.slots.write(length as u16, length, fill);
        }
        has_room
    }

    /// Grows the bulk ring, which has no room while a slot is free.
    #[cold]
    #[inline(never)]
    fn make_room<E>(&mut self, length: usize, provide: impl FnOnce(Growth) -> Result<bool, E>) -> Result<bool, E> {
        let Some(growth) = self.bulk.growth(length) else { return Ok(false) };
        if !provide(growth)? {
            return Ok(false);
        }
        self.slots.write(GROWN, 8, |size| size.copy_from_slice(&(growth.to as u64).to_le_bytes()));
        self.bulk.grow(growth.to);
        // The announcement may have taken the last slot.
        Ok(self.slots.has_room() && self.bulk.has_room(length, self.slots.progress()))
    }
}

/// The end that receives packets.
pub(crate) struct PacketReader<Owner> {
    slots: Reader<Owner>,
    bulk: BulkReader,
}

impl<Owner> PacketReader<Owner> {
    pub fn new(slots: Memory<Owner>, span: Span, mtu: usize) -> Self {
        PacketReader { slots: Reader::new(slots), bulk: BulkReader::new(span, mtu) }
    }

    /// Delivers at most `budget` packets; returns how many.
    #[inline(always)]
    pub fn receive(&mut self, budget: usize, mut deliver: impl FnMut(&[u8])) -> usize {
        let mut delivered = 0;
        while delivered < budget {
            let Some((tag, slot)) = self.slots.peek() else { break };
            let length = usize::from(tag);
            if length <= PAYLOAD {
                slot.read(length, &mut deliver);
            } else if tag == GROWN && self.grow() {
                continue;
            } else {
                // A length above the longest comes from a hostile peer, which then gets its own garbage.
                let length = length.min(self.bulk.longest());
                self.bulk.read(length, self.slots.progress(), &mut deliver);
            }
            self.slots.advance();
            delivered += 1;
        }
        delivered
    }

    /// Follows the announcement in the next slot; false where it is invalid. Sizes only rise, so this happens a few
    /// times in a ring's life, whatever the peer writes.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> bool {
        let Some((_, slot)) = self.slots.peek() else { return false };
        let to = slot.read(8, |size| u64::from_le_bytes(std::array::from_fn(|i| size[i])));
        let grown = self.bulk.grow(to, self.slots.progress());
        if grown {
            self.slots.advance();
        }
        grown
    }

    /// Whether everything that was sent has been delivered.
    #[inline(always)]
    pub fn is_drained(&self) -> bool {
        self.slots.peek().is_none()
    }
}

/// Rings in this process.
#[cfg(test)]
mod heap {
    use std::ptr::NonNull;

    use super::*;
    use crate::ring::{self, Heap};
    use crate::sync::Arc;

    /// The bulk ring's bytes. Only the two ends access them, which the tests keep beside it.
    pub struct Bytes(NonNull<[u8]>);

    // SAFETY: who accesses the bytes is decided by the rings.
    unsafe impl Send for Bytes {}
    // SAFETY: as above.
    unsafe impl Sync for Bytes {}

    impl Drop for Bytes {
        fn drop(&mut self) {
            // SAFETY: of the box that `pair` took apart; the ends are dropped before.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }

    pub type Ends = (PacketWriter<Arc<Heap>>, PacketReader<Arc<Heap>>, Arc<Bytes>);

    impl<Owner> PacketWriter<Owner> {
        pub fn send<E>(
            &mut self,
            length: usize,
            provide: impl FnOnce(Growth) -> Result<bool, E>,
            fill: impl FnOnce(&mut [u8]),
        ) -> Result<bool, E> {
            if length <= PAYLOAD { Ok(self.send_short(length, fill)) } else { self.send_long(length, provide, fill) }
        }
    }

    pub fn pair(slots: usize, first: usize, most: usize, mtu: usize) -> Ends {
        let bytes = NonNull::new(Box::into_raw(vec![0; most].into_boxed_slice())).unwrap();
        // SAFETY: the tests drop the bytes after the ends.
        let span = unsafe { Span::new(bytes.cast(), first, most) };
        let [mine, theirs] = ring::memories(slots);
        (PacketWriter::new(mine, span.clone()), PacketReader::new(theirs, span, mtu), Arc::new(Bytes(bytes)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    const MTU: usize = 2000;

    fn check(waiting: &mut VecDeque<(u8, usize)>, packet: &[u8]) {
        let (byte, length) = waiting.pop_front().expect("a packet that was sent");
        assert!(packet.len() == length && packet.iter().all(|&b| b == byte));
    }

    proptest! {
        /// Whenever the ring grows, or is refused the memory: every packet arrives whole, once and in order.
        #[test]
        fn packets_keep_their_order_while_the_ring_grows(
            steps in proptest::collection::vec((0..=MTU, 0usize..6, any::<bool>()), 1..300)
        ) {
            let (mut writer, mut reader, _bytes) = heap::pair(16, 256, 8192, MTU);
            let mut waiting = VecDeque::new();
            let mut size = 256;
            for (number, (length, budget, thrifty)) in steps.into_iter().enumerate() {
                let mut provide = |growth: Growth| {
                    assert!(growth.from == size && growth.to > size && growth.to <= 8192, "{growth:?} of {size}");
                    if thrifty && !growth.needed {
                        return Ok(false);
                    }
                    size = growth.to;
                    Ok::<_, Infallible>(true)
                };
                let fill = |into: &mut [u8]| into.fill(number as u8);
                let Ok(mut sent) = writer.send(length, &mut provide, fill);
                if !sent {
                    reader.receive(usize::MAX, |packet| check(&mut waiting, packet));
                    prop_assert!(waiting.is_empty() && reader.is_drained());
                    Ok(sent) = writer.send(length, &mut provide, fill);
                    prop_assert!(sent, "a drained ring takes any packet");
                }
                waiting.push_back((number as u8, length));
                reader.receive(budget, |packet| check(&mut waiting, packet));
            }
            reader.receive(usize::MAX, |packet| check(&mut waiting, packet));
            prop_assert!(waiting.is_empty());
        }

        /// An announcement of any size keeps the reader within its memory.
        #[test]
        fn sizes_that_cannot_be_are_not_believed(sizes in proptest::collection::vec(prop_oneof![any::<u64>(), (0u32..64).prop_map(|n| 1u64 << n)], 1..40)) {
            let (mut writer, mut reader, _bytes) = heap::pair(16, 256, 8192, MTU);
            let mut believed = 256;
            for to in sizes {
                assert!(writer.slots.has_room());
                writer.slots.write(GROWN, 8, |size| size.copy_from_slice(&to.to_le_bytes()));
                let garbage = reader.receive(1, |packet| assert!(packet.len() <= MTU.min(believed as usize / 4)));
                let good = to.is_power_of_two() && to > believed && to <= 8192;
                prop_assert_eq!(garbage == 0, good);
                if good {
                    believed = to;
                }
            }
        }
    }

    #[test]
    fn what_fits_needs_no_more_memory() {
        let (mut writer, mut reader, _bytes) = heap::pair(64, 2048, 1 << 20, MTU);
        for round in 0..10_000usize {
            let never = |growth: Growth| -> Result<bool, ()> { panic!("{growth:?} in round {round}") };
            let length = [8, 56, 57, 512][round % 4];
            assert!(writer.send(length, never, |into| into.fill(round as u8)).unwrap());
            assert_eq!(reader.receive(2, |packet| assert_eq!(packet.len(), length)), 1);
        }
    }

    /// The writer dies between the announcement and its packet.
    #[test]
    fn an_announcement_without_a_packet_is_no_packet() {
        let (mut writer, mut reader, _bytes) = heap::pair(4, 256, 1024, 256);
        for _ in 0..3 {
            assert!(writer.send(8, |_| Ok::<_, ()>(true), |into| into.fill(1)).unwrap());
        }
        assert!(!writer.send(200, |_| Ok::<_, ()>(true), |_| panic!("no slot is left")).unwrap());
        drop(writer);
        assert_eq!(reader.receive(3, |packet| assert_eq!(packet, [1; 8])), 3);
        assert!(!reader.is_drained());
        assert_eq!(reader.receive(9, |_| panic!("nothing was sent")), 0);
        assert!(reader.is_drained());
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;

    /// Every interleaving with at most two preemptions: the ring grows while unread packets lie in it, and its old part
    /// is used again.
    #[test]
    fn the_ring_grows_ahead_of_its_reader() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            // Two lines of four; then a ring of eight, whose first lap has four. There are more slots, so that the
            // sender waits for lines.
            const LENGTHS: [usize; 6] = [60, 64, 100, 128, 70, 90];
            let (mut writer, mut reader, bytes) = heap::pair(8, 256, 512, 128);
            let kept = bytes.clone();
            let sender = loom::thread::spawn(move || {
                for (number, length) in LENGTHS.into_iter().enumerate() {
                    while !writer.send(length, |_| Ok::<_, ()>(true), |into| into.fill(number as u8)).unwrap() {
                        loom::thread::yield_now();
                    }
                }
                drop((writer, kept));
            });
            let mut next = 0;
            while next < LENGTHS.len() {
                let came = reader.receive(1, |packet| {
                    assert!(packet.len() == LENGTHS[next] && packet.iter().all(|&byte| byte == next as u8));
                    next += 1;
                });
                if came == 0 {
                    loom::thread::yield_now();
                }
            }
            sender.join().unwrap();
            drop((reader, bytes));
        });
    }
}
