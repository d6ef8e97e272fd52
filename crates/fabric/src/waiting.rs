//! Waits in blocking calls. At placement `app` there is nothing to sleep on, since the caller's own polls move the messages: a
//! wait polls and yields, and after some time sleeps between polls.

use std::ffi::c_int;
use std::thread;
use std::time::{Duration, Instant};

/// Time of polling at full speed before the first sleep.
const SPIN: Duration = Duration::from_millis(2);
const REST: Duration = Duration::from_micros(50);

pub struct Wait {
    started: Instant,
    /// End of the wait; `None` for never.
    limit: Option<Duration>,
    polls: u32,
}

impl Wait {
    /// `timeout` in milliseconds; negative waits for ever.
    pub fn new(timeout: c_int) -> Self {
        let limit = u64::try_from(timeout).ok().map(Duration::from_millis);
        Wait { started: Instant::now(), limit, polls: 0 }
    }

    /// Pauses a little after a poll that found nothing; false once the time is over.
    pub fn goes_on(&mut self) -> bool {
        self.polls += 1;
        if !self.polls.is_multiple_of(16) && self.limit.is_none_or(|limit| !limit.is_zero()) {
            return true;
        }
        let waited = self.started.elapsed();
        if self.limit.is_some_and(|limit| waited >= limit) {
            return false;
        }
        if waited > SPIN {
            thread::sleep(REST);
        } else {
            thread::yield_now();
        }
        true
    }
}
