//! Buffers that are owned, handed from thread to thread and given back: a size-class allocator over one arena.
//!
//! Free blocks lie in one list per power of two, each behind its own lock that is held for a push or a pop only.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};

use machine::{Bytes, Fault, Result};
use rustix::mm::{MapFlags, ProtFlags};

use crate::region::Region;

/// Alignment of every buffer: a cache line.
pub const LINE: usize = 64;
const PAGE: usize = 4096;
/// Private memory is fetched from the kernel in pieces of at least this size.
const CHUNK: usize = 2 << 20;
const SMALLEST: u32 = LINE.trailing_zeros();
/// 64 B, 128 B, ... 64 GiB.
const CLASSES: usize = 31;

/// A source of [`Buffer`]s. Clones are handles to the same arena; it lives until its last buffer is dropped.
#[derive(Clone)]
pub struct Arena {
    inner: Arc<Inner>,
}

struct Inner {
    free: [Mutex<Vec<NonNull<u8>>>; CLASSES],
    supply: Mutex<Supply>,
}

// SAFETY: the pointers in the lists are to blocks that nobody else holds; the locks hand them to one thread at a time.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// Where fresh blocks come from.
struct Supply {
    /// Addresses not yet cut into blocks.
    uncut: Range<usize>,
    /// Bytes that may still be fetched from the kernel; 0 over a region.
    grow: usize,
    /// Private mappings to release at the end.
    chunks: Vec<(NonNull<u8>, usize)>,
    /// Keeps the region mapped.
    _region: Option<Arc<Region>>,
    total: usize,
}

impl Arena {
    /// An arena over private memory that grows to at most `limit` bytes. Nothing is fetched before it is needed.
    pub fn private(limit: Bytes) -> Arena {
        let limit = usize::try_from(limit.0).unwrap_or(usize::MAX);
        Self::over(Supply { uncut: 0..0, grow: limit, chunks: Vec::new(), _region: None, total: limit })
    }

    /// An arena over `span` of a shared region. Nothing else may use that span while the arena lives.
    ///
    /// A fault where the span does not lie inside the region.
    pub fn shared(region: Arc<Region>, span: Range<usize>) -> Result<Arena> {
        if span.start > span.end || span.end > region.len() {
            return Err(Fault::new(
                format!("bytes {}..{} of shared memory", span.start, span.end),
                format!("the region has {}", region.len()),
                "name a span inside the region",
            ));
        }
        let base = region.base().as_ptr() as usize;
        let uncut = base + span.start..base + span.end;
        Ok(Self::over(Supply { total: uncut.len(), uncut, grow: 0, chunks: Vec::new(), _region: Some(region) }))
    }

    fn over(supply: Supply) -> Arena {
        let free = std::array::from_fn(|_| Mutex::new(Vec::new()));
        Arena { inner: Arc::new(Inner { free, supply: Mutex::new(supply) }) }
    }

    /// A buffer of `length` bytes; its content is whatever its last user left, zeros at first. Aligned to a cache
    /// line, from 4 KiB on to a page.
    ///
    /// A fault where the arena's limit or the system's memory is reached.
    #[inline]
    pub fn allocate(&self, length: usize) -> Result<Buffer> {
        let class = class_of(length);
        let reused = if class < CLASSES { locked(&self.inner.free[class]).pop() } else { None };
        let base = match reused {
            Some(base) => base,
            None => self.inner.fresh(class, length)?,
        };
        Ok(Buffer { base, length, capacity: size_of_class(class), arena: self.inner.clone() })
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("total", &locked(&self.inner.supply).total).finish_non_exhaustive()
    }
}

#[inline]
fn class_of(length: usize) -> usize {
    let bits = usize::BITS - length.saturating_sub(1).leading_zeros();
    (bits.max(SMALLEST) - SMALLEST) as usize
}

#[inline]
fn size_of_class(class: usize) -> usize {
    LINE << class
}

/// A panic elsewhere cannot leave a list half changed, so its lock is never poisoned in earnest.
#[inline]
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Inner {
    #[cold]
    fn fresh(&self, class: usize, length: usize) -> Result<NonNull<u8>> {
        let mut supply = locked(&self.supply);
        let full = |supply: &Supply| {
            Fault::new(
                format!("buffer of {}", Bytes(length as u64)),
                format!("the arena of {} is used up", Bytes(supply.total as u64)),
                "raise the arena's limit, or keep fewer messages outstanding",
            )
        };
        if class >= CLASSES {
            return Err(full(&supply));
        }
        let size = size_of_class(class);
        if let Some(block) = cut(&mut supply.uncut, size) {
            return Ok(block);
        }
        let wanted = size.max(CHUNK);
        let chunk = if wanted <= supply.grow { wanted } else { size };
        if chunk > supply.grow {
            return Err(full(&supply));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh private mapping at an address of the kernel's choice aliases nothing of ours.
        let base = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), chunk, protection, MapFlags::PRIVATE | MapFlags::NORESERVE)
        };
        let base = base.map_err(|e| {
            Fault::because(format!("buffer of {}", Bytes(length as u64)), e, "free memory, or lower the arena's limit")
        })?;
        let base: NonNull<u8> = NonNull::new(base.cast()).expect("the kernel maps nothing at 0 unasked");
        supply.grow -= chunk;
        supply.chunks.push((base, chunk));
        let start = base.as_ptr() as usize;
        // The longer of the two remainders goes on being cut; the other is given up.
        let rest = start + size..start + chunk;
        if rest.len() > supply.uncut.len() {
            supply.uncut = rest;
        }
        Ok(base)
    }
}

/// Takes an aligned block of `size` from the front of `span`.
fn cut(span: &mut Range<usize>, size: usize) -> Option<NonNull<u8>> {
    let alignment = if size < PAGE { LINE } else { PAGE };
    let start = span.start.checked_next_multiple_of(alignment)?;
    let end = start.checked_add(size)?;
    if end > span.end {
        return None;
    }
    span.start = end;
    NonNull::new(std::ptr::with_exposed_provenance_mut(start))
}

impl Drop for Inner {
    fn drop(&mut self) {
        let supply = self.supply.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        for (base, length) in supply.chunks.drain(..) {
            // SAFETY: our own mapping; every buffer holds the arena, so none is left that points into it.
            let _ = unsafe { rustix::mm::munmap(base.as_ptr().cast(), length) };
        }
    }
}

/// Bytes that belong to whoever holds this, in whichever thread; dropped, they return to their arena.
pub struct Buffer {
    base: NonNull<u8>,
    length: usize,
    capacity: usize,
    arena: Arc<Inner>,
}

// SAFETY: a buffer is the only holder of its block, like a Box.
unsafe impl Send for Buffer {}
// SAFETY: `&Buffer` only reads.
unsafe impl Sync for Buffer {}

impl Buffer {
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The most that [`Buffer::resize`] takes.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Where the bytes lie in this process, for a peer's `read_remote`.
    #[inline]
    pub fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// Forgets the bytes from `length` on; no effect on a shorter buffer.
    #[inline]
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Sets the length; bytes that come in hold old content.
    ///
    /// # Panics
    /// Where `length` is over the capacity.
    #[inline]
    pub fn resize(&mut self, length: usize) {
        assert!(length <= self.capacity, "a buffer of {} bytes cannot hold {length}", self.capacity);
        self.length = length;
    }
}

impl AsRef<[u8]> for Buffer {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `length` <= `capacity` bytes from `base` are ours alone and were initialized by the kernel.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.length) }
    }
}

impl AsMut<[u8]> for Buffer {
    #[inline]
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_ref`; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.length) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("length", &self.length).field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        locked(&self.arena.free[class_of(self.capacity)]).push(self.base);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn classes_hold_what_is_asked() {
        for (length, capacity) in
            [(0, 64), (1, 64), (64, 64), (65, 128), (4096, 4096), (4097, 8192), (1 << 20, 1 << 20)]
        {
            assert_eq!(size_of_class(class_of(length)), capacity, "{length}");
        }
        assert!(class_of(usize::MAX) >= CLASSES);
    }

    #[test]
    fn a_dropped_buffer_is_used_again() {
        let arena = Arena::private(Bytes(1 << 20));
        let first = arena.allocate(100).unwrap();
        let address = first.address();
        let second = arena.allocate(100).unwrap();
        assert_ne!(second.address(), address);
        drop(first);
        assert_eq!(arena.allocate(128).unwrap().address(), address);
    }

    #[test]
    fn buffers_return_from_another_thread_and_outlive_the_arena() {
        let arena = Arena::private(Bytes(1 << 16));
        let mut buffer = arena.allocate(60_000).unwrap();
        buffer.as_mut().fill(9);
        let address = buffer.address();
        std::thread::spawn(move || assert!(buffer.as_ref().iter().all(|&b| b == 9))).join().unwrap();
        let again = arena.allocate(60_000).unwrap();
        assert_eq!(again.address(), address);
        drop(arena);
        assert!(again.as_ref().iter().all(|&b| b == 9));
    }

    #[test]
    fn the_limit_is_said_and_giving_back_helps() {
        let arena = Arena::private(Bytes(3 << 20));
        let held: Vec<_> = (0..3).map(|_| arena.allocate(1 << 20).unwrap()).collect();
        let fault = arena.allocate(1 << 20).unwrap_err();
        assert!(fault.to_string().starts_with("buffer of 1 MiB: the arena of 3 MiB is used up"), "{fault}");
        assert!(arena.allocate(usize::MAX).is_err());
        drop(held);
        assert!(arena.allocate(1 << 20).is_ok());
    }

    #[test]
    fn an_arena_over_a_region_stays_in_its_span() {
        let region = Arc::new(Region::create("test", 1 << 16).unwrap());
        let base = region.base().as_ptr() as u64;
        assert!(Arena::shared(region.clone(), 0..(1 << 16) + 1).is_err());
        let arena = Arena::shared(region, 100..1 << 15).unwrap();
        let mut held = Vec::new();
        while let Ok(buffer) = arena.allocate(1000) {
            assert!(buffer.address() >= base + 100 && buffer.address() + 1024 <= base + (1 << 15));
            held.push(buffer);
        }
        assert_eq!(held.len(), 31);
    }

    #[test]
    fn resize_is_bounded_by_the_capacity() {
        let mut buffer = Arena::private(Bytes(1 << 16)).allocate(70).unwrap();
        buffer.resize(128);
        buffer.truncate(500);
        assert_eq!((buffer.len(), buffer.capacity()), (128, 128));
        buffer.truncate(3);
        assert_eq!(buffer.as_ref().len(), 3);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| buffer.resize(129))).is_err());
    }

    proptest! {
        /// Live buffers never overlap, keep their content, and are aligned as promised.
        #[test]
        fn live_buffers_are_disjoint(steps in proptest::collection::vec((0usize..20_000, any::<bool>(), any::<prop::sample::Index>()), 1..200)) {
            let arena = Arena::private(Bytes(8 << 20));
            let mut live: Vec<(Buffer, u8)> = Vec::new();
            for (number, (length, free, which)) in steps.into_iter().enumerate() {
                if free && !live.is_empty() {
                    let (buffer, mark) = live.swap_remove(which.index(live.len()));
                    prop_assert!(buffer.as_ref().iter().all(|&b| b == mark));
                } else {
                    let mut buffer = arena.allocate(length).unwrap();
                    let alignment = if buffer.capacity() >= PAGE { PAGE } else { LINE };
                    prop_assert_eq!(buffer.address() % alignment as u64, 0);
                    prop_assert_eq!(buffer.len(), length);
                    buffer.as_mut().fill(number as u8);
                    live.push((buffer, number as u8));
                }
            }
            for (buffer, mark) in &live {
                prop_assert!(buffer.as_ref().iter().all(|b| b == mark));
            }
        }
    }
}
