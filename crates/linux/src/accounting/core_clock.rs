//! The clock of a core: as cpufreq reports it, and the effective one, by timing dependent additions.

use std::time::{Duration, Instant};

use machine::{CoreId, Hertz, Reading, Source};

/// Rounds of a long and of a short run. Their difference takes a microsecond or two, and excludes the cost of reading the clock.
const LONG: u64 = 64;
const SHORT: u64 = 2;
const ADDITIONS: u64 = 64;

/// Runs of each length, of which the shortest counts, so that a few interrupted ones do no harm.
const RUNS: u32 = 5;

/// A long run must take this many times as long as a short one, or is made longer, where reading the clock is slow.
const LONGER: u64 = 8;
const LONGEST: u64 = LONG << 10;

/// Time in which an idle core usually reaches its clock.
const WARM_UP: Duration = Duration::from_millis(2);

/// The clock that cpufreq last saw; an idle core's says nothing of its clock under load.
pub fn told(source: &Source, core: CoreId) -> Reading<Hertz> {
    let path = format!("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq", core.0);
    match source.number::<u64>(&path).and_then(|kilohertz| kilohertz.checked_mul(1000)) {
        Some(hertz) if hertz > 0 => Reading::Measured(Hertz(hertz)),
        _ => Reading::absent("the kernel tells no clock of its cores (no cpufreq)"),
    }
}

/// The effective clock of the calling thread's core, from dependent additions, which take one cycle each. Takes some
/// ten microseconds, and needs no privilege.
pub fn effective() -> Reading<Hertz> {
    let mut rounds = LONG;
    loop {
        let (mut short, mut long) = (u64::MAX, u64::MAX);
        for _ in 0..RUNS {
            let (Some(one), Some(other)) = (timed(SHORT), timed(rounds)) else {
                return Reading::absent("clocks of this kind of processor are not timed");
            };
            (short, long) = (short.min(one), long.min(other));
        }
        if long >= LONGER * short && long > 0 {
            let cycles = (ADDITIONS * (rounds - SHORT)) as f64;
            return Reading::Measured(Hertz((cycles * 1e9 / (long - short) as f64).round() as u64));
        }
        if rounds >= LONGEST {
            return Reading::absent("the system's clock is too coarse to time a core by");
        }
        rounds *= 4;
    }
}

/// [`effective`] of `core`, to which the calling thread moves temporarily.
pub fn effective_of(core: CoreId) -> Reading<Hertz> {
    at(core, effective)
}

/// [`effective_of`] each of `cores`.
pub fn effective_of_all(cores: impl IntoIterator<Item = CoreId>) -> Vec<(CoreId, Reading<Hertz>)> {
    let cores: std::collections::BTreeSet<CoreId> = cores.into_iter().collect();
    cores.into_iter().map(|core| (core, effective_of(core))).collect()
}

/// The clock of a core under load, also of one that was idle: keeps it busy for 2 ms, or for `warm_up` where that is longer.
pub fn under_load(core: CoreId, warm_up: Option<Duration>) -> Reading<Hertz> {
    at(core, || {
        let begun = Instant::now();
        let warm_up = warm_up.map_or(WARM_UP, |asked| asked.max(WARM_UP));
        loop {
            let found = effective();
            if begun.elapsed() >= warm_up || found.value().is_none() {
                return found;
            }
        }
    })
}

fn at(core: CoreId, find: impl FnOnce() -> Reading<Hertz>) -> Reading<Hertz> {
    match crate::affinity::pin(core) {
        Ok(_pinned) => find(),
        Err(_) => Reading::absent(format!("this process may not run on {core}")),
    }
}

/// Time of `rounds` rounds of additions, ns; `None` on an unsupported processor.
fn timed(rounds: u64) -> Option<u64> {
    let begun = Instant::now();
    add(rounds).then(|| begun.elapsed().as_nanos() as u64)
}

/// Runs [`ADDITIONS`] dependent additions in each round; `false` on an unsupported processor.
#[cfg(target_arch = "x86_64")]
fn add(rounds: u64) -> bool {
    // SAFETY: the instructions change the three registers that they are given, and flags; `rounds` is above 0.
    unsafe {
        std::arch::asm!(
            "2:", ".rept 64", "add {sum}, {step}", ".endr", "sub {rounds}, 1", "jnz 2b",
            sum = inout(reg) 1u64 => _, step = in(reg) 3u64, rounds = inout(reg) rounds => _,
            options(nomem, nostack),
        );
    }
    true
}

/// Runs [`ADDITIONS`] dependent additions in each round; `false` on an unsupported processor.
#[cfg(target_arch = "aarch64")]
fn add(rounds: u64) -> bool {
    // SAFETY: the instructions change the three registers that they are given, and flags; `rounds` is above 0.
    unsafe {
        std::arch::asm!(
            "2:", ".rept 64", "add {sum}, {sum}, {step}", ".endr", "subs {rounds}, {rounds}, #1", "b.ne 2b",
            sum = inout(reg) 1u64 => _, step = in(reg) 3u64, rounds = inout(reg) rounds => _,
            options(nomem, nostack),
        );
    }
    true
}

/// Runs [`ADDITIONS`] dependent additions in each round; `false` on an unsupported processor.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn add(_: u64) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpufreq_is_read_of_a_copy_and_is_absent_on_machines_without() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("sys/devices/system/cpu/cpu3/cpufreq");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("scaling_cur_freq"), "2600130\n").unwrap();
        let source = Source::open(place.path()).unwrap();
        assert_eq!(told(&source, CoreId(3)), Reading::Measured(Hertz(2_600_130_000)));
        assert!(matches!(told(&source, CoreId(4)), Reading::Absent { .. }));
    }

    #[test]
    fn a_core_is_timed_where_the_process_may_run_and_nowhere_else() {
        let own = effective_of(*crate::affinity::allowed().unwrap().first().unwrap());
        match cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            // The clock of any processor that runs this is within these bounds.
            true => {
                assert!(own.value().is_some_and(|clock| (50_000_000..20_000_000_000).contains(&clock.0)), "{own:?}")
            }
            false => assert!(matches!(own, Reading::Absent { .. })),
        }
        let other = under_load(CoreId(9_999), None);
        assert!(matches!(&other, Reading::Absent { reason } if reason.contains("may not run")), "{other:?}");
    }
}
