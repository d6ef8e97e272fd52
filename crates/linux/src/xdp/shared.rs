//! Memory of maps shared by user space and BPF programs.

use std::ffi::c_void;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags};

/// A mapping of a map's memory.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<c_void>,
    length: usize,
    writable: bool,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; it is only reached by atomics, or as the ring's consumer, which is `&mut`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a part of a map's memory.
    pub fn of(map: BorrowedFd<'_>, offset: usize, length: usize, writable: bool) -> io::Result<Mapping> {
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, map, offset as u64)?
        };
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, length, writable })
    }

    /// Maps zeros that are private to this process.
    fn anonymous(length: usize) -> io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as in `of`.
        let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, protection, MapFlags::PRIVATE)? };
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, length, writable: true })
    }

    /// The mapping as words; a caller that stores must have made it writable.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page aligned, `length` bytes long and lives as long as `self`; every bit pattern is a
        // word, and the other side's writes are what atomics are for.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.length / 8) }
    }

    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// `length` bytes from `at`, which the kernel has published and does not change until they are released.
    ///
    /// # Safety
    /// The caller has acquired the record's publication and holds back its release for as long as the slice lives.
    pub unsafe fn published(&self, at: usize, length: usize) -> Option<&[u8]> {
        if at.checked_add(length)? > self.length {
            return None;
        }
        // SAFETY: in bounds; nobody writes there by the caller's promise.
        Some(unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast::<u8>().add(at), length) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: of the one mapping made in `of`; slices of it borrow from this value.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr(), self.length) };
    }
}

/// The values of an array map as 64-bit words, shared with the programs that use it; or words of this process. Clones
/// share the memory and keep it alive.
#[derive(Debug, Clone)]
pub struct SharedWords {
    mapping: Arc<Mapping>,
    words: usize,
    stride: usize,
}

impl SharedWords {
    pub fn of(map: BorrowedFd<'_>, value_size: u32, entries: u32) -> io::Result<SharedWords> {
        // The kernel rounds values up to words.
        let stride = (value_size as usize).div_ceil(8);
        let words = stride * entries as usize;
        let mapping = Mapping::of(map, 0, (words * 8).next_multiple_of(rustix::param::page_size()), true)?;
        Ok(SharedWords { mapping: Arc::new(mapping), words, stride })
    }

    /// Private words of this process, 0 at first; each is one value.
    pub fn of_this_process(words: usize) -> io::Result<SharedWords> {
        let mapping = Mapping::anonymous((words.max(1) * 8).next_multiple_of(rustix::param::page_size()))?;
        Ok(SharedWords { mapping: Arc::new(mapping), words, stride: 1 })
    }

    /// All values, one after the other.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        debug_assert!(self.mapping.is_writable());
        &self.mapping.words()[..self.words]
    }

    /// The words of one value. Panics where the map has no such entry.
    #[inline]
    pub fn value(&self, entry: usize) -> &[AtomicU64] {
        &self.words()[entry * self.stride..(entry + 1) * self.stride]
    }

    /// Bytes published by a program.
    ///
    /// # Safety
    /// As [`Mapping::published`].
    pub unsafe fn published(&self, at: usize, length: usize) -> Option<&[u8]> {
        // SAFETY: by the caller's promise.
        unsafe { self.mapping.published(at, length) }
    }

    pub fn entries(&self) -> usize {
        self.words / self.stride
    }
}
