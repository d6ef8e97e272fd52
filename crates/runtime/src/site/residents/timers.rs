//! The timers of one offcode.

use machine::Nanoseconds;
use offcode::service::TIMERS_EACH;
use offcode::{State, Wake};

/// The table of a state that timers travel in, which authors do not see.
const TABLE: &str = "site/timers";

pub(super) struct Timers {
    set: [Wake; TIMERS_EACH],
    /// Time before which no timer is due.
    pub next: Nanoseconds,
    /// Wake-ups so far.
    pub woken: u64,
}

impl Timers {
    pub fn new() -> Timers {
        Timers { set: [Wake::NEVER; TIMERS_EACH], next: Wake::NEVER.at, woken: 0 }
    }

    /// `timer` is below [`TIMERS_EACH`].
    pub fn set(&mut self, timer: u8, wake: Wake) {
        self.set[usize::from(timer)] = wake;
        self.look();
    }

    fn look(&mut self) {
        self.next = self.set.iter().map(|wake| wake.at).min().unwrap_or(Wake::NEVER.at);
    }

    /// Whether this timer is due; if so, it is set to its next time.
    pub fn take(&mut self, timer: u8, now: Nanoseconds) -> bool {
        let wake = &mut self.set[usize::from(timer)];
        if wake.at > now || *wake == Wake::NEVER {
            return false;
        }
        *wake = match wake.every.0 {
            0 => Wake::NEVER,
            every => {
                let missed = (now.0 - wake.at.0) / every;
                Wake { at: Nanoseconds(wake.at.0.saturating_add(every.saturating_mul(missed + 1))), ..*wake }
            }
        };
        self.look();
        self.woken += 1;
        true
    }

    /// Saves the time that is left, as clocks of two sites differ.
    pub fn save(&self, state: &mut State, now: Nanoseconds) {
        for (timer, wake) in self.set.iter().enumerate().filter(|(_, wake)| **wake != Wake::NEVER) {
            let left = [wake.at.0.saturating_sub(now.0), wake.every.0];
            let left: Vec<u8> = left.iter().flat_map(|time| time.to_le_bytes()).collect();
            state.put(TABLE, &[timer as u8], &left);
        }
    }

    pub fn restore(&mut self, state: &mut State, now: Nanoseconds) {
        for (timer, left) in taken_out(state) {
            if let ([timer], [left, every]) = (&*timer, left.as_chunks().0)
                && usize::from(*timer) < TIMERS_EACH
            {
                let [left, every] = [left, every].map(|time| u64::from_le_bytes(*time));
                self.set(*timer, Wake { at: Nanoseconds(now.0.saturating_add(left)), every: Nanoseconds(every) });
            }
        }
    }
}

/// Removes the timers from a state, for a body that has none.
pub(in crate::site) fn taken_out(state: &mut State) -> Vec<(Vec<u8>, Vec<u8>)> {
    state.take(TABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(now: u64) -> Nanoseconds {
        Nanoseconds(now)
    }

    #[test]
    fn one_that_is_late_is_woken_once_and_keeps_its_beat() {
        let mut timers = Timers::new();
        timers.set(2, Wake::at(at(100)).every(at(10)));
        timers.set(5, Wake::at(at(95)));
        assert_eq!(timers.next, at(95));
        assert!(!timers.take(2, at(99)) && timers.take(5, at(99)) && !timers.take(5, at(1000)));
        assert!(timers.take(2, at(137)) && !timers.take(2, at(137)));
        assert_eq!((timers.next, timers.woken), (at(140), 2));
        timers.set(2, Wake::NEVER);
        assert!(!timers.take(2, at(u64::MAX)));
    }

    #[test]
    fn they_go_along_by_the_time_that_is_left() {
        let (mut here, mut there) = (Timers::new(), Timers::new());
        here.set(1, Wake::at(at(1_000)).every(at(50)));
        here.set(3, Wake::at(at(10)));
        let mut state = State::new(4);
        state.keep("count", &7u64);
        here.save(&mut state, at(400));
        let mut state = State::decode(&state.encode().unwrap()).unwrap();
        there.restore(&mut state, at(5_000_000));
        assert_eq!(state.records().count(), 1, "the author's code sees its own");
        assert!(there.take(3, at(5_000_000)), "what was due before is due");
        assert!(!there.take(1, at(5_000_599)) && there.take(1, at(5_000_600)));
        // What came from elsewhere is no reason to fail.
        state.put(TABLE, &[200], &[0; 16]);
        state.put(TABLE, &[1, 2], &[0; 3]);
        there.restore(&mut state, at(0));
        assert_eq!(state.records().count(), 1);
    }
}
