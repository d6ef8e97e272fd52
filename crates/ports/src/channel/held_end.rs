//! The holder of a channel's end, and whether the other ends still live.
//!
//! An end that is dropped says so in the region. A killed one cannot, so each end holds a lock on the byte of the region's file
//! that has its end's number, with an open file description of its own (`F_OFD_SETLK`). The kernel releases the lock with the
//! last descriptor, however the holder ends (a forked child keeps one until it executes a program); handing an end over passes
//! the lock along. The kernel is not asked while all ends are in one process, where none dies without the others.

use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use machine::channel::{Specification, Synchronization};
use machine::{Fault, Result};
use rustix::fs::{Mode, OFlags};
use rustix::time::ClockId;

use super::layout::{Head, Layout};
use linux::region::Region;

/// States of an end; 0: never taken.
const LIVE: u64 = 1;
const GONE: u64 = 2;

/// The holder's side of one end.
pub(super) struct HeldEnd {
    region: Arc<Region>,
    layout: Layout,
    index: usize,
    /// The descriptor that holds the lock.
    lock: OwnedFd,
    /// Number of departures at the last check of the other ends.
    seen: Cell<u64>,
    /// Value of the coarse clock when the kernel was last asked.
    asked: Cell<(i64, i64)>,
    /// Whether the end was handed to another process.
    left: bool,
}

impl HeldEnd {
    /// Takes a free end.
    pub fn take(region: Arc<Region>, layout: Layout, index: usize) -> Result<HeldEnd> {
        let lock = reopen(region.fd())?;
        if !lock_byte(lock.as_fd(), index) {
            let cause = format!("another process holds end {index}");
            return Err(Fault::new("end of a channel", cause, "look which process keeps the channel"));
        }
        layout.end(&region, index).state.0.store(LIVE, Ordering::Release);
        Ok(Self::sit(region, layout, index, lock))
    }

    /// Takes over a end from another process: `lock` came from there, and `region` is a mapping with its own description.
    pub fn sit(region: Arc<Region>, layout: Layout, index: usize, lock: OwnedFd) -> HeldEnd {
        assert!(index < layout.seats && region.len() == layout.length());
        // The first check is never skipped.
        let seen = Cell::new(u64::MAX);
        HeldEnd { region, layout, index, lock, seen, asked: Cell::new((0, 0)), left: false }
    }

    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn index(&self) -> usize {
        self.index
    }

    /// The descriptor to pass to another process.
    pub fn lock(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }

    #[inline(always)]
    fn head(&self) -> &Head {
        // SAFETY: the region's first page, which every layout has; atomics only, valid whatever bits a peer writes.
        unsafe { self.region.base().cast().as_ref() }
    }

    /// Number of messages that end `end` has taken.
    pub fn progress(&self, end: usize) -> &AtomicU64 {
        &self.layout.end(&self.region, end).progress.0
    }

    /// Number of ends that have left, in a line that rarely changes.
    #[inline(always)]
    pub fn departures(&self) -> u64 {
        self.head().departures.load(Ordering::Acquire)
    }

    /// Whether an end has left since [`HeldEnd::mark_shared`].
    #[inline(always)]
    pub fn has_news(&self) -> bool {
        self.departures() != self.seen.get()
    }

    /// Notes that the departures up to `departures`, read before the check, are handled.
    pub fn mark_shared(&self, departures: u64) {
        self.seen.set(departures);
    }

    pub fn is_live(&self, end: usize) -> bool {
        self.layout.end(&self.region, end).state.0.load(Ordering::Acquire) == LIVE
    }

    /// Whether another process holds an end.
    pub fn is_away(&self) -> bool {
        self.head().away.load(Ordering::Acquire) != 0
    }

    /// Whether to ask the kernel which ends died: at most once a tick of its coarse clock (1 to 10 ms).
    pub fn should_ask(&self) -> bool {
        if !self.is_away() {
            return false;
        }
        let now = rustix::time::clock_gettime(ClockId::MonotonicCoarse);
        let now = (now.tv_sec, now.tv_nsec);
        self.asked.replace(now) != now
    }

    /// Whether end `end` lives; asks the kernel, and marks a dead one for all others.
    pub fn lives(&self, end: usize) -> bool {
        if self.is_live(end) && !is_locked(self.lock.as_fd(), end) {
            self.depart(end);
        }
        self.is_live(end)
    }

    fn depart(&self, end: usize) {
        let state = &self.layout.end(&self.region, end).state.0;
        if state.swap(GONE, Ordering::AcqRel) == LIVE {
            self.head().departures.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Whether an end may sleep, as [`super::word::admit`] sets it.
    #[inline(always)]
    pub fn sleepers(&self) -> &AtomicU64 {
        &self.head().sleepers
    }

    /// Admits sleepers of a blocking channel before anything is written.
    pub fn sleep_from_the_first(&self, specification: &Specification) {
        let may = specification.synchronization == Synchronization::Blocking;
        self.sleepers().store(u64::from(may), Ordering::Release);
    }

    /// Prepares for an end in another process: writes check for sleepers from now on, since no barrier reaches the threads there.
    pub fn go_away(&self) {
        self.head().sleepers.store(1, Ordering::Release);
        self.head().away.store(1, Ordering::Release);
    }

    /// Notes that another process holds the end now: dropping the end no longer marks it as gone.
    pub fn left(&mut self) {
        self.left = true;
    }

    /// Marks this end as gone for the others, unless it was handed over.
    pub fn stand_up(&self) {
        if !self.left {
            self.depart(self.index);
        }
    }
}

impl Drop for HeldEnd {
    fn drop(&mut self) {
        self.stand_up();
    }
}

/// Opens a descriptor's file again, with an open file description of its own.
pub(super) fn reopen(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| Fault::because(format!("shared memory of a channel ({path})"), e, "mount /proc"))
}

fn span(kind: libc::c_int, byte: usize) -> libc::flock {
    // SAFETY: a struct of integers, for which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = byte as libc::off_t;
    lock.l_len = 1;
    lock
}

fn lock_byte(fd: BorrowedFd<'_>, byte: usize) -> bool {
    let lock = span(libc::F_WRLCK, byte);
    // SAFETY: the kernel reads one `flock`.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) == 0 }
}

/// Whether another open file description holds the lock.
fn is_locked(fd: BorrowedFd<'_>, byte: usize) -> bool {
    let mut lock = span(libc::F_WRLCK, byte);
    // SAFETY: the kernel reads and writes one `flock`.
    let asked = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    asked == 0 && lock.l_type != libc::F_UNLCK as libc::c_short
}
