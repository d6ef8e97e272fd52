//! Zeroed pages for buffers whose addresses the kernel keeps between calls. Untouched pages take no memory.

use std::ptr::NonNull;

use machine::{Fault, Result};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

pub(super) struct Pages {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread.
unsafe impl Send for Pages {}

impl Pages {
    pub fn new(length: usize) -> Result<Self> {
        // SAFETY: a fresh private mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe {
            mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }
        .map_err(|e| Fault::because("packet buffers", e, format!("free {length} bytes of memory")))?;
        let base = NonNull::new(base.cast()).expect("a mapping is never at address 0");
        Ok(Pages { base, length })
    }

    /// Where `range` starts, for the kernel to read or write; the caller keeps the kernel inside `length` bytes of it.
    pub fn pointer(&self, at: usize, length: usize) -> *mut u8 {
        assert!(at <= self.length && length <= self.length - at, "inside the mapping");
        // SAFETY: `at` is at most the mapping's length, just checked.
        unsafe { self.base.as_ptr().add(at) }
    }

    #[inline]
    pub fn slice(&self, at: usize, length: usize) -> &[u8] {
        // SAFETY: `pointer` checks the range; the bytes are initialised (zeroed by mmap) and only written through
        // `&mut self` or by a system call that its caller makes with `&mut self`.
        unsafe { std::slice::from_raw_parts(self.pointer(at, length), length) }
    }

    #[inline]
    pub fn slice_mut(&mut self, at: usize, length: usize) -> &mut [u8] {
        // SAFETY: as in `slice`, and `&mut self` makes the borrow exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(at, length), length) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing borrows from it any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
    }
}
