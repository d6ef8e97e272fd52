//! The thread that ends guests whose time is up. One serves the process, and ends with its last user. It sleeps while
//! no guest runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use machine::{Fault, Result};

use crate::engine::engine;

pub const TICK: Duration = Duration::from_millis(4);

pub struct Ticker {
    shared: Arc<Shared>,
    /// Wakes the thread; dropped to end it.
    woken: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// Whether the thread sleeps or is about to: whoever enters a guest wakes it.
    asleep: AtomicBool,
    /// Number of entries and exits of each guest: odd while it runs.
    guests: Mutex<Vec<Weak<AtomicU64>>>,
}

impl Shared {
    /// Sum of entries and exits of all guests; `None` while one runs.
    fn at_rest(&self) -> Option<u64> {
        let mut guests = self.guests.lock().unwrap_or_else(PoisonError::into_inner);
        guests.retain(|guest| guest.strong_count() > 0);
        let counts = guests.iter().filter_map(Weak::upgrade).map(|guest| guest.load(Ordering::Acquire));
        counts.map(|count| count.is_multiple_of(2).then_some(count)).sum()
    }
}

/// A guest's registration with the ticker.
pub struct Presence {
    count: Arc<AtomicU64>,
    ticker: Arc<Ticker>,
}

impl Presence {
    /// Marks the guest as entered, without a fence: the ticker has a barrier in all threads before it sleeps.
    #[inline]
    pub fn enter(&self) {
        self.count.store(self.count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if self.ticker.shared.asleep.load(Ordering::Relaxed) {
            self.ticker.wake();
        }
    }

    #[inline]
    pub fn leave(&self) {
        self.count.store(self.count.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

impl Ticker {
    /// Registers one more guest.
    pub fn of_guest() -> Result<Presence> {
        let ticker = Ticker::shared()?;
        let count = Arc::new(AtomicU64::new(0));
        ticker.shared.guests.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&count));
        Ok(Presence { count, ticker })
    }

    fn shared() -> Result<Arc<Ticker>> {
        static SHARED: Mutex<Weak<Ticker>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ticker) = shared.upgrade() {
            return Ok(ticker);
        }
        let ticker = Arc::new(Ticker::start()?);
        *shared = Arc::downgrade(&ticker);
        Ok(ticker)
    }

    fn start() -> Result<Ticker> {
        let engine = engine()?;
        let (woken, wakes) = mpsc::channel();
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("wasm ticker".into())
            .spawn(move || {
                leave_the_creators_core();
                tick(&theirs, &wakes, || engine.increment_epoch());
            })
            .map_err(|error| Fault::because("wasm ticker", error, "end some threads, or raise the limit on them"))?;
        Ok(Ticker { shared, woken: Some(woken), thread: Some(thread) })
    }

    #[cold]
    fn wake(&self) {
        if self.shared.asleep.swap(false, Ordering::AcqRel) {
            self.woken.iter().for_each(|woken| _ = woken.send(()));
        }
    }
}

fn tick(shared: &Shared, wakes: &Receiver<()>, advance: impl Fn()) {
    let mut before = 0;
    loop {
        match wakes.recv_timeout(TICK) {
            Err(RecvTimeoutError::Timeout) => advance(),
            Err(RecvTimeoutError::Disconnected) => return,
            Ok(()) => continue,
        }
        // At rest: in this tick one guest was entered once at most, and has left.
        let now = shared.at_rest();
        let rests = now.is_some_and(|now| now.wrapping_sub(before) <= 2);
        before = now.unwrap_or(before);
        if !rests {
            continue;
        }
        shared.asleep.store(true, Ordering::SeqCst);
        // A guest that is entered from here on wakes the thread; one that was entered before is seen.
        if linux::barrier::in_all_threads() && shared.at_rest() == now {
            if wakes.recv().is_err() {
                return;
            }
        } else if !shared.asleep.swap(false, Ordering::AcqRel) {
            // Another thread has cleared the flag, and sends.
            let _ = wakes.recv();
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.woken = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A thread inherits the affinity of the one that started it. Where that is a dedicated core, whose thread never
/// sleeps, no tick would come when it is needed: so it runs where the process's first thread may.
fn leave_the_creators_core() {
    if let Ok(cores) = linux::affinity::of_process(std::process::id()) {
        // On failure it stays where it is, where ticks come late.
        let _ = linux::mask::set(0, &cores);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_sleeps_while_no_guest_runs_and_wakes_for_each_that_does() {
        let presence = Ticker::of_guest().unwrap();
        for _ in 0..20 {
            // It ends when the ticker sleeps, whose sleep ends with the next entry.
            while !presence.ticker.shared.asleep.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            presence.enter();
            assert!(!presence.ticker.shared.asleep.load(Ordering::Acquire));
            std::thread::sleep(3 * TICK);
            assert!(!presence.ticker.shared.asleep.load(Ordering::Acquire), "it sleeps while a guest runs");
            presence.leave();
        }
    }
}
