//! The word of a slot: its message's position, and whether a reader sleeps until that changes.
//!
//! The sleeper's mark is in the very word that the writer changes, so the writer finds it by the exchange that
//! publishes: no second line, no fence, and no lost wake-up. Either the mark came first, and the exchange returns it;
//! or the exchange came first, and the mark is refused, since the word is no longer what the reader saw.
//!
//! Channels without sleepers so far publish by a plain store, and then check a word that says whether a sleeper has
//! come ([`admit`]).

use crate::sync::{AtomicU64, Ordering, heavy_fence, light_fence};

/// A reader sleeps until this word changes.
const SLEEPER: u64 = 1;
/// The message is being written; only used where a writer does not wait for readers.
pub(super) const WRITING: u64 = 2;
const FLAGS: u32 = 2;

/// `(position + 1) << 2 | flags` of the message in the slot: zeroed memory is an empty ring.
#[repr(transparent)]
pub(super) struct Word(AtomicU64);

/// The word once message `position` is in its slot.
#[inline(always)]
pub(super) const fn written(position: u64) -> u64 {
    position.wrapping_add(1) << FLAGS
}

/// How many messages the slot is ahead of the expected one; negative for an earlier message.
#[inline(always)]
pub(super) const fn ahead(word: u64, expected: u64) -> i64 {
    ((word & !(SLEEPER | WRITING)).wrapping_sub(expected)) as i64 >> FLAGS
}

impl Word {
    #[cfg(test)]
    pub fn new() -> Self {
        Word(AtomicU64::new(0))
    }

    /// The word without the sleeper's mark. Acquires the message that was published with it.
    #[inline(always)]
    pub fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire) & !SLEEPER
    }

    /// The word for the second check of a reader that copied; ordered by a separate fence.
    #[inline(always)]
    pub fn load_relaxed(&self) -> u64 {
        self.0.load(Ordering::Relaxed) & !SLEEPER
    }

    /// Publishes; says whether a reader may sleep and must be woken. `sleepers` is set by [`admit`].
    #[inline(always)]
    pub fn publish(&self, value: u64, sleepers: &AtomicU64) -> bool {
        if may_sleep(sleepers) {
            return self.exchange(value);
        }
        self.store(value);
        sleeper_arrived(sleepers)
    }

    /// Publishes without a check for sleepers.
    #[inline(always)]
    pub fn store(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    /// Publishes; says whether a reader slept and must be woken.
    #[inline(always)]
    pub fn exchange(&self, value: u64) -> bool {
        self.0.swap(value, Ordering::AcqRel) & SLEEPER != 0
    }

    /// Marks that a reader sleeps while the word is `seen`; false where the word has changed.
    pub fn mark(&self, seen: u64) -> bool {
        let marked = seen | SLEEPER;
        match self.0.compare_exchange(seen, marked, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(now) => now == marked,
        }
    }

    /// Removes the mark, so that a reader that is about to sleep does not; says whether it was set.
    pub fn unmark(&self) -> bool {
        self.0.fetch_and(!SLEEPER, Ordering::AcqRel) & SLEEPER != 0
    }
}

/// Whether any end may sleep on a channel.
#[inline(always)]
pub(super) fn may_sleep(sleepers: &AtomicU64) -> bool {
    sleepers.load(Ordering::Relaxed) != 0
}

/// Whether a sleeper came during a plain store, which may have overwritten its mark.
#[inline(always)]
pub(super) fn sleeper_arrived(sleepers: &AtomicU64) -> bool {
    light_fence();
    sleepers.load(Ordering::Acquire) != 0
}

/// Admits the caller as a sleeper of a channel, from its next mark on. If a plain store overwrites the mark of the
/// first sleeper, either the sleeper sees the store, as it checks once more after the mark, or the writer sees
/// `sleepers` set. `false`: it must not sleep.
pub(super) fn admit(sleepers: &AtomicU64) -> bool {
    sleepers.store(1, Ordering::Release);
    heavy_fence()
}

#[cfg(not(loom))]
mod futex {
    use std::sync::atomic::AtomicU32;

    use rustix::fs::Timespec;
    use rustix::thread::futex::{self, Flags};

    use super::{SLEEPER, Word};

    impl Word {
        /// The half with the mark and the low bits of the position, which the kernel compares.
        fn half(&self) -> &AtomicU32 {
            const { assert!(cfg!(target_endian = "little"), "the mark is in the first half of the word") };
            // SAFETY: the first half of a live, aligned 8-byte atomic; only its address is used, by the kernel.
            unsafe { &*(&raw const self.0).cast() }
        }

        /// Sleeps while the word is `seen` with the mark, at most `limit`. May wake early.
        pub fn sleep(&self, seen: u64, limit: std::time::Duration) {
            let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
            // An error is a changed word, the limit or a signal: the caller checks again.
            let _ = futex::wait(self.half(), Flags::empty(), (seen | SLEEPER) as u32, Some(&limit));
        }

        /// Wakes all readers that sleep on the word.
        #[cold]
        pub fn wake(&self) {
            let _ = futex::wake(self.half(), Flags::empty(), i32::MAX as u32);
        }
    }
}

#[cfg(loom)]
impl Word {
    pub fn wake(&self) {}
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::sync::Arc;

    /// A reader that is about to sleep until a message comes or its writer leaves, against a writer that does one of
    /// the two. The kernel sleeps only while the word is what the reader says, so a reader that would sleep for ever
    /// has left its mark, and the writer must have found it.
    /// mark, and the writer must have found it.
    fn nobody_sleeps_for_ever(leaves: bool) {
        loom::model(move || {
            let shared = Arc::new((Word::new(), AtomicU64::new(0)));
            let writer = loom::thread::spawn({
                let shared = shared.clone();
                move || {
                    if leaves {
                        shared.1.store(1, Ordering::Release);
                        shared.0.unmark()
                    } else {
                        shared.0.exchange(written(0))
                    }
                }
            });
            let (word, gone) = &*shared;
            let seen = word.load();
            let ready = |word: u64| word == written(0);
            let mut asleep = false;
            if !ready(seen) && word.mark(seen) && gone.load(Ordering::Acquire) == 0 {
                // The kernel's comparison, atomic with falling asleep.
                asleep = word.0.load(Ordering::SeqCst) == seen | SLEEPER;
            }
            let found = writer.join().unwrap();
            assert!(!asleep || found, "a sleeper is not woken");
            // A reader that does not sleep has a reason at its next check.
            assert!(asleep || ready(word.load()) || gone.load(Ordering::Acquire) == 1);
        });
    }

    /// The first sleeper on a polled channel, against its writer.
    #[test]
    fn who_comes_to_sleep_on_a_polled_channel_is_woken() {
        loom::model(|| {
            let shared = Arc::new((Word::new(), AtomicU64::new(0)));
            let writer = loom::thread::spawn({
                let shared = shared.clone();
                move || {
                    let first = shared.0.publish(written(0), &shared.1);
                    (first, shared.0.publish(written(1), &shared.1))
                }
            });
            let (word, sleepers) = &*shared;
            assert!(admit(sleepers));
            // The expected message is the first, or the second where the first was read.
            let seen = word.load();
            let expected = if ahead(seen, written(0)) >= 0 { 1 } else { 0 };
            let ready = |word: u64| ahead(word, written(expected)) >= 0;
            let asleep = !ready(seen) && word.mark(seen);
            let (first, second) = writer.join().unwrap();
            let rung = if expected == 0 { first || second } else { second };
            assert!(!asleep || rung, "a sleeper is not woken");
        });
    }

    #[test]
    fn a_message_wakes_its_sleeper() {
        nobody_sleeps_for_ever(false);
    }

    #[test]
    fn an_end_that_leaves_wakes_the_sleeper() {
        nobody_sleeps_for_ever(true);
    }
}
