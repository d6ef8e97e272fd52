//! Ticks, and the moments from which their rate follows.

use machine::{Source, processor};
use record::layout::{Moment, clock};

/// The processor's counter where it is fit to measure time, else CLOCK_MONOTONIC.
pub fn kind() -> u32 {
    if processor::counter_is_fit(&Source::live()) { clock::COUNTER } else { clock::MONOTONIC }
}

/// Whether the kernel has found the counter wrong since the start.
pub fn is_given_up(kind: u32) -> bool {
    kind == clock::COUNTER && !processor::counter_is_kept(&Source::live())
}

/// Ticks of at least about a millisecond.
pub fn long(kind: u32) -> u64 {
    match kind {
        clock::MONOTONIC => 1_000_000,
        // Arm's counter runs at 1 GHz or less.
        _ if cfg!(target_arch = "aarch64") => 1 << 20,
        _ => 1 << 22,
    }
}

/// The right shift that makes ticks units of about a nanosecond.
pub fn shift(kind: u32) -> u32 {
    u32::from(kind == clock::COUNTER && cfg!(target_arch = "x86_64"))
}

pub fn ticks(kind: u32) -> u64 {
    if kind == clock::MONOTONIC {
        return nanoseconds(libc::CLOCK_MONOTONIC);
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the counter.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: Linux lets programs read the counter.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks) };
        ticks
    }
}

/// [`ticks`] once all that the thread did before is over: a processor may read its counter while loads are on their way.
pub fn settled(kind: u32) -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction.
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the barrier changes no state.
    unsafe {
        core::arch::asm!("isb")
    };
    ticks(kind)
}

pub fn nanoseconds(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock is one that every Linux has.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Ticks per nanosecond, measured over two milliseconds.
pub fn rate(kind: u32) -> f64 {
    if kind == clock::MONOTONIC {
        return 1.0;
    }
    let from = moment(kind);
    while nanoseconds(libc::CLOCK_MONOTONIC) < from.monotonic + 2_000_000 {
        std::hint::spin_loop();
    }
    let to = moment(kind);
    to.ticks.saturating_sub(from.ticks) as f64 / to.monotonic.saturating_sub(from.monotonic).max(1) as f64
}

/// The least ticks that a reading of the clock takes.
pub fn reading(kind: u32) -> u64 {
    (0..64).map(|_| ticks(kind).wrapping_sub(ticks(kind)).wrapping_neg()).min().unwrap_or(0)
}

/// The clocks at one moment: the shortest of three readings.
pub fn moment(kind: u32) -> Moment {
    let read = || {
        let before = ticks(kind);
        let monotonic = nanoseconds(libc::CLOCK_MONOTONIC);
        let after = ticks(kind);
        let realtime = nanoseconds(libc::CLOCK_REALTIME);
        (after.wrapping_sub(before), Moment { ticks: before + after.wrapping_sub(before) / 2, monotonic, realtime })
    };
    (0..3).map(|_| read()).min_by_key(|(took, _)| *took).map(|(_, moment)| moment).unwrap_or_default()
}
