//! Dilation of protocol work: after each piece of it the engine's thread spins, so that all of it takes k times as long.
//!
//! A piece ends where its result could be seen: where a packet is handed to the port, where a completion is handed on, and
//! where the engine is left. Its time is measured, and k - 1 times as much is spun before the result is seen. So only protocol
//! work is slower, by k. What one spin overshoots is taken off the next: over all pieces the spun time is k - 1 times the
//! worked time, to one reading of the counter.

use machine::Dilation;
use serde::{Deserialize, Serialize};

/// The dilation asked for, and the times measured, in ticks of the core's counter, whose length is not stated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dilated {
    pub asked: Dilation,
    /// Ticks of engine work, empty polls included.
    pub worked: u64,
    /// Ticks of polls that moved a message, a part of `worked`.
    pub busy: u64,
    /// Ticks that were spun.
    pub spun: u64,
}

impl Dilated {
    /// The factor reached.
    pub fn ran(&self) -> f64 {
        (self.worked + self.spun) as f64 / (self.worked as f64).max(1.0)
    }

    /// The counts since `from`.
    pub fn since(&self, from: &Dilated) -> Dilated {
        Dilated {
            asked: self.asked,
            worked: self.worked - from.worked,
            busy: self.busy - from.busy,
            spun: self.spun - from.spun,
        }
    }
}

/// The spinning of one engine.
pub(crate) struct Spinner {
    counts: Dilated,
    ticks: fn() -> u64,
    /// Start of the piece of work in progress; `None` outside the engine.
    since: Option<u64>,
    /// Value of `counts.worked` when the engine was entered.
    entered: u64,
    /// Ticks still to be spun; negative after spinning too long.
    owed: f64,
}

impl Spinner {
    /// `None` without dilation.
    pub fn of(asked: Dilation) -> Option<Box<Spinner>> {
        (!asked.is_none()).then(|| Box::new(Spinner::by(asked, linux::clock::ticks)))
    }

    fn by(asked: Dilation, ticks: fn() -> u64) -> Spinner {
        let counts = Dilated { asked, worked: 0, busy: 0, spun: 0 };
        Spinner { counts, ticks, since: None, entered: 0, owed: 0.0 }
    }

    pub fn counts(&self) -> Dilated {
        self.counts
    }

    /// Begins work. False inside work that has begun: its caller ends it.
    #[cold]
    pub fn enter(&mut self) -> bool {
        if self.since.is_some() {
            return false;
        }
        self.entered = self.counts.worked;
        self.since = Some((self.ticks)());
        true
    }

    /// Spins for the piece of work that ends here.
    #[cold]
    pub fn pay(&mut self) {
        let Some(since) = self.since else { return };
        let now = (self.ticks)();
        let worked = now.saturating_sub(since);
        self.counts.worked += worked;
        self.owed += (self.counts.asked.factor() - 1.0) * worked as f64;
        let mut at = now;
        if self.owed >= 1.0 {
            // No pause instruction: it takes longer than many a piece of work.
            while ((at - now) as f64) < self.owed {
                at = (self.ticks)().max(at);
            }
        }
        self.counts.spun += at - now;
        self.owed -= (at - now) as f64;
        self.since = Some(at);
    }

    /// Ends work; `busy` says whether it moved a message.
    #[cold]
    pub fn leave(&mut self, busy: bool) {
        self.pay();
        self.since = None;
        if busy {
            self.counts.busy += self.counts.worked - self.entered;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    thread_local! {
        /// A simulated counter: work advances it, and so does each reading.
        static NOW: Cell<u64> = const { Cell::new(0) };
    }

    const READING: u64 = 3;

    fn ticks() -> u64 {
        NOW.set(NOW.get() + READING);
        NOW.get()
    }

    fn work(ticks: u64) {
        NOW.set(NOW.get() + ticks);
    }

    fn dilation(factor: f64) -> Dilation {
        factor.to_string().parse().unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn what_is_spun_is_k_less_1_times_what_was_worked(
            thousandths in 1_001u32..=100_000,
            pieces in prop::collection::vec((0u64..2_000, any::<bool>(), any::<bool>()), 1..60),
        ) {
            let asked = Dilation::try_from(thousandths).unwrap();
            let mut spinner = Spinner::by(asked, ticks);
            let mut busy = 0;
            for (length, handed_on, moved) in pieces {
                assert!(spinner.enter());
                assert!(!spinner.enter(), "who is in is not in anew");
                let before = spinner.counts().worked;
                work(length);
                if handed_on {
                    spinner.pay();
                    work(length);
                }
                spinner.leave(moved);
                busy += if moved { spinner.counts().worked - before } else { 0 };
            }
            let counts = spinner.counts();
            prop_assert_eq!(counts.busy, busy);
            let owed = (asked.factor() - 1.0) * counts.worked as f64;
            prop_assert!((counts.spun as f64 - owed).abs() <= READING as f64, "{counts:?}");
        }

        /// Half a round trip is the wire's time plus k times the protocol's: the send's work before the packet is seen, and
        /// the receive's before its completion is.
        #[test]
        fn half_a_round_trip_is_wire_and_k_times_protocol(
            wire in 0u64..5_000,
            send in 50u64..2_000,
            receive in 50u64..2_000,
            factor in prop::sample::select(vec![1.5, 2.0, 4.0, 10.0, 50.0]),
        ) {
            const TRIPS: u64 = 50;
            let mut ends = [0; 2].map(|_| Spinner::by(dilation(factor), ticks));
            let begun = NOW.get();
            for trip in 0..2 * TRIPS {
                let [from, to] = if trip % 2 == 0 { [0, 1] } else { [1, 0] };
                ends[from].enter();
                work(send);
                ends[from].pay();
                // The packet is out; the rest of the send, here nothing, is on no path.
                ends[from].leave(true);
                work(wire);
                ends[to].enter();
                work(receive);
                ends[to].leave(true);
            }
            let half = (NOW.get() - begun) as f64 / (2 * TRIPS) as f64;
            let expected = wire as f64 + factor * (send + receive) as f64;
            // Tolerance: 4 readings of the counter per piece, of which those within one are stretched with it.
            prop_assert!((half - expected).abs() <= (4.0 * factor + 10.0) * READING as f64, "{half} {expected}");
        }
    }

    #[test]
    fn nothing_is_there_to_spin_where_nothing_is_added() {
        assert!(Spinner::of(Dilation::NONE).is_none());
    }
}
