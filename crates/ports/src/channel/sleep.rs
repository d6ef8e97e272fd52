//! Waiting for the next message.

use std::time::{Duration, Instant};

use machine::Nanoseconds;

use super::held_end::HeldEnd;
use super::word::{WRITING, Word};

/// Polls before falling asleep: about a microsecond, in case the answer is on its way.
const POLLS: u32 = 1000;
/// Longest time until a sleeper notices that an end in another process was killed.
const GLANCE: Duration = Duration::from_millis(50);

/// Sleeps until `is_ready` or `is_alone`, at most `limit`; `word` changes when it becomes ready. Returns whether it is.
pub(super) fn sleep_until(
    end: &HeldEnd,
    word: &Word,
    limit: Nanoseconds,
    is_ready: impl Fn() -> bool,
    is_alone: impl Fn() -> bool,
) -> bool {
    if (0..POLLS).any(|_| is_ready()) {
        return true;
    }
    let start = Instant::now();
    let limit = Duration::from_nanos(limit.0);
    loop {
        let seen = word.load();
        if is_ready() {
            return true;
        }
        let left = limit.saturating_sub(start.elapsed());
        if left.is_zero() {
            return false;
        }
        // A message that is being written is ready soon, unless its writer was killed.
        if seen & WRITING != 0 && !is_alone() {
            std::thread::yield_now();
            continue;
        }
        // Marked before the check: an end that leaves after the check finds the mark and wakes this thread.
        let marked = word.mark(seen);
        if is_alone() {
            return is_ready();
        }
        if marked {
            word.sleep(seen, if end.is_away() { left.min(GLANCE) } else { left });
        }
    }
}
