//! The clock of a core: as cpufreq tells it, else by timing additions of which each needs the one before.

use std::time::Instant;

use machine::{CoreId, Hertz, Reading, Source};

/// Additions of one run, some microseconds.
const ADDITIONS: u64 = 64 * ROUNDS;
const ROUNDS: u64 = 256;

/// Runs of which the fastest counts: what interrupts a run does not.
const RUNS: u32 = 200;

/// What cpufreq last saw of a core; that of an idle core says nothing of what it would be under load.
pub fn told(source: &Source, core: CoreId) -> Reading<Hertz> {
    let path = format!("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq", core.0);
    match source.number::<u64>(&path).and_then(|kilohertz| kilohertz.checked_mul(1000)) {
        Some(hertz) if hertz > 0 => Reading::Measured(Hertz(hertz)),
        _ => Reading::absent("the kernel tells no clock of its cores (no cpufreq)"),
    }
}

/// What a core adds in a second, which takes one cycle an addition. Takes some 2 ms of the core.
pub(super) fn timed(core: CoreId) -> Reading<Hertz> {
    let Ok(_pinned) = crate::affinity::pin(core) else {
        return Reading::absent(
            "this process may not run on the core, and the kernel tells no clock of it (no cpufreq)",
        );
    };
    let run = || {
        let begun = Instant::now();
        add().then(|| begun.elapsed())
    };
    match (0..RUNS).map_while(|_| run()).min() {
        Some(fastest) if !fastest.is_zero() => {
            Reading::Measured(Hertz((ADDITIONS as f64 / fastest.as_secs_f64()).round() as u64))
        }
        _ => Reading::absent("clocks of this kind of processor are not timed, and the kernel tells none (no cpufreq)"),
    }
}

/// [`ADDITIONS`], each of which needs the one before; `false` where it is not known how.
#[cfg(target_arch = "x86_64")]
fn add() -> bool {
    // SAFETY: the instructions change the three registers that they are given, and flags.
    unsafe {
        std::arch::asm!(
            "2:", ".rept 64", "add {sum}, {step}", ".endr", "sub {rounds}, 1", "jnz 2b",
            sum = inout(reg) 1u64 => _, step = in(reg) 3u64, rounds = inout(reg) ROUNDS => _,
            options(nomem, nostack),
        );
    }
    true
}

/// [`ADDITIONS`], each of which needs the one before; `false` where it is not known how.
#[cfg(target_arch = "aarch64")]
fn add() -> bool {
    // SAFETY: the instructions change the three registers that they are given, and flags.
    unsafe {
        std::arch::asm!(
            "2:", ".rept 64", "add {sum}, {sum}, {step}", ".endr", "subs {rounds}, {rounds}, #1", "b.ne 2b",
            sum = inout(reg) 1u64 => _, step = in(reg) 3u64, rounds = inout(reg) ROUNDS => _,
            options(nomem, nostack),
        );
    }
    true
}

/// [`ADDITIONS`], each of which needs the one before; `false` where it is not known how.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn add() -> bool {
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
        let own = timed(*crate::affinity::allowed().unwrap().first().unwrap());
        match cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            // No processor that runs this is slower or faster.
            true => {
                assert!(own.value().is_some_and(|clock| (50_000_000..20_000_000_000).contains(&clock.0)), "{own:?}")
            }
            false => assert!(matches!(own, Reading::Absent { .. })),
        }
        let other = timed(CoreId(9_999));
        assert!(matches!(&other, Reading::Absent { reason } if reason.contains("may not run")), "{other:?}");
    }
}
