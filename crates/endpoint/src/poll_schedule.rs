//! How often an endpoint polls for rare events: a poll costs a system call or two.

/// Calls between two polls for unknown callers: while nobody is there to receive from, after a first send to a peer, and at
/// most; each look doubles them.
const ALONE: u32 = 16;
const EXPECTING: u32 = 128;
const MOST: u32 = 16_384;
/// Calls that one call counts for after a yield: the caller has time, and those who ran may be calling.
const WAITED: u32 = 512;
/// Greatest number of calls without polling a network port that had nothing.
const REST: u32 = 16;

/// Schedule of polls for invitations and introductions.
pub(crate) struct PollSchedule {
    every: u32,
    calls: u32,
}

impl PollSchedule {
    pub fn new() -> PollSchedule {
        PollSchedule { every: EXPECTING, calls: 0 }
    }

    /// Polls more often, since a peer that was written to may call back.
    pub fn expect_an_answer(&mut self) {
        self.every = EXPECTING;
    }

    /// Counts a call; whether a look is due.
    #[inline]
    pub fn count(&mut self) -> bool {
        self.calls += 1;
        self.calls >= self.every
    }

    /// Counts a call that polls if a poll is due, earlier where nobody is there to receive from.
    #[inline]
    pub fn are_due(&mut self, alone: bool) -> bool {
        let due = self.count() || (alone && self.calls >= ALONE);
        if due {
            self.calls = 0;
            self.every = (self.every * 2).min(MOST);
        }
        due
    }

    pub fn waited(&mut self) {
        self.calls += WAITED;
    }
}

/// Schedule of polls of a network port, while shared memory is polled too.
#[derive(Default)]
pub(crate) struct Rest {
    left: u32,
    length: u32,
}

impl Rest {
    /// Counts a call; whether it polls.
    #[inline]
    pub fn is_over(&mut self) -> bool {
        let over = self.left == 0;
        self.left = self.left.saturating_sub(1);
        over
    }

    /// Sets the calls before the next poll: none, or more than before the last.
    #[inline]
    pub fn begin(&mut self, can_skip_poll: bool) {
        self.length = if can_skip_poll { (self.length * 2 + 1).min(REST) } else { 0 };
        self.left = self.length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls_until_due(schedule: &mut PollSchedule, alone: bool) -> u32 {
        1 + (0..).take_while(|_| !schedule.are_due(alone)).count() as u32
    }

    #[test]
    fn looks_get_rarer_until_an_answer_is_expected() {
        let mut schedule = PollSchedule::new();
        let seen: Vec<u32> = (0..9).map(|_| calls_until_due(&mut schedule, false)).collect();
        assert_eq!(seen, [128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 16_384]);
        assert_eq!(calls_until_due(&mut schedule, true), 16);
        schedule.expect_an_answer();
        assert_eq!(calls_until_due(&mut schedule, false), 128);
        schedule.waited();
        assert!(schedule.count(), "an endpoint that let others run polls at once");
    }

    #[test]
    fn a_port_that_had_nothing_rests_longer_each_time() {
        let mut rest = Rest::default();
        let mut passed = || {
            rest.begin(true);
            (0..).take_while(|_| !rest.is_over()).count()
        };
        assert_eq!([passed(), passed(), passed(), passed(), passed(), passed()], [1, 3, 7, 15, 16, 16]);
        rest.begin(false);
        assert!(rest.is_over());
    }
}
