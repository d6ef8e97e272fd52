//! A load that is switched on and off on purpose, to find the offset of a sensor's clock.

use std::sync::atomic::{AtomicBool, Ordering};

use machine::{Nanoseconds, Result};

use crate::clock::{monotonic, sleep_until};

/// Lengths of the load's times, alternately off and on, beginning and ending with off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(Vec<Nanoseconds>);

/// Number of times that the load is on.
const TIMES: u64 = 7;

/// Shortest time, so that a slow sensor follows.
const SHORTEST: u64 = 500_000_000;

impl Pattern {
    /// A pattern for a sensor with this period: times of two to six periods in an order that repeats nowhere.
    pub fn of(period: Nanoseconds) -> Pattern {
        let unit = (2 * period.0).max(SHORTEST);
        // Ninths of a unit beyond the first; like a Golomb ruler, no two sums of neighbours are equal.
        let shares = [0, 7, 3, 12, 1, 9, 16, 5, 14, 2, 11, 18, 4, 8, 15];
        Pattern((0..=2 * TIMES as usize).map(|nth| Nanoseconds(unit + unit * shares[nth % shares.len()] / 9)).collect())
    }

    /// Sum of its times.
    pub fn length(&self) -> Nanoseconds {
        self.0.iter().copied().sum()
    }
}

/// Keeps every core that this process may use busy by `pattern`; returns the busy times. Ends early when `end` says so.
///
/// # Errors
/// The usable cores cannot be determined.
pub fn load(pattern: &Pattern, end: &(dyn Fn() -> bool + Sync)) -> Result<Vec<(Nanoseconds, Nanoseconds)>> {
    let cores = crate::affinity::allowed()?.len();
    let mut times = Vec::new();
    for (nth, length) in pattern.0.iter().enumerate() {
        let from = monotonic();
        let until = from + *length;
        if nth % 2 == 0 {
            rest(until, end);
        } else {
            burn(cores, until, end);
            times.push((from, monotonic()));
        }
        if end() {
            break;
        }
    }
    Ok(times)
}

const SLICE: u64 = 20_000_000;

fn rest(until: Nanoseconds, end: &dyn Fn() -> bool) {
    while monotonic() < until && !end() {
        sleep_until(until.min(Nanoseconds(monotonic().0 + SLICE)));
    }
}

fn burn(cores: usize, until: Nanoseconds, end: &dyn Fn() -> bool) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                let mut number = 1.000_000_1_f64;
                while !over.load(Ordering::Relaxed) {
                    // Arithmetic draws more than a wait.
                    for _ in 0..1000 {
                        number = std::hint::black_box(number * 1.000_000_3).fract() + 1.0;
                    }
                }
            });
        }
        rest(until, end);
        over.store(true, Ordering::Relaxed);
    });
}
