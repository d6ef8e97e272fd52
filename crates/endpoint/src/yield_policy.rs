//! How long a caller that waits polls before it lets others run.
//!
//! While nobody wants the core, a yield costs less than ten polls, so that after the first microseconds a caller yields often.
//! Otherwise it depends on who wants it: another rank gives the core back as soon as it waits itself; a program that computes
//! keeps it for a time slice, which delays the message. The time of a yield tells the two apart, unless ranks are known to
//! share the cores.

use std::time::{Duration, Instant};

/// Polls before the first yield of a wait: initially (some ten microseconds), at most, and at least.
const FIRST: u32 = 1024;
const MOST: u32 = 1 << 15;
const LEAST: u32 = 8;
/// Polls before a yield where ranks are known to share the cores.
const CROWDED: u32 = 1;
/// Polls between later yields of a wait where nobody wants the core.
const BETWEEN: u32 = 64;
/// A longer yield let somebody else run.
const SWITCH: Duration = Duration::from_micros(3);
/// A longer yield let somebody run who did not give the core back by itself.
const SLICE: Duration = Duration::from_millis(1);
/// A find within so many polls after a yield counts as due to the yield.
const SOON: u32 = 4;

pub struct YieldPolicy {
    polls: u32,
    /// Poll at which the next yield comes.
    next: u32,
    /// Polls before the first yield of a wait.
    first: u32,
    /// Poll of the last yield, if it let somebody run and nothing was found since.
    switched: Option<u32>,
    /// Whether ranks are known to share the cores.
    crowded: bool,
}

impl YieldPolicy {
    pub fn new(crowded: bool) -> Self {
        let first = if crowded { CROWDED } else { FIRST };
        YieldPolicy { polls: 0, next: first, first, switched: None, crowded }
    }

    /// Notes that ranks share the cores from now on.
    pub fn crowd(&mut self) {
        *self = YieldPolicy::new(true);
    }

    /// Counts a poll that found nothing, and yields if it is time; whether it did. No pause: it costs more than a poll.
    #[inline]
    pub fn relax(&mut self) -> bool {
        self.polls += 1;
        let gives_way = self.polls >= self.next;
        if gives_way {
            self.give_way();
        }
        gives_way
    }

    /// Notes a poll that found something.
    #[inline]
    pub fn found(&mut self) {
        if let Some(at) = self.switched {
            self.learn(at);
        }
        self.polls = 0;
        self.next = self.first;
    }

    #[cold]
    fn learn(&mut self, switched_at: u32) {
        self.switched = None;
        if self.polls - switched_at <= SOON {
            self.first = (self.first / 4).max(LEAST);
        }
    }

    #[cold]
    fn give_way(&mut self) {
        let before = Instant::now();
        std::thread::yield_now();
        self.gave_way(before.elapsed());
    }

    fn gave_way(&mut self, took: Duration) {
        let switched = took > SWITCH;
        self.switched = switched.then_some(self.polls);
        let wait = if self.crowded {
            CROWDED
        } else if took > SLICE {
            self.first = (self.first * 2).min(MOST);
            self.first
        } else if switched {
            LEAST
        } else {
            self.first = self.first.max((self.first * 2).min(FIRST));
            BETWEEN
        };
        // A wait ends long before the counter wraps; later polls are a new wait.
        self.next = self.polls.saturating_add(wait);
        if self.next == u32::MAX {
            (self.polls, self.next, self.switched) = (0, wait, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_nanos(300);
    const RANK: Duration = Duration::from_micros(100);
    const HOG: Duration = Duration::from_millis(3);

    /// Polls until the next yield, which takes `took`.
    fn wait(patience: &mut YieldPolicy, took: Duration) -> u32 {
        let polls = patience.next - patience.polls;
        patience.polls = patience.next;
        patience.gave_way(took);
        polls
    }

    #[test]
    fn alone_it_yields_often_but_not_at_once() {
        let mut patience = YieldPolicy::new(false);
        assert_eq!([SHORT; 3].map(|took| wait(&mut patience, took)), [FIRST, BETWEEN, BETWEEN]);
        patience.found();
        assert_eq!(wait(&mut patience, SHORT), FIRST);
    }

    #[test]
    fn a_program_that_keeps_the_core_is_given_it_ever_less() {
        let mut patience = YieldPolicy::new(false);
        assert_eq!([HOG; 3].map(|took| wait(&mut patience, took)), [FIRST, 2 * FIRST, 4 * FIRST]);
        for _ in 0..10 {
            wait(&mut patience, HOG);
        }
        assert_eq!(patience.first, MOST);
        for _ in 0..5 {
            wait(&mut patience, RANK);
            patience.polls += 1;
            patience.found();
        }
        assert!(patience.first < FIRST / 8, "yields that helped count more");
        wait(&mut patience, RANK);
        let first = patience.first;
        patience.polls += SOON + 1;
        patience.found();
        assert_eq!(patience.first, first, "late finds say nothing");
    }

    #[test]
    fn where_ranks_share_the_cores_it_yields_whoever_ran() {
        let mut patience = YieldPolicy::new(false);
        patience.crowd();
        assert_eq!([SHORT, RANK, HOG, HOG].map(|took| wait(&mut patience, took)), [CROWDED; 4]);
    }

    #[test]
    fn a_wait_may_last_for_ever() {
        let mut patience = YieldPolicy::new(false);
        (patience.polls, patience.next) = (u32::MAX - 5, u32::MAX - 5);
        patience.gave_way(RANK);
        patience.found();
        assert!(patience.next > patience.polls && patience.next <= FIRST);
    }
}
