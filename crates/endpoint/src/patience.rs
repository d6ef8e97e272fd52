//! How long a caller that waits polls before it lets others run.
//!
//! Whether anybody else needs the core shows in how long giving it up takes: nobody, and the call returns at once; a
//! rank that shares the core, and it runs meanwhile. So patience shrinks to nothing while there is a rival, which may be
//! who is waited for, and grows again when there is none.

use std::time::{Duration, Instant};

/// Empty polls between two yields on a core that nobody else wants, and on one that somebody does.
const MOST: u32 = 2048;
const LEAST: u32 = 8;
/// A yield that took longer let somebody run.
const SWITCH: Duration = Duration::from_micros(3);

pub struct Patience {
    polls: u32,
    limit: u32,
    /// There is a rival for certain.
    yields: bool,
}

impl Patience {
    pub fn new(yields: bool) -> Self {
        Patience { polls: 0, limit: if yields { LEAST } else { MOST }, yields }
    }

    /// After a poll that found nothing. A pause instruction would cost more than the poll.
    #[inline]
    pub fn relax(&mut self) {
        self.polls += 1;
        if self.yields || self.polls >= self.limit {
            self.give_way();
        }
    }

    #[cold]
    fn give_way(&mut self) {
        self.polls = 0;
        let before = Instant::now();
        std::thread::yield_now();
        self.limit = if before.elapsed() > SWITCH { LEAST } else { (self.limit * 2).min(MOST) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_stays_between_its_bounds() {
        let mut patience = Patience::new(false);
        for _ in 0..20 * MOST {
            patience.relax();
            assert!((LEAST..=MOST).contains(&patience.limit) && patience.polls < MOST);
        }
    }
}
