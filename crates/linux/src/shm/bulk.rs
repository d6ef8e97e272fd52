//! The byte ring beside the slots, for packets that do not fit in a slot.
//!
//! Both ends derive where a packet lies from the lengths alone: each starts at the next cache line, and one that would
//! cross the end starts over at the beginning. So nothing that a peer writes is ever used as an address.

use std::ptr::NonNull;

/// Records start on cache lines.
const LINE: usize = 64;

use crate::ring::Progress;
use crate::sync::Ordering;

/// A ring of `size` bytes, a power of two.
pub(super) struct Span {
    base: NonNull<u8>,
    size: u64,
}

// SAFETY: a span is a pointer and a size; who accesses the bytes is decided by the positions of the two ends.
unsafe impl Send for Span {}

impl Span {
    /// # Safety
    /// `base` is valid for `size` bytes while whoever holds this span lives.
    pub unsafe fn new(base: NonNull<u8>, size: usize) -> Self {
        assert!(size.is_power_of_two());
        Span { base, size: size as u64 }
    }

    /// Where a packet of `length` bytes goes that comes after `position`: its offset, and the position after it.
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
}

pub(super) struct BulkWriter {
    span: Span,
    position: u64,
    /// The reader's progress when last looked at.
    taken: u64,
}

impl BulkWriter {
    pub fn new(span: Span) -> Self {
        BulkWriter { span, position: 0, taken: 0 }
    }

    /// Offers `fill` the next `length` bytes; false where they are not free. `length` must be at most the span's size.
    #[inline(always)]
    pub fn write(&mut self, length: usize, progress: &Progress, fill: impl FnOnce(&mut [u8])) -> bool {
        let (offset, next) = self.span.place(self.position, length);
        if next - self.taken > self.span.size {
            let taken = progress.bulk.load(Ordering::Acquire);
            if taken <= self.position && taken > self.taken {
                self.taken = taken;
            }
            if next - self.taken > self.span.size {
                return false;
            }
        }
        // SAFETY: `place` keeps offset + length inside the span for every length up to its size; the bytes are free, so
        // an honest peer does not look at them until the slot is written.
        fill(unsafe { std::slice::from_raw_parts_mut(self.span.base.as_ptr().add(offset), length) });
        self.position = next;
        true
    }
}

pub(super) struct BulkReader {
    span: Span,
    position: u64,
    published: u64,
}

impl BulkReader {
    pub fn new(span: Span) -> Self {
        BulkReader { span, position: 0, published: 0 }
    }

    /// Hands `take` the next `length` bytes, which must be at most the span's size.
    #[inline(always)]
    pub fn read<R>(&mut self, length: usize, progress: &Progress, take: impl FnOnce(&[u8]) -> R) -> R {
        let (offset, next) = self.span.place(self.position, length);
        // SAFETY: `place` keeps offset + length inside the span for every length up to its size. An honest peer leaves
        // the bytes until we publish; one that does not is of our own user and could write to our memory anyway.
        let result = take(unsafe { std::slice::from_raw_parts(self.span.base.as_ptr().add(offset), length) });
        self.position = next;
        // Less than a quarter stays unpublished, so a writer never waits for a reader that has taken everything: a
        // packet and the skip before it need at most half.
        if self.position - self.published >= self.span.size / 4 {
            self.published = self.position;
            progress.bulk.store(self.position, Ordering::Release);
        }
        result
    }
}
