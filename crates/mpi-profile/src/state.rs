//! Whether this process records, and the record of the calling thread.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::clock;
use crate::heading::Heading;

pub const FRESH: u32 = 0;
pub const RECORDING: u32 = 1;
pub const OFF: u32 = 2;
/// A defect of the library ended recording; the data until then stay.
pub const FAILED: u32 = 3;

pub static STATE: AtomicU32 = AtomicU32::new(FRESH);
/// The header of the rank's tables, once they exist.
pub static HEADING: OnceLock<Heading> = OnceLock::new();
/// Generation of the caches, raised by 2 where they become stale, as at each freed handle. Odd while recording is paused.
pub static GENERATION: AtomicU64 = AtomicU64::new(0);

#[inline]
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

#[inline]
pub fn paused(generation: u64) -> bool {
    generation & 1 != 0
}

unsafe extern "C" {
    fn plimsoll_set_here(here: *mut c_void);
    fn plimsoll_get_here() -> *mut c_void;
    static plimsoll_passing: u32;
    static plimsoll_counting: u32;
}

/// The record of this thread, a [`crate::here::Here`] or a stand-in; null before its first call.
pub fn here() -> *mut c_void {
    // SAFETY: the function reads a thread-local word.
    unsafe { plimsoll_get_here() }
}

/// # Safety
/// `here` is a whole record of this thread's, a stand-in, or null.
pub unsafe fn set_here(here: *mut c_void) {
    // SAFETY: by this function's contract.
    unsafe { plimsoll_set_here(here) };
}

/// Stand-in record with which calls pass straight through; never written.
pub fn passing() -> *mut c_void {
    (&raw const plimsoll_passing).cast_mut().cast()
}

/// Stand-in record of a thread whose calls are only counted; never written.
pub fn counting() -> *mut c_void {
    (&raw const plimsoll_counting).cast_mut().cast()
}

/// Ends recording on this thread.
pub fn pass() {
    // SAFETY: the stand-in stays as long as the process runs.
    unsafe { set_here(passing()) };
}

/// Ends recording after a panic of the library: on this thread at once, on others when they find their caches stale.
#[cold]
pub fn failed() {
    let was = STATE.compare_exchange(RECORDING, FAILED, Ordering::AcqRel, Ordering::Acquire);
    pass();
    GENERATION.fetch_add(2, Ordering::Release);
    if let Some(heading) = HEADING.get().filter(|_| was.is_ok()) {
        heading.change(|header| header.failed = clock::ticks(header.clock));
    }
}
