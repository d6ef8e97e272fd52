//! One direction of a channel whose writer waits for its readers: slots of one cache line, and beside each a buffer for
//! what does not fit in the line.
//!
//! A message of up to [`INLINE`] bytes moves one line between the cores. Readers poll the next slot's own word; each
//! publishes its progress only every quarter of the ring, in a line that the writer reads only when its last copy of it
//! says full.
//!
//! Every end bounds whatever it reads: a peer that writes garbage garbles data and nothing else. Where a message lies
//! follows from its position, never from what a peer wrote; a length is read once and cut to the buffer.

use std::ptr::NonNull;

use super::word::{Word, written};
use crate::sync::{AtomicU64, Ordering, UnsafeCell};

/// Bytes that travel in the slot itself.
pub(super) const INLINE: usize = 48;

/// One line.
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

/// The memory of one direction and what keeps it.
pub(super) struct Track<Owner> {
    slots: NonNull<Slot>,
    buffers: NonNull<u8>,
    stride: usize,
    /// Largest message.
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
    /// What every reader had taken when last looked at.
    taken: u64,
}

impl<Owner> Outlet<Owner> {
    /// An end that has written `position` messages.
    pub fn new(track: Track<Owner>, position: u64) -> Self {
        // Full until looked at.
        let taken = position.saturating_sub(track.mask + 1);
        Outlet { track, position, taken }
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether a slot is free; `look` says what every reader has taken, and is asked only where that is needed.
    #[inline(always)]
    pub fn has_room(&mut self, look: impl FnOnce() -> u64) -> bool {
        if self.position - self.taken <= self.track.mask {
            return true;
        }
        let taken = look();
        // Nobody can have taken more than was written, nor give back what was taken.
        if taken <= self.position && taken > self.taken {
            self.taken = taken;
        }
        self.position - self.taken <= self.track.mask
    }

    /// Writes the next message. Call only after [`Outlet::has_room`] said so, with at most the track's size.
    #[inline(always)]
    pub fn write(&mut self, length: usize, sleepers: bool, fill: impl FnOnce(&mut [u8])) {
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
        if !sleepers {
            slot.word.store(written(self.position));
        } else if slot.word.exchange(written(self.position)) {
            slot.word.wake();
        }
        self.position += 1;
    }

    /// Wakes who sleeps until the next message, for another reason.
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

    /// Hands the next message to `deliver` where it lies, if there is one; says whether there was. What was taken is
    /// published in `progress`, every quarter of the ring.
    #[inline(always)]
    pub fn read<'a>(&mut self, progress: impl FnOnce() -> &'a AtomicU64, deliver: impl FnOnce(&[u8])) -> bool {
        if !self.is_ready() {
            return false;
        }
        self.track.slot(self.position).body.with(|body| {
            // SAFETY: the word said that the message is written, so an honest writer leaves slot and buffer until we
            // publish; one that does not is of our own user and could write to our memory anyway. The length is read
            // once and cut to what lies there.
            let message = unsafe {
                let length = ((&raw const (*body).length).read_volatile() as usize).min(self.track.size);
                let payload = (&raw const (*body).payload).cast::<u8>();
                let start = if length <= INLINE { payload } else { self.track.buffer(self.position).cast_const() };
                std::slice::from_raw_parts(start, length)
            };
            deliver(message);
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
