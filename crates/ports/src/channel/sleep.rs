//! Waiting for the next message.

use std::time::{Duration, Instant};

use machine::Nanoseconds;

use super::seat::Seat;
use super::word::{WRITING, Word};

/// Looks before falling asleep: about a microsecond, for the answer that is on its way.
const LOOKS: u32 = 1000;
/// How long a sleeper takes to see that an end in another process was killed.
const GLANCE: Duration = Duration::from_millis(50);

/// Sleeps until `is_ready`, at most `limit`; `word` changes when it becomes so. Ends too when `is_alone`. Says whether it
/// is ready.
pub(super) fn sleep_until(
    seat: &Seat,
    word: &Word,
    limit: Nanoseconds,
    is_ready: impl Fn() -> bool,
    is_alone: impl Fn() -> bool,
) -> bool {
    if (0..LOOKS).any(|_| is_ready()) {
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
        // A message that is being written is soon there, unless its writer was killed meanwhile.
        if seen & WRITING != 0 && !is_alone() {
            std::thread::yield_now();
            continue;
        }
        // Before the question who is left: whoever leaves after it finds the mark and wakes us.
        let marked = word.mark(seen);
        if is_alone() {
            return is_ready();
        }
        if marked {
            word.sleep(seen, if seat.is_away() { left.min(GLANCE) } else { left });
        }
    }
}
