//! The clock of traffic: CLOCK_MONOTONIC, which BPF programs read too, and sleeps and spins on it.

use std::num::NonZeroU64;
use std::sync::LazyLock;

use machine::{Fault, Nanoseconds, Result, Source, processor};
use rustix::io::Errno;
use rustix::thread::{NanosleepRelativeResult, clock_nanosleep_absolute, nanosleep};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Now. Some 20 ns, without a system call where the kernel offers that.
#[inline]
pub fn monotonic() -> Nanoseconds {
    let now = clock_gettime(ClockId::Monotonic);
    Nanoseconds(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// Whether [`ticks`] come from the core's counter.
#[inline]
pub fn is_counted() -> bool {
    static FIT: LazyLock<bool> = LazyLock::new(|| processor::counter_is_fit(&Source::live()));
    *FIT
}

/// A note for times taken by [`ticks`] without the counter.
pub const NOT_COUNTED: &str = "pieces of time were taken by CLOCK_MONOTONIC, which costs more than the core's counter: the kernel \
                               does not trust that";

/// The core's counter, which all cores share, where it is fit to measure time by, else [`monotonic`]; its rate is not
/// stated. Takes some 10 ns.
#[inline]
pub fn ticks() -> u64 {
    if !is_counted() {
        return monotonic().0;
    }
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every processor of this kind has the instruction, which changes what it returns and nothing else.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: user code may read the virtual counter under Linux; nothing else is changed.
        unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        ticks
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        monotonic().0
    }
}

pub(crate) fn timespec(time: Nanoseconds) -> Timespec {
    Timespec { tv_sec: (time.0 / 1_000_000_000) as i64, tv_nsec: (time.0 % 1_000_000_000) as i64 }
}

/// Sleeps at least for `time`. The kernel adds the thread's timer slack, 50 us unless changed, and the time to wake.
pub fn sleep_for(time: Nanoseconds) {
    let mut left = timespec(time);
    while let NanosleepRelativeResult::Interrupted(rest) = nanosleep(&left) {
        left = rest;
    }
}

/// Sleeps until `time`, so that one sleep's delay does not add to the next.
pub fn sleep_until(time: Nanoseconds) {
    while clock_nanosleep_absolute(ClockId::Monotonic, &timespec(time)) == Err(Errno::INTR) {}
}

/// Spins until `time`; returns the time at the end.
#[inline]
pub fn spin_until(time: Nanoseconds) -> Nanoseconds {
    loop {
        let now = monotonic();
        if now >= time {
            return now;
        }
        std::hint::spin_loop();
    }
}

/// How much later than asked timers of the calling thread may fire, so that the kernel can bundle them; `None` for the
/// kernel's default, 50 us.
pub fn set_timer_slack(slack: Option<Nanoseconds>) -> Result<()> {
    rustix::thread::set_current_timer_slack(slack.and_then(|slack| NonZeroU64::new(slack.0.max(1))))
        .map_err(|e| Fault::because("timer slack", e, "check seccomp filters of this container"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_the_kernels_where_the_counter_is_not_fit() {
        let [before, now, after] = [monotonic().0, ticks(), monotonic().0];
        assert!(is_counted() || (before..=after).contains(&now));
        assert!(ticks() >= now);
    }

    #[test]
    fn no_wait_ends_early() {
        let wait = Nanoseconds(300_000);
        for sleep in [sleep_for, |wait| sleep_until(monotonic() + wait), |wait| _ = spin_until(monotonic() + wait)] {
            let start = monotonic();
            sleep(wait);
            assert!(monotonic() >= start + wait);
        }
        sleep_until(Nanoseconds(1));
        set_timer_slack(Some(Nanoseconds(0))).unwrap();
        set_timer_slack(None).unwrap();
    }
}
