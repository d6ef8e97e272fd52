//! The memory of frames, registered with the kernel.

use std::ptr::NonNull;

use machine::{Bytes, Fault, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

const HUGE_PAGE: usize = 2 << 20;

/// Frames of equal size, in memory of our own.
///
/// A frame belongs to the holder of its number: a sender's list of free frames, a receiver's caller, or the kernel
/// through one of the rings. Each number exists once, which makes the slices below exclusive.
pub(super) struct Umem {
    base: NonNull<u8>,
    length: usize,
    frame_size: u32,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Umem {}
// SAFETY: `&Umem` gives out bytes only by the two unsafe methods, whose callers own the frame.
unsafe impl Sync for Umem {}

impl Umem {
    /// Zeroed memory, every page present, for `frames` of `frame_size` bytes (2048 or 4096).
    pub fn new(frames: u32, frame_size: u32, huge_pages: bool) -> Result<Umem> {
        let needed = frames as usize * frame_size as usize;
        let (length, flags) = match huge_pages {
            true => (needed.next_multiple_of(HUGE_PAGE), MapFlags::HUGETLB | MapFlags::HUGE_2MB),
            false => (needed, MapFlags::empty()),
        };
        // SAFETY: a fresh private mapping at an address of the kernel's choice aliases nothing of ours.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::POPULATE | flags,
            )
        }
        .map_err(|e| {
            let subject = format!("AF_XDP frames of {}", Bytes(length as u64));
            match huge_pages {
                true => {
                    let pages = length / HUGE_PAGE;
                    let next = format!(
                        "reserve them (`sysctl vm.nr_hugepages={pages}` beyond what is in use), or ask for small pages"
                    );
                    Fault::new(subject, format!("{pages} free huge pages of 2 MiB are not there ({e})"), next)
                }
                false => Fault::because(subject, e, "free memory, or ask for fewer frames"),
            }
        })?;
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at 0 unasked");
        let umem = Umem { base, length, frame_size };
        // A child forked by another thread must not share the pages: a later write here would move to a copy, and the
        // kernel would go on with the old page.
        // SAFETY: changes only what a fork does with the mapping.
        let _ = unsafe { madvise(base.as_ptr().cast(), length, Advice::LinuxDontFork) };
        Ok(umem)
    }

    pub fn address(&self) -> u64 {
        self.base.as_ptr().addr() as u64
    }

    pub fn len(&self) -> u64 {
        self.length as u64
    }

    pub fn frame_size(&self) -> u32 {
        self.frame_size
    }

    fn check(&self, at: u64, length: u32) -> usize {
        let at = at as usize;
        let inside = at % self.frame_size as usize + length as usize <= self.frame_size as usize;
        assert!(inside && at < self.length, "{length} bytes at {at} are not inside one frame");
        at
    }

    /// `length` bytes at offset `at`.
    ///
    /// # Safety
    /// The caller holds the number of the frame that they are in, and nobody writes it meanwhile.
    pub unsafe fn bytes(&self, at: u64, length: u32) -> &[u8] {
        let at = self.check(at, length);
        // SAFETY: in bounds of the mapping (zeroed when made, so initialised); no writer, by this method's contract.
        unsafe { std::slice::from_raw_parts(self.base.add(at).as_ptr(), length as usize) }
    }

    /// As [`Umem::bytes`], to write.
    ///
    /// # Safety
    /// The caller holds the number of the frame that they are in, and there is no other slice of it.
    #[allow(clippy::mut_from_ref)]
    #[inline]
    pub unsafe fn bytes_mut(&self, at: u64, length: u32) -> &mut [u8] {
        let at = self.check(at, length);
        // SAFETY: in bounds, initialised, and exclusive by this method's contract.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(at).as_ptr(), length as usize) }
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: the one mapping made in `new`. The kernel pins the pages on its own account while the socket lives.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
    }
}
