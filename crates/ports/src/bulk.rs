//! The byte ring beside the slots, for packets that do not fit in a slot.
//!
//! Both ends compute a packet's offset from the lengths alone: each starts at the next cache line, and one that would
//! cross the end starts at the beginning. So nothing that a peer writes is ever used as an address.
//!
//! The ring grows in place: the first lap after a growth uses only the new part, and the old part is used again once
//! the reader has passed the point of growth.

use std::ptr::NonNull;

use crate::ring::Progress;
use crate::sync::Ordering;
#[cfg(loom)]
use crate::sync::{Arc, UnsafeCell};

/// Records start on cache lines.
const LINE: usize = 64;
/// A packet takes at most this share of the ring. So a packet and the skip before it need at most half, and a writer
/// never waits for a reader that has taken everything: less than a quarter stays unpublished.
const SHARE: u64 = 4;

/// The least size after a growth: in smaller rings the two ends read each other's progress after every few packets.
const SECOND: u64 = 16 << 10;

/// A ring of `size` bytes, a power of two, with memory for one of `most`.
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Span {
    base: NonNull<u8>,
    size: u64,
    most: u64,
    /// One cell a line, by which a model sees accesses.
    #[cfg(loom)]
    lines: Arc<Vec<UnsafeCell<()>>>,
}

// SAFETY: a span is a pointer and sizes; who accesses the bytes is decided by the positions of the two ends.
unsafe impl Send for Span {}

impl Span {
    /// # Safety
    /// `base` is valid for `most` bytes while whoever holds this span lives.
    pub unsafe fn new(base: NonNull<u8>, first: usize, most: usize) -> Self {
        assert!(first.is_power_of_two() && most.is_power_of_two() && (SHARE as usize * LINE..=most).contains(&first));
        Span {
            base,
            size: first as u64,
            most: most as u64,
            #[cfg(loom)]
            lines: Arc::new((0..most / LINE).map(|_| UnsafeCell::new(())).collect()),
        }
    }

    /// The place of a packet of `length` bytes after `position`: its offset, and the position after it.
    #[inline(always)]
    fn place(&self, position: u64, length: usize) -> (usize, u64) {
        let length = (length as u64).next_multiple_of(LINE as u64);
        debug_assert!(length <= self.size);
        let offset = position & (self.size - 1);
        if offset + length <= self.size {
            (offset as usize, position + length)
        } else {
            (0, position - offset + self.size + length)
        }
    }

    /// Length of the longest packet that the ring takes at its present size.
    fn longest(&self) -> usize {
        (self.size / SHARE) as usize
    }

    /// Grows the ring to `to` bytes; returns the position from which both ends go on, the start of the new part.
    fn grow(&mut self, to: u64, position: u64) -> u64 {
        let new_part = self.size;
        self.size = to;
        position.next_multiple_of(to) + new_part
    }

    /// # Safety
    /// `offset + length` is at most `most`, and nobody else accesses these bytes as long as `fill` runs.
    #[inline(always)]
    unsafe fn write(&self, offset: usize, length: usize, fill: impl FnOnce(&mut [u8])) {
        #[cfg(loom)]
        for line in &self.lines[offset / LINE..(offset + length).div_ceil(LINE)] {
            line.with_mut(|_| ());
        }
        // SAFETY: the caller's promise; the bytes are valid by the contract of `new`.
        fill(unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(offset), length) });
    }

    /// # Safety
    /// `offset + length` is at most `most`, and whoever writes these bytes meanwhile is a process that need not be trusted:
    /// `take` is good for any of them.
    #[inline(always)]
    unsafe fn read<R>(&self, offset: usize, length: usize, take: impl FnOnce(&[u8]) -> R) -> R {
        #[cfg(loom)]
        for line in &self.lines[offset / LINE..(offset + length).div_ceil(LINE)] {
            line.with(|_| ());
        }
        // SAFETY: as in `write`.
        take(unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset), length) })
    }
}

/// A larger size for a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Growth {
    pub from: usize,
    pub to: usize,
    /// Whether the packet cannot fit in the present ring, even when the reader has taken everything.
    pub needed: bool,
}

pub(crate) struct BulkWriter {
    span: Span,
    position: u64,
    /// The reader's progress when last read.
    taken: u64,
    /// Position up to which the ring is free for certain.
    limit: u64,
    longest: usize,
}

impl BulkWriter {
    pub fn new(span: Span) -> Self {
        BulkWriter { position: 0, taken: 0, limit: span.size, longest: span.longest(), span }
    }

    /// Whether the next `length` bytes are free.
    #[inline(always)]
    pub fn has_room(&mut self, length: usize, progress: &Progress) -> bool {
        if length > self.longest {
            return false;
        }
        let (_, next) = self.span.place(self.position, length);
        next <= self.limit || self.look_for_room(next, progress)
    }

    #[inline]
    fn look_for_room(&mut self, next: u64, progress: &Progress) -> bool {
        let taken = progress.bulk.load(Ordering::Acquire);
        // A reader cannot have taken more than was written, nor give back what it took. Progress from before a growth
        // is less than `taken`, and ignored.
        if (self.taken..=self.position).contains(&taken) {
            self.taken = taken;
            self.limit = taken + self.span.size;
        }
        next <= self.limit
    }

    /// Passes the next `length` bytes to `fill`. Call only after [`BulkWriter::has_room`] said so.
    #[inline(always)]
    pub fn write(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) {
        debug_assert!(length <= self.longest);
        let (offset, next) = self.span.place(self.position, length);
        // SAFETY: `place` keeps offset + length inside the span for every length up to its size; the bytes are free, so
        // an honest peer does not look at them until the slot is written.
        unsafe { self.span.write(offset, length, fill) };
        self.position = next;
    }

    /// The growth for a packet of `length` bytes without room; `None` where the ring cannot grow.
    pub fn growth(&self, length: usize) -> Option<Growth> {
        let needed = length > self.longest;
        let to = (2 * self.span.size).max((SHARE * length as u64).next_power_of_two()).max(SECOND.min(self.span.most));
        let (from, to) = (self.span.size as usize, usize::try_from(to).ok()?);
        (to as u64 <= self.span.most).then_some(Growth { from, to, needed })
    }

    /// Goes on in a ring of `to` bytes. The reader must be told in order: after earlier packets, before later ones.
    pub fn grow(&mut self, to: usize) {
        let new_part = self.span.size;
        self.position = self.span.grow(to as u64, self.position);
        // The new part is free at once; the old one when the reader's progress gets here.
        self.taken = self.position;
        self.limit = self.position + (self.span.size - new_part);
        self.longest = self.span.longest();
    }
}

pub(crate) struct BulkReader {
    span: Span,
    position: u64,
    published: u64,
    mtu: usize,
    longest: usize,
}

impl BulkReader {
    /// A reader; no packet is longer than `mtu`, whatever the writer says.
    pub fn new(span: Span, mtu: usize) -> Self {
        BulkReader { position: 0, published: 0, mtu, longest: mtu.min(span.longest()), span }
    }

    /// Length of the longest packet that an honest writer sends now.
    #[inline(always)]
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Passes the next `length` bytes to `take`, at most [`BulkReader::longest`].
    #[inline(always)]
    pub fn read<R>(&mut self, length: usize, progress: &Progress, take: impl FnOnce(&[u8]) -> R) -> R {
        let (offset, next) = self.span.place(self.position, length);
        // SAFETY: `place` keeps offset + length inside the span for every length up to its size, and the mapping stays that
        // large, since its size is sealed. A peer may write there at any time: the bytes are plain, any value of them is
        // good, and who takes them reads each field of a header once, by value, and copies the rest
        // ([`machine::Port::receive`]).
        let result = unsafe { self.span.read(offset, length, take) };
        self.position = next;
        if self.position - self.published >= self.span.size / SHARE {
            self.publish(progress);
        }
        result
    }

    #[inline(always)]
    fn publish(&mut self, progress: &Progress) {
        self.published = self.position;
        progress.bulk.store(self.position, Ordering::Release);
    }

    /// Goes on in a ring of `to` bytes, where the writer did. False, with no change, where the ring cannot have that size.
    pub fn grow(&mut self, to: u64, progress: &Progress) -> bool {
        if !to.is_power_of_two() || to <= self.span.size || to > self.span.most {
            return false;
        }
        self.position = self.span.grow(to, self.position);
        self.publish(progress);
        self.longest = self.mtu.min(self.span.longest());
        true
    }
}
