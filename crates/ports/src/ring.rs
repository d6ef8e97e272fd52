//! A single-producer single-consumer ring of cache lines with the sequence in the slot.
//!
//! Each slot is one 64-byte line: an 8-byte word (sequence and tag) and 56 bytes of payload, so one line moves between
//! the cores per message. The consumer polls the next slot's own word; it publishes its progress only every quarter of
//! the ring, in a line of its own that the producer reads only when its cached copy says full.
//!
//! Both ends bound whatever they read: a peer that writes garbage garbles data and nothing else.

use std::ptr::NonNull;

use crate::sync::{Arc, AtomicU64, Ordering, UnsafeCell};

/// Payload bytes of a slot.
pub const PAYLOAD: usize = 56;

/// One line. The word is `(position + 1) << 16 | tag`, so zeroed memory is an empty ring and the sequence wraps safely.
#[repr(C, align(64))]
pub(crate) struct Slot {
    word: AtomicU64,
    payload: UnsafeCell<Payload>,
}

impl Slot {
    /// Passes the first `length` bytes of the payload to `take`, which may be any if the producer is hostile. Call only between
    /// [`Reader::peek`] and [`Reader::advance`].
    #[inline(always)]
    pub fn read<R>(&self, length: usize, take: impl FnOnce(&[u8]) -> R) -> R {
        // SAFETY: the slot's word said that it is written, so an honest producer leaves it until it is given back. A hostile one
        // may write there at any time: the bytes are plain, any value of them is good, and who takes them reads each field of a
        // header once, by value, and copies the rest ([`machine::Port::receive`]).
        self.payload.with(|payload| take(unsafe { &(&(*payload).0)[..length] }))
    }
}

#[repr(C, align(8))]
struct Payload([u8; PAYLOAD]);

/// The consumer's progress, in lines that only the consumer writes.
#[repr(C, align(128))]
pub(crate) struct Progress {
    /// Number of slots taken.
    pub slots: AtomicU64,
    /// Number of bytes taken from the bulk ring, where there is one.
    pub bulk: AtomicU64,
}

/// The memory of one ring and its owner.
pub(crate) struct Memory<Owner> {
    slots: NonNull<Slot>,
    progress: NonNull<Progress>,
    /// Slots - 1; the number of slots is a power of two.
    mask: u64,
    _owner: Owner,
}

// SAFETY: the slots are reached by one producer and one consumer only, which hand them over by the slot's word.
unsafe impl<Owner: Send> Send for Memory<Owner> {}

impl<Owner> Memory<Owner> {
    /// # Safety
    /// `slots` points to `count` zeroed or formerly used slots and `progress` to a progress line; both stay valid while
    /// `owner` lives, and at most one producer and one consumer are made over them.
    pub(crate) unsafe fn new(slots: NonNull<Slot>, count: usize, progress: NonNull<Progress>, owner: Owner) -> Self {
        assert!(count.is_power_of_two() && count >= 4, "a ring has a power of two of slots, at least 4");
        Memory { slots, progress, mask: count as u64 - 1, _owner: owner }
    }

    #[inline(always)]
    fn slot(&self, position: u64) -> &Slot {
        // SAFETY: the mask keeps the index under the number of slots, whatever the position.
        unsafe { self.slots.add((position & self.mask) as usize).as_ref() }
    }

    #[inline(always)]
    pub(crate) fn progress(&self) -> &Progress {
        // SAFETY: valid while the owner lives, by the contract of `new`.
        unsafe { self.progress.as_ref() }
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.mask + 1
    }
}

/// The end that writes slots.
pub(crate) struct Writer<Owner> {
    memory: Memory<Owner>,
    position: u64,
    /// Position up to which slots are free for certain.
    limit: u64,
}

impl<Owner> Writer<Owner> {
    pub fn new(memory: Memory<Owner>) -> Self {
        Writer { position: 0, limit: memory.capacity(), memory }
    }

    #[inline(always)]
    pub fn progress(&self) -> &Progress {
        self.memory.progress()
    }

    /// Whether a slot is free.
    #[inline(always)]
    pub fn has_room(&mut self) -> bool {
        self.position < self.limit || self.look_for_room()
    }

    #[cold]
    #[inline(never)]
    fn look_for_room(&mut self) -> bool {
        let taken = self.memory.progress().slots.load(Ordering::Acquire);
        // A consumer cannot have taken more than was written, nor give back what it took.
        if taken <= self.position {
            self.limit = self.limit.max(taken + self.memory.capacity());
        }
        self.position < self.limit
    }

    /// Writes the next slot, of whose payload `fill` gets the first `length` bytes. Call only after [`Writer::has_room`] said so.
    #[inline(always)]
    pub fn write(&mut self, tag: u16, length: usize, fill: impl FnOnce(&mut [u8])) {
        debug_assert!(self.position < self.limit);
        let slot = self.memory.slot(self.position);
        // SAFETY: the slot is free, so an honest consumer does not look at it; a hostile one may read anything of
        // a region it maps, and the bytes are plain data.
        fill(slot.payload.with_mut(|payload| unsafe { &mut (&mut (*payload).0)[..length] }));
        slot.word.store((self.position + 1) << 16 | u64::from(tag), Ordering::Release);
        self.position += 1;
    }
}

/// The end that reads slots.
pub(crate) struct Reader<Owner> {
    memory: Memory<Owner>,
    position: u64,
    /// Slots to take before the next is published.
    unpublished: u64,
}

impl<Owner> Reader<Owner> {
    pub fn new(memory: Memory<Owner>) -> Self {
        Reader { position: 0, unpublished: memory.capacity() / 4, memory }
    }

    #[inline(always)]
    pub fn progress(&self) -> &Progress {
        self.memory.progress()
    }

    /// The next slot and its tag, if it was written.
    #[inline(always)]
    pub fn peek(&self) -> Option<(u16, &Slot)> {
        let (position, slot) = (self.position, self.memory.slot(self.position));
        let word = slot.word.load(Ordering::Acquire);
        u16::try_from(word ^ ((position + 1) << 16)).ok().map(|tag| (tag, slot))
    }

    /// Gives the next slot back to the producer. Call only after [`Reader::peek`] found one.
    #[inline(always)]
    pub fn advance(&mut self) {
        self.position += 1;
        self.unpublished -= 1;
        if self.unpublished == 0 {
            self.unpublished = self.memory.capacity() / 4;
            self.memory.progress().slots.store(self.position, Ordering::Release);
        }
    }
}

/// A ring's memory in this process.
pub(crate) struct Heap {
    slots: Box<[Slot]>,
    progress: Box<Progress>,
}

// SAFETY: as for `Memory`: each slot is reached by one end at a time.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

/// Sends byte messages of at most [`PAYLOAD`] bytes to its [`Consumer`], in another thread.
pub struct Producer(Writer<Arc<Heap>>);

/// Receives the messages of its [`Producer`], in order.
pub struct Consumer(Reader<Arc<Heap>>);

/// A ring between two threads with room for `capacity` messages.
///
/// # Panics
/// Unless `capacity` is a power of two of at least 4.
pub fn pair(capacity: usize) -> (Producer, Consumer) {
    let [mine, theirs] = memories(capacity);
    (Producer(Writer::new(mine)), Consumer(Reader::new(theirs)))
}

/// The memory of one ring, once for each of its ends.
pub(crate) fn memories(capacity: usize) -> [Memory<Arc<Heap>>; 2] {
    let slot = |_| Slot { word: AtomicU64::new(0), payload: UnsafeCell::new(Payload([0; PAYLOAD])) };
    let heap = Arc::new(Heap {
        slots: (0..capacity).map(slot).collect(),
        progress: Box::new(Progress { slots: AtomicU64::new(0), bulk: AtomicU64::new(0) }),
    });
    [(); 2].map(|()| {
        let slots = NonNull::from(&heap.slots[..]).cast();
        // SAFETY: boxes stay where they are while `heap` lives, which the memory keeps; there is one for each end.
        unsafe { Memory::new(slots, capacity, NonNull::from(&*heap.progress), heap.clone()) }
    })
}

impl Producer {
    /// Sends one message of `length` bytes, which `fill` writes in place. False, and `fill` not called, where the ring
    /// is full.
    ///
    /// # Panics
    /// Where `length` is over [`PAYLOAD`].
    #[inline]
    pub fn try_push(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        assert!(length <= PAYLOAD, "a slot holds {PAYLOAD} bytes, not {length}");
        let room = self.0.has_room();
        if room {
            self.0.write(length as u16, length, fill);
        }
        room
    }
}

impl Consumer {
    /// Takes the next message, if there is one.
    #[inline]
    pub fn try_pop<R>(&mut self, take: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let (length, slot) = self.0.peek()?;
        let taken = slot.read(usize::from(length).min(PAYLOAD), take);
        self.0.advance();
        Some(taken)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_bounded_queue_of_messages(steps in proptest::collection::vec((any::<bool>(), 0usize..=PAYLOAD), 1..400)) {
            let (mut producer, mut consumer) = pair(8);
            let mut model = VecDeque::new();
            let mut number = 0u8;
            for (push, length) in steps {
                if push {
                    let pushed = producer.try_push(length, |into| into.fill(number));
                    // Progress is published every quarter, so that slots read since then may still count as full.
                    let agrees = if pushed { model.len() < 8 } else { model.len() > 6 };
                    prop_assert!(agrees, "{} inside, pushed: {}", model.len(), pushed);
                    if pushed {
                        model.push_back((number, length));
                        number = number.wrapping_add(1);
                    }
                } else {
                    let popped = consumer.try_pop(|m| (m.first().copied(), m.len(), m.iter().all(|b| *b == m[0])));
                    let expected = model.pop_front().map(|(n, length)| ((length > 0).then_some(n), length, true));
                    prop_assert_eq!(popped, expected);
                }
            }
        }
    }

    #[test]
    fn the_sequence_may_wrap() {
        let (mut producer, mut consumer) = pair(4);
        let near_the_end = (1 << 48) - 6;
        (producer.0.position, producer.0.limit) = (near_the_end, near_the_end + 4);
        consumer.0.position = near_the_end;
        for i in 0..20u8 {
            assert!(consumer.try_pop(|_| ()).is_none());
            assert!(producer.try_push(1, |into| into[0] = i));
            assert_eq!(consumer.try_pop(|m| m[0]), Some(i));
        }
    }

    #[test]
    fn a_message_over_the_payload_is_the_callers_error() {
        let (mut producer, _consumer) = pair(4);
        let push = std::panic::AssertUnwindSafe(|| producer.try_push(PAYLOAD + 1, |_| ()));
        assert!(std::panic::catch_unwind(push).is_err());
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;

    /// Every interleaving with at most three preemptions: each message arrives once, whole and in order, over more than
    /// a lap, so that slots are used again.
    #[test]
    fn ring_hands_slots_over() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            const MESSAGES: u8 = 6;
            let (mut producer, mut consumer) = pair(4);
            let sender = loom::thread::spawn(move || {
                for i in 0..MESSAGES {
                    while !producer.try_push(9, |into| into.fill(i)) {
                        loom::thread::yield_now();
                    }
                }
            });
            let mut next = 0;
            while next < MESSAGES {
                match consumer.try_pop(|m| m.to_vec()) {
                    Some(message) => {
                        assert_eq!(message, [next; 9]);
                        next += 1;
                    }
                    None => loom::thread::yield_now(),
                }
            }
            sender.join().unwrap();
        });
    }
}
