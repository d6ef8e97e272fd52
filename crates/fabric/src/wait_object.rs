//! Descriptors of queues and counters on which applications sleep (FI_WAIT_FD), and `fi_trywait`.
//!
//! At placement `app` messages move in the application's own calls, so that nobody could wake it: the descriptor is a
//! timer, which `fi_trywait` sets. An application thus wakes, reads, which moves messages, and sleeps again, the longer the
//! more often it was in vain.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use linux::timer::Timer;

use crate::abi::constants::*;
use crate::abi::fid::Fid;
use crate::abi::object::FidFabric;
use crate::completion_queue::CompletionQueue;
use crate::counter::Counter;
use crate::event_queue::EventQueue;
use crate::object;

/// Shortest and longest sleep in microseconds.
const SHORTEST: u32 = 50;
const LONGEST: u32 = 1000;

/// What an object of the application's offers to wait on.
pub enum WaitObject {
    /// Not even waiting calls.
    None,
    /// Waiting calls of the provider.
    Calls,
    Descriptor(Sleep),
}

pub struct Sleep {
    timer: Timer,
    /// Length of the next sleep in microseconds.
    next: AtomicU32,
}

impl WaitObject {
    pub fn open(kind: c_int) -> Result<WaitObject, c_int> {
        match kind {
            FI_WAIT_NONE => Ok(WaitObject::None),
            FI_WAIT_UNSPEC | FI_WAIT_YIELD => Ok(WaitObject::Calls),
            FI_WAIT_FD => match Timer::open() {
                Ok(timer) => Ok(WaitObject::Descriptor(Sleep { timer, next: AtomicU32::new(SHORTEST) })),
                Err(fault) => {
                    eprintln!("plimsoll: {fault}");
                    Err(-libc::EMFILE)
                }
            },
            _ => Err(-FI_ENOSYS),
        }
    }

    pub fn is_none(&self) -> bool {
        matches!(self, WaitObject::None)
    }

    fn sleep(&self) -> Option<&Sleep> {
        match self {
            WaitObject::Descriptor(sleep) => Some(sleep),
            _ => None,
        }
    }

    /// Wakes who sleeps on it.
    pub fn wake(&self) {
        if let Some(sleep) = self.sleep() {
            sleep.timer.set(Duration::ZERO);
        }
    }

    /// Notes that something was found: more may follow soon.
    #[inline]
    pub fn found(&self) {
        if let WaitObject::Descriptor(sleep) = self {
            sleep.next.store(SHORTEST, Ordering::Relaxed);
        }
    }

    /// `fi_control` of the object.
    ///
    /// # Safety
    /// The argument is as the command wants it.
    pub unsafe fn control(&self, command: c_int, argument: *mut c_void) -> c_int {
        match (command, self.sleep()) {
            _ if command != FI_GETWAIT => -FI_ENOSYS,
            (_, None) => -FI_ENODATA,
            _ if argument.is_null() => -FI_EINVAL,
            (_, Some(sleep)) => {
                // SAFETY: the caller's promise: a descriptor is asked for.
                unsafe { argument.cast::<c_int>().write(sleep.timer.as_fd().as_raw_fd()) };
                0
            }
        }
    }
}

impl Sleep {
    fn begin(&self) {
        let length = self.next.load(Ordering::Relaxed);
        self.next.store((2 * length).min(LONGEST), Ordering::Relaxed);
        self.timer.set(Duration::from_micros(length.into()));
    }
}

/// The wait object of an object, and whether a read would find something now.
///
/// # Safety
/// `fid` is NULL or an open object.
unsafe fn look<'a>(fid: *const Fid) -> Option<(&'a WaitObject, bool)> {
    // SAFETY: the caller's promise; each domain is entered for its own objects.
    unsafe {
        if let Some(queue) = object::of::<CompletionQueue>(fid) {
            let _entered = queue.domain().enter();
            return Some((&queue.waits, queue.fill()));
        }
        if let Some(counter) = object::of::<Counter>(fid) {
            return Some((&counter.waits, counter.has_news()));
        }
        object::of::<EventQueue>(fid).map(|queue| (&queue.waits, queue.has_events()))
    }
}

pub unsafe extern "C" fn trywait(_: *mut FidFabric, fids: *mut *mut Fid, count: c_int) -> c_int {
    let mut sleeps = Vec::new();
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: libfabric's contract: an array of `count` open objects.
        match unsafe { look(*fids.add(at)) } {
            Some((WaitObject::Descriptor(_), true)) => return -FI_EAGAIN,
            Some((WaitObject::Descriptor(sleep), false)) => sleeps.push(sleep),
            _ => return -FI_EINVAL,
        }
    }
    sleeps.into_iter().for_each(Sleep::begin);
    0
}
