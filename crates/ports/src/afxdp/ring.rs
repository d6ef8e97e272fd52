//! The four rings of an AF_XDP socket: single producer, single consumer, one end the kernel's
//! (the kernel's `Documentation/networking/af_xdp.rst`).

use std::marker::PhantomData;
use std::mem::size_of;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use machine::{Fault, Result};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::xdp::XdpRingOffset;

/// A flag of `ring->flags`, from `linux/if_xdp.h`.
const NEED_WAKEUP: u32 = 1;

/// The common part of all rings: the kernel's memory, mapped, and the addresses of its counters.
struct Mapping<T> {
    base: NonNull<u8>,
    length: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    /// Absent on kernels before 5.4, which need no wake-up beyond the system call.
    flags: Option<NonNull<AtomicU32>>,
    entries: NonNull<T>,
    mask: u32,
    _entries: PhantomData<T>,
}

// SAFETY: the mapping belongs to the process, not to a thread; each ring has one user, its owner.
unsafe impl<T: Send> Send for Mapping<T> {}

impl<T: Copy> Mapping<T> {
    fn new(socket: BorrowedFd<'_>, size: u32, offsets: &XdpRingOffset, page: u64) -> Result<Self> {
        assert!(size.is_power_of_two());
        let length = offsets.desc as usize + size as usize * size_of::<T>();
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                socket,
                page,
            )
        }
        .map_err(|e| Fault::because("AF_XDP ring", e, "free memory, or ask for smaller rings"))?;
        let base: NonNull<u8> = NonNull::new(base.cast()).expect("the kernel maps nothing at 0 unasked");
        // SAFETY: the kernel gives offsets inside the mapping of this ring, each aligned for its type.
        let at = |offset: u64| unsafe { base.add(offset as usize) };
        Ok(Mapping {
            base,
            length,
            producer: at(offsets.producer).cast(),
            consumer: at(offsets.consumer).cast(),
            flags: offsets.flags.map(|flags| at(flags).cast()),
            entries: at(offsets.desc).cast(),
            mask: size - 1,
            _entries: PhantomData,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: points into the mapping, which lives as long as `self`; both sides access it atomically.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as in `producer`.
        unsafe { self.consumer.as_ref() }
    }

    fn entry(&self, position: u32) -> NonNull<T> {
        // SAFETY: the mask keeps the index below the number of entries that the mapping has.
        unsafe { self.entries.add((position & self.mask) as usize) }
    }

    fn size(&self) -> u32 {
        self.mask + 1
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: `base` and `length` are of the one mapping made in `new`; nothing borrows from it any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

/// A ring that we fill and the kernel empties: fill and TX.
pub(super) struct Producer<T> {
    ring: Mapping<T>,
    /// Next position to write; ahead of the shared counter by unpublished entries.
    next: u32,
    /// The kernel's counter when last read.
    consumed: u32,
}

impl<T: Copy> Producer<T> {
    pub fn new(socket: BorrowedFd<'_>, size: u32, offsets: &XdpRingOffset, page: u64) -> Result<Self> {
        let ring = Mapping::new(socket, size, offsets, page)?;
        let (next, consumed) = (ring.producer().load(Ordering::Relaxed), ring.consumer().load(Ordering::Acquire));
        Ok(Producer { ring, next, consumed })
    }

    /// Number of free entries; reads the kernel's counter only where fewer than `wanted` are known.
    #[inline]
    pub fn room(&mut self, wanted: u32) -> u32 {
        let free = self.ring.size() - self.next.wrapping_sub(self.consumed);
        if free >= wanted {
            return free;
        }
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
        self.ring.size() - self.next.wrapping_sub(self.consumed)
    }

    /// Writes one entry, invisible to the kernel until [`Producer::publish`]. There must be room.
    #[inline]
    pub fn push(&mut self, entry: T) {
        assert!(self.next.wrapping_sub(self.consumed) < self.ring.size(), "room was asked for first");
        // SAFETY: the position is free, just checked: the kernel reads it only after the counter has passed it.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
    }

    #[inline]
    pub fn publish(&mut self) {
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// Number of published entries that the kernel has not taken.
    #[inline]
    pub fn waiting(&mut self) -> u32 {
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
        self.ring.producer().load(Ordering::Relaxed).wrapping_sub(self.consumed)
    }

    /// Whether the kernel asks to be woken for new entries by a system call.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        // SAFETY: as in `Mapping::producer`.
        self.ring.flags.is_some_and(|flags| unsafe { flags.as_ref() }.load(Ordering::Relaxed) & NEED_WAKEUP != 0)
    }
}

/// A ring that the kernel fills and we empty: completion and RX.
pub(super) struct Consumer<T> {
    ring: Mapping<T>,
    next: u32,
    produced: u32,
}

impl<T: Copy> Consumer<T> {
    pub fn new(socket: BorrowedFd<'_>, size: u32, offsets: &XdpRingOffset, page: u64) -> Result<Self> {
        let ring = Mapping::new(socket, size, offsets, page)?;
        let (next, produced) = (ring.consumer().load(Ordering::Relaxed), ring.producer().load(Ordering::Acquire));
        Ok(Consumer { ring, next, produced })
    }

    /// Number of entries that can be taken; reads the kernel's counter only where none are known.
    #[inline]
    pub fn available(&mut self) -> u32 {
        if self.produced == self.next {
            self.produced = self.ring.producer().load(Ordering::Acquire);
        }
        self.known()
    }

    /// Number of entries that are known, without a look at the kernel's counter.
    #[inline]
    pub fn known(&self) -> u32 {
        self.produced.wrapping_sub(self.next)
    }

    /// The next entry, which stays until [`Consumer::advance`].
    #[inline]
    pub fn peek(&mut self) -> Option<T> {
        if self.available() == 0 {
            return None;
        }
        // SAFETY: the producer's counter has passed this position, so the kernel has written it and leaves it alone
        // until our counter passes it too.
        Some(unsafe { self.ring.entry(self.next).read() })
    }

    /// Goes on to the next entry; the kernel is told by [`Consumer::release`].
    #[inline]
    pub fn advance(&mut self) {
        debug_assert_ne!(self.produced, self.next);
        self.next = self.next.wrapping_add(1);
    }

    /// Gives passed entries back.
    #[inline]
    pub fn release(&mut self) {
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}
