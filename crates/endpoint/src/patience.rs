//! How long a caller that waits polls before it lets others run.
//!
//! A core may be wanted by who is waited for, another rank that was put there too, or by somebody else. Giving it up helps in
//! the first case alone: what was waited for is then there at once. So patience shrinks when a yield let somebody run and the
//! next polls find something, and grows when it did not help: a time slice given to another thread is lost.

use std::time::{Duration, Instant};

/// Empty polls between two yields at most, and at least.
const MOST: u32 = 1 << 15;
const LEAST: u32 = 8;
/// At first: some ten microseconds.
const FIRST: u32 = 1024;
/// A yield that took longer let somebody run.
const SWITCH: Duration = Duration::from_micros(3);
/// Polls after a yield within which what is found was found thanks to it.
const SOON: u32 = 4;

pub struct Patience {
    polls: u32,
    limit: u32,
    /// The last yield let somebody run, and nothing was found since.
    switched: bool,
    /// There is a rival for certain.
    yields: bool,
}

impl Patience {
    pub fn new(yields: bool) -> Self {
        Patience { polls: 0, limit: if yields { LEAST } else { FIRST }, switched: false, yields }
    }

    /// Waits a little after a poll that found nothing. A pause instruction would cost more than the poll.
    #[inline]
    pub fn relax(&mut self) {
        self.polls += 1;
        if self.polls >= self.limit {
            self.give_way();
        }
    }

    /// Notes a poll that found something.
    #[inline]
    pub fn found(&mut self) {
        if self.switched {
            self.learn();
        }
        self.polls = 0;
    }

    #[cold]
    fn learn(&mut self) {
        self.switched = false;
        if self.polls <= SOON {
            self.limit = (self.limit / 4).max(LEAST);
        }
    }

    #[cold]
    fn give_way(&mut self) {
        if !self.yields {
            // What the last yield gave away was not what was waited for.
            self.limit = (self.limit * 2).min(MOST);
        }
        self.polls = 0;
        let before = Instant::now();
        std::thread::yield_now();
        self.switched = before.elapsed() > SWITCH;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_grows_where_yields_do_not_help_and_shrinks_where_they_do() {
        let mut patience = Patience::new(false);
        for _ in 0..4 * MOST {
            patience.relax();
        }
        assert_eq!(patience.limit, MOST);
        for _ in 0..10 {
            patience.switched = true;
            patience.polls = 1;
            patience.found();
        }
        assert_eq!(patience.limit, LEAST);
        patience.switched = true;
        patience.polls = SOON + 1;
        patience.found();
        assert_eq!(patience.limit, LEAST, "late finds say nothing");
    }
}
