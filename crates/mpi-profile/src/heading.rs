//! The writer's side of the header of a rank's tables.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, TryLockError};

use record::layout::{COPY, Dropped, Header};
use record::seal;
use zerocopy::IntoBytes;

/// Attempts to lock the header, after which a signal handler that interrupted the holder of the lock gives up.
const TRIES: usize = 1000;

#[derive(Debug)]
pub struct Heading {
    /// Mapped as long as the process runs.
    mapped: *mut Header,
    own: Mutex<Header>,
}

// SAFETY: the sealed parts of the mapping are written under the lock, the words after them as atomics.
unsafe impl Send for Heading {}
// SAFETY: as above.
unsafe impl Sync for Heading {}

impl Heading {
    /// # Safety
    /// `mapped` points to the first bytes of a rank's file, mapped as long as the process runs and without another writer.
    pub unsafe fn new(mapped: *mut Header, header: Header) -> Heading {
        let heading = Heading { mapped, own: Mutex::new(header) };
        heading.change(|_| ());
        heading
    }

    fn own(&self) -> Option<MutexGuard<'_, Header>> {
        for _ in 0..TRIES {
            match self.own.try_lock() {
                Ok(own) => return Some(own),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
        None
    }

    /// Changes the header and writes both of its copies, one after the other.
    #[cold]
    pub fn change(&self, change: impl FnOnce(&mut Header)) {
        let Some(mut own) = self.own() else { return };
        change(&mut own);
        own.seal = own.own_seal();
        let bytes = &own.as_bytes()[..Header::SEALED + size_of::<u64>()];
        for copy in [0, COPY] {
            // SAFETY: by `new`'s contract; both copies lie in the first page, at multiples of 8.
            let to = unsafe { self.mapped.cast::<u8>().add(copy).cast::<u64>() };
            for place in 0..bytes.len() / 8 {
                // SAFETY: as above. The seal is the last word of the copy.
                unsafe { to.add(place).write_volatile(seal::word(bytes, place)) };
            }
            fence(Ordering::Release);
        }
    }

    /// Seals the header's counters too: nothing more is written.
    pub fn close(&self, ticks: u64) {
        self.change(|header| {
            header.ended = ticks;
            // SAFETY: by `new`'s contract; this word is changed as an atomic.
            header.regions = unsafe { AtomicU64::from_ptr(&raw mut (*self.mapped).regions).load(Ordering::Relaxed) };
            // SAFETY: by `new`'s contract; threads may add to the counters during the read, word by word.
            header.dropped = unsafe { (&raw const (*self.mapped).dropped).read_volatile() };
            header.closed = header.own_close();
        });
    }

    /// Counts one thing that is not recorded, in both words of its counter.
    #[cold]
    pub fn dropped(&self, which: impl FnOnce(&mut Dropped) -> *mut u64) {
        let mut all = Dropped::default();
        let place = which(&mut all).addr() - (&raw const all).addr();
        // SAFETY: by `new`'s contract; `place` is the offset of one of the counters, which are changed only as atomics.
        unsafe {
            for counters in [&raw mut (*self.mapped).dropped, &raw mut (*self.mapped).dropped_again] {
                let counter = counters.cast::<u8>().add(place).cast::<u64>();
                AtomicU64::from_ptr(counter).fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
