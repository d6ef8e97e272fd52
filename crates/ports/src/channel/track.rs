//! One direction of a channel whose writer waits for its readers: slots of one cache line, and beside each a buffer for
//! messages that do not fit in the line.
//!
//! A message of up to [`INLINE`] bytes moves one line between the cores. Readers poll the next slot's own word; each publishes
//! its progress only every quarter of the ring, in a line that the writer reads only when its cached copy says full.
//!
//! Every end bounds whatever it reads: a peer that writes garbage garbles data and nothing else. A message's place
//! follows from its position, never from what a peer wrote; a length is read once and cut to the buffer.

use std::ptr::NonNull;

use super::word::{Word, written};
use crate::sync::{AtomicU64, Ordering, UnsafeCell};

/// Bytes of a message that fit in the slot itself.
pub(super) const INLINE: usize = 48;

/// A slot of one cache line.
#[repr(C, align(64))]
pub(super) struct Slot {
    word: Word,
    body: UnsafeCell<Body>,
}

#[repr(C, align(8))]
struct Body {
    length: u64,
    payload: [u8; INLINE],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 64);

/// The memory of one direction and its owner.
pub(super) struct Track<Owner> {
    slots: NonNull<Slot>,
    buffers: NonNull<u8>,
    stride: usize,
    /// Size of the largest message.
    size: usize,
    /// Slots - 1; the number of slots is a power of two.
    mask: u64,
    _owner: Owner,
}

// SAFETY: slots and buffers belong to one end at a time, which hands them over by the slot's word.
unsafe impl<Owner: Send> Send for Track<Owner> {}

impl<Owner> Track<Owner> {
    /// # Safety
    /// `slots` points to `count` zeroed or formerly used slots and `buffers` to `count` buffers of at least `size` bytes,
    /// `stride` bytes apart (none are needed where `size` is at most [`INLINE`]); all stay valid while `owner` lives, and
    /// there is one [`Outlet`] over them at a time.
    pub unsafe fn new(
        (slots, count): (NonNull<Slot>, usize),
        (buffers, stride): (NonNull<u8>, usize),
        size: usize,
        owner: Owner,
    ) -> Self {
        assert!(count.is_power_of_two() && count >= 4, "a ring has a power of two of slots, at least 4");
        assert!(stride >= size || size <= INLINE, "buffers do not overlap");
        Track { slots, buffers, stride, size, mask: count as u64 - 1, _owner: owner }
    }

    #[inline(always)]
    fn slot(&self, position: u64) -> &Slot {
        // SAFETY: the mask keeps the index under the number of slots, whatever the position.
        unsafe { self.slots.add((position & self.mask) as usize).as_ref() }
    }

    #[inline(always)]
    fn buffer(&self, position: u64) -> *mut u8 {
        self.buffers.as_ptr().wrapping_add((position & self.mask) as usize * self.stride)
    }
}

/// The end that writes.
pub(super) struct Outlet<Owner> {
    track: Track<Owner>,
    position: u64,
    /// Progress of the slowest reader when last read.
    taken: u64,
}

impl<Owner> Outlet<Owner> {
    /// An end that has written `position` messages.
    pub fn new(track: Track<Owner>, position: u64) -> Self {
        // Full until progress is read.
        let taken = position.saturating_sub(track.mask + 1);
        Outlet { track, position, taken }
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether a slot is free; `look` gives the progress of the slowest reader, and is called only where needed.
    #[inline(always)]
    pub fn has_room(&mut self, look: impl FnOnce() -> u64) -> bool {
        if self.position - self.taken <= self.track.mask {
            return true;
        }
        let taken = look();
        // No reader can have taken more than was written, nor give back what it took.
        if taken <= self.position && taken > self.taken {
            self.taken = taken;
        }
        self.position - self.taken <= self.track.mask
    }

    /// Writes the next message, of at most the track's size. Call only after [`Outlet::has_room`] said so. `sleepers`:
    /// see [`super::word::admit`]. Says whether a reader may sleep, whose bell must be rung.
    #[inline(always)]
    pub fn write(&mut self, length: usize, sleepers: &AtomicU64, fill: impl FnOnce(&mut [u8])) -> bool {
        debug_assert!(self.position - self.taken <= self.track.mask && length <= self.track.size);
        let slot = self.track.slot(self.position);
        slot.body.with_mut(|body| {
            // SAFETY: the slot and its buffer are free, so honest readers do not look at them; hostile ones may read
            // anything of a region they map. `length` is at most the size of the buffer or of the payload.
            let into = unsafe {
                (*body).length = length as u64;
                let start =
                    if length <= INLINE { (*body).payload.as_mut_ptr() } else { self.track.buffer(self.position) };
                std::slice::from_raw_parts_mut(start, length)
            };
            fill(into);
        });
        let asleep = slot.word.publish(written(self.position), sleepers);
        if asleep {
            slot.word.wake();
        }
        self.position += 1;
        asleep
    }

    /// Wakes sleeping readers for another reason than a message.
    pub fn rouse(&self) {
        let word = &self.track.slot(self.position).word;
        if word.unmark() {
            word.wake();
        }
    }
}

/// An end that reads.
pub(super) struct Inlet<Owner> {
    track: Track<Owner>,
    position: u64,
    published: u64,
}

impl<Owner> Inlet<Owner> {
    /// An end that has taken `position` messages, of which `published` are known to the writer.
    pub fn new(track: Track<Owner>, position: u64) -> Self {
        Inlet { track, position, published: position }
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    /// The word that changes with the next message.
    pub fn word(&self) -> &Word {
        &self.track.slot(self.position).word
    }

    /// Whether a message is there.
    #[inline(always)]
    pub fn is_ready(&self) -> bool {
        self.word().load() == written(self.position)
    }

    /// Passes the next message in place to `deliver`, if there is one; says whether there was. Progress is published in
    /// `progress` every quarter of the ring.
    #[inline(always)]
    pub fn read<'a>(&mut self, progress: impl FnOnce() -> &'a AtomicU64, deliver: impl FnOnce(&[u8])) -> bool {
        if !self.is_ready() {
            return false;
        }
        self.track.slot(self.position).body.with(|body| {
            // SAFETY: a word in a slot; it is read once.
            let length = unsafe { (&raw const (*body).length).read_volatile() };
            let length = (length as usize).min(self.track.size);
            if length > INLINE {
                // SAFETY: a buffer holds `size` bytes, of which this is no more. A writer that breaks the protocol may
                // write there at any time: the bytes are plain, any value of them is good, and who takes them reads what
                // it decides on once ([`machine::channel::Channel`]).
                return deliver(unsafe { std::slice::from_raw_parts(self.track.buffer(self.position), length) });
            }
            // A copy, since a hostile writer could change the bytes between a check and their use.
            let mut copy = [0; INLINE];
            for (at, word) in copy.chunks_exact_mut(8).enumerate() {
                // SAFETY: whole aligned words of the payload; a volatile read of plain bytes tolerates a hostile writer.
                let read = unsafe { (&raw const (*body).payload).cast::<u64>().add(at).read_volatile() };
                word.copy_from_slice(&read.to_ne_bytes());
            }
            deliver(&copy[..length]);
        });
        self.position += 1;
        if self.position - self.published > self.track.mask >> 2 {
            self.publish(progress());
        }
        true
    }

    #[inline(always)]
    pub fn publish(&mut self, progress: &AtomicU64) {
        self.published = self.position;
        progress.store(self.position, Ordering::Release);
    }
}

#[cfg(test)]
pub(super) mod heap {
    //! A track in the memory of one process, for tests and models.

    use super::*;
    use crate::sync::Arc;

    pub struct Heap {
        slots: Box<[Slot]>,
        buffers: Box<[UnsafeCell<[u8; 64]>]>,
    }

    // SAFETY: as for `Track`.
    unsafe impl Send for Heap {}
    // SAFETY: as for `Track`.
    unsafe impl Sync for Heap {}

    /// One outlet and `readers` inlets over `count` slots, for messages of up to `size` bytes: 64 at most.
    pub fn track(count: usize, size: usize, readers: usize) -> (Outlet<Arc<Heap>>, Vec<Inlet<Arc<Heap>>>) {
        assert!(size <= 64);
        let slot = |_| Slot { word: Word::new(), body: UnsafeCell::new(Body { length: 0, payload: [0; INLINE] }) };
        let buffer = |_| UnsafeCell::new([0; 64]);
        let heap = Arc::new(Heap { slots: (0..count).map(slot).collect(), buffers: (0..count).map(buffer).collect() });
        let track = || {
            let slots = NonNull::from(&heap.slots[..]).cast();
            let buffers = NonNull::from(&heap.buffers[..]).cast();
            let stride = size_of::<UnsafeCell<[u8; 64]>>();
            // SAFETY: boxes stay where they are while `heap` lives, which the track keeps; one outlet is made.
            unsafe { Track::new((slots, count), (buffers, stride), size, heap.clone()) }
        };
        (Outlet::new(track(), 0), (0..readers).map(|_| Inlet::new(track(), 0)).collect())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Write(usize),
        Read(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![(0usize..=64).prop_map(Step::Write), (0usize..2).prop_map(Step::Read)];
        proptest::collection::vec(step, 1..400)
    }

    proptest! {
        /// Two readers see the same bounded queue; the slower one determines the room.
        #[test]
        fn it_is_a_bounded_queue_for_each_reader(steps in steps()) {
            let (mut outlet, mut inlets) = heap::track(8, 64, 2);
            let progress = [AtomicU64::new(0), AtomicU64::new(0)];
            let mut models = [VecDeque::new(), VecDeque::new()];
            let mut number = 0u8;
            for step in steps {
                match step {
                    Step::Write(length) => {
                        let look = || progress.iter().map(|p| p.load(Ordering::Acquire)).min().unwrap();
                        let room = outlet.has_room(look);
                        let most = models.iter().map(VecDeque::len).max().unwrap();
                        // Progress is published every quarter, so that slots read since then may still count as full.
                        prop_assert!(if room { most < 8 } else { most > 6 }, "{} inside, room: {}", most, room);
                        if room {
                            outlet.write(length, &AtomicU64::new(u64::from(number % 2)), |into| into.fill(number));
                            models.iter_mut().for_each(|model| model.push_back((number, length)));
                            number = number.wrapping_add(1);
                        }
                    }
                    Step::Read(reader) => {
                        prop_assert_eq!(inlets[reader].is_ready(), !models[reader].is_empty());
                        let mut found = None;
                        let read = inlets[reader].read(|| &progress[reader], |message| {
                            let whole = message.iter().all(|byte| *byte == message[0]);
                            found = Some((message.first().copied(), message.len(), whole));
                        });
                        prop_assert_eq!(read, found.is_some());
                        let expected = models[reader].pop_front();
                        prop_assert_eq!(found, expected.map(|(n, length)| ((length > 0).then_some(n), length, true)));
                    }
                }
            }
        }
    }

    #[test]
    fn a_short_message_stays_what_it_is_while_it_is_read() {
        let (mut outlet, mut inlets) = heap::track(4, 64, 1);
        outlet.write(48, &AtomicU64::new(0), |into| into.fill(1));
        // The part that the writer can still reach.
        let slot = NonNull::from(outlet.track.slot(0));
        let progress = AtomicU64::new(0);
        let read = inlets[0].read(
            || &progress,
            |message| {
                // SAFETY: one thread, and no reference to the payload is in use.
                unsafe { slot.as_ref() }.body.with_mut(|body| unsafe { (*body).payload = [2; INLINE] });
                assert_eq!(message, [1; 48]);
            },
        );
        assert!(read);
    }

    #[test]
    fn garbage_in_the_memory_garbles_messages_and_nothing_else() {
        let (mut outlet, mut inlets) = heap::track(4, 64, 1);
        let inlet = &mut inlets[0];
        let progress = AtomicU64::new(0);
        outlet.write(8, &AtomicU64::new(0), |into| into.fill(1));
        inlet.track.slot(0).body.with_mut(|body| {
            // SAFETY: one thread.
            unsafe { (*body).length = u64::MAX }
        });
        assert!(inlet.read(|| &progress, |message| assert_eq!(message.len(), 64)));
        for nonsense in [u64::MAX, 1 << 60, 2] {
            inlet.track.slot(1).word.store(nonsense);
            assert!(!inlet.is_ready());
        }
        // A reader that claims unwritten messages, or goes back, makes no room.
        for _ in 0..3 {
            assert!(outlet.has_room(|| 0));
            outlet.write(1, &AtomicU64::new(0), |into| into.fill(1));
        }
        for claim in [u64::MAX, 5, 0] {
            assert!(!outlet.has_room(|| claim));
        }
        assert!(outlet.has_room(|| 1));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::sync::Arc;

    fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.max_branches = 20_000;
        builder.check(model);
    }

    fn receive(inlet: &mut Inlet<Arc<heap::Heap>>, progress: &AtomicU64, mut next: u8, end: u8) {
        while next < end {
            if !inlet.read(|| progress, |message| assert_eq!(message, [next; 9])) {
                loom::thread::yield_now();
                continue;
            }
            next += 1;
        }
    }

    /// Each message arrives once, whole and in order, over more than a lap, so that slots are used again.
    #[test]
    fn unicast_hands_slots_over() {
        check(3, || {
            let (mut outlet, mut inlets) = heap::track(4, 48, 1);
            let progress = Arc::new(AtomicU64::new(0));
            let taken = progress.clone();
            let sender = loom::thread::spawn(move || {
                for number in 0..6 {
                    while !outlet.has_room(|| taken.load(Ordering::Acquire)) {
                        loom::thread::yield_now();
                    }
                    outlet.write(9, &AtomicU64::new(0), |into| into.fill(number));
                }
            });
            receive(&mut inlets[0], &progress, 0, 6);
            sender.join().unwrap();
        });
    }

    /// A slot is used again only once both readers have read it, and freed by the death of the slower one.
    #[test]
    fn multicast_reclaims_what_every_living_reader_has_taken() {
        check(2, || {
            let (mut outlet, mut inlets) = heap::track(4, 48, 2);
            // Progress of each reader, and whether the second has died.
            let shared = Arc::new((AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)));
            for number in 0..4 {
                assert!(outlet.has_room(|| 0));
                outlet.write(9, &AtomicU64::new(0), |into| into.fill(number));
            }
            let (dies, mut stays) = (inlets.pop().unwrap(), inlets.pop().unwrap());
            receive(&mut stays, &shared.0, 0, 4);
            let readers = [(stays, 4), (dies, 0)].map(|(mut inlet, next)| {
                let shared = shared.clone();
                loom::thread::spawn(move || {
                    let progress = if next == 4 { &shared.0 } else { &shared.1 };
                    inlet.read(|| progress, |message| assert_eq!(message, [next; 9]));
                    if next == 0 {
                        // Marks the reader as gone, as `HeldEnd` does.
                        shared.2.store(1, Ordering::Release);
                    }
                    inlet
                })
            });
            let mut write = || {
                let slowest = || {
                    let gone = shared.2.load(Ordering::Acquire) == 1;
                    let (stays, dies) = (shared.0.load(Ordering::Acquire), shared.1.load(Ordering::Acquire));
                    if gone { stays } else { stays.min(dies) }
                };
                let room = outlet.has_room(slowest);
                if room {
                    outlet.write(9, &AtomicU64::new(0), |into| into.fill(4));
                }
                room
            };
            let written = write() || write();
            let [mut stays, _] = readers.map(|reader| reader.join().unwrap());
            assert!(written || write(), "a reader that died holds the writer up");
            if stays.position() == 4 {
                receive(&mut stays, &shared.0, 4, 5);
            }
        });
    }
}
