//! Time inside the provider's calls, for dividing a rank's CPU time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use linux::clock::ticks;

/// Counts of one domain: calls are counted while its lock is held.
pub struct Account {
    opened: Instant,
    first: u64,
    calls: AtomicU64,
    inside: AtomicU64,
    empty_polls: AtomicU64,
}

/// Sums of an account; times in ns.
#[derive(Debug, Clone, Copy)]
pub struct Sums {
    pub calls: u64,
    /// Time inside calls.
    pub inside: u64,
    /// The part of `inside` in reads that found nothing.
    pub empty_polls: u64,
}

impl Account {
    pub fn open() -> Account {
        let (zero, (opened, first)) = (AtomicU64::default, moment());
        Account { opened, first, calls: zero(), inside: zero(), empty_polls: zero() }
    }

    /// Begins a call; returns its start.
    #[inline]
    pub fn begin(&self) -> u64 {
        ticks()
    }

    /// Ends the call that began at `since`.
    #[inline]
    pub fn end(&self, since: u64, empty_polls: bool) {
        // Plain additions would do under the lock, but a domain that its application serializes has none.
        let passed = ticks().wrapping_sub(since);
        self.inside.fetch_add(passed, Ordering::Relaxed);
        if empty_polls {
            self.empty_polls.fetch_add(passed, Ordering::Relaxed);
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// The sums so far.
    pub fn sums(&self) -> Sums {
        let (now, last) = moment();
        let passed = last.wrapping_sub(self.first).max(1) as f64;
        let scale = now.duration_since(self.opened).as_nanos() as f64 / passed;
        let time = |of: &AtomicU64| (of.load(Ordering::Relaxed) as f64 * scale) as u64;
        Sums {
            calls: self.calls.load(Ordering::Relaxed),
            inside: time(&self.inside),
            empty_polls: time(&self.empty_polls),
        }
    }
}

/// The time by both clocks. Of a few readings the closest counts: a thread may lose its core between two clocks.
fn moment() -> (Instant, u64) {
    let read = |_| {
        let (before, now, after) = (ticks(), Instant::now(), ticks());
        (after.wrapping_sub(before), (now, before))
    };
    (0..4).map(read).min_by_key(|(apart, _)| *apart).expect("four readings").1
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn time_inside_calls_is_counted_and_time_between_is_not() {
        let account = Account::open();
        let start = Instant::now();
        let since = account.begin();
        std::thread::sleep(Duration::from_millis(20));
        account.end(since, true);
        let inside = start.elapsed();
        std::thread::sleep(Duration::from_millis(60));
        let Sums { calls, inside: counted, empty_polls } = account.sums();
        assert_eq!((calls, counted), (1, empty_polls));
        assert!(counted >= 19_000_000, "{counted}");
        // Far below the whole, whatever a busy machine added.
        assert!(counted as f64 <= inside.as_nanos() as f64 * 1.05 + 1e6, "{counted} of {inside:?}");
    }
}
