//! Time inside the provider's calls, for those who ask how a rank's CPU is divided.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use linux::clock::ticks;

/// Counts of one domain: calls are counted while its lock is held.
pub struct Account {
    opened: Instant,
    first: u64,
    calls: AtomicU64,
    inside: AtomicU64,
}

impl Account {
    pub fn open() -> Account {
        Account { opened: Instant::now(), first: ticks(), calls: AtomicU64::new(0), inside: AtomicU64::new(0) }
    }

    /// A call begins.
    #[inline]
    pub fn begin(&self) -> u64 {
        ticks()
    }

    /// The call that began `since` ends.
    #[inline]
    pub fn end(&self, since: u64) {
        // Plain additions would do under the lock; a domain that its application serializes has none.
        self.inside.fetch_add(ticks().wrapping_sub(since), Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls so far, and ns inside them.
    pub fn sums(&self) -> (u64, u64) {
        let passed = ticks().wrapping_sub(self.first).max(1) as f64;
        let scale = self.opened.elapsed().as_nanos() as f64 / passed;
        let inside = self.inside.load(Ordering::Relaxed) as f64 * scale;
        (self.calls.load(Ordering::Relaxed), inside as u64)
    }
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
        account.end(since);
        let inside = start.elapsed();
        std::thread::sleep(Duration::from_millis(60));
        let (calls, counted) = account.sums();
        assert_eq!(calls, 1);
        assert!(counted >= 19_000_000, "{counted}");
        // Far below the whole, whatever a busy machine added.
        assert!(counted as f64 <= inside.as_nanos() as f64 * 1.05 + 1e6, "{counted} of {inside:?}");
    }
}
