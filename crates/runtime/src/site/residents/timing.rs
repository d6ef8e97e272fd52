//! Timing of an offcode's calls and messages, by samples: reading the clock costs as much as a small offcode does.

use std::time::{Duration, Instant};

use machine::Nanoseconds;

use super::super::evidence::Timed;

/// Number of batches of which one is timed.
const EVERY: u64 = 16;

pub(super) struct Timing {
    batches: u64,
    time: Duration,
    uses: u64,
    /// Whether the last batch was timed, whose rest is done in the coming turn.
    follows: bool,
    /// Time that reading the clock takes by itself.
    clock: Duration,
}

impl Timing {
    pub fn new() -> Self {
        let clock = (0..EVERY).map(|_| Instant::now().elapsed()).min().unwrap_or_default();
        Timing { batches: 0, time: Duration::ZERO, uses: 0, follows: false, clock }
    }

    /// To be called before a batch is served.
    #[inline]
    pub fn batch(&mut self) -> Option<Instant> {
        self.batches += 1;
        self.batches.is_multiple_of(EVERY).then(Instant::now)
    }

    /// To be called before a turn.
    #[inline]
    pub fn turn(&mut self) -> Option<Instant> {
        self.follows.then(Instant::now)
    }

    /// After either; `gathers`: the offcode may leave these uses to its next turn.
    #[inline]
    pub fn done(&mut self, begun: Option<Instant>, uses: usize, gathers: bool) {
        let Some(begun) = begun else { return };
        self.time += begun.elapsed().saturating_sub(self.clock);
        self.uses += uses as u64;
        self.follows = gathers;
    }

    pub fn timed(&self) -> Option<Timed> {
        let time = Nanoseconds(self.time.as_nanos() as u64);
        (self.uses > 0).then_some(Timed { uses: self.uses, time })
    }
}
