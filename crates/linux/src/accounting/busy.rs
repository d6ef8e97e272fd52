//! Busy share of each core, with all of its causes: threads, softirqs, BPF programs.

use std::fs;
use std::time::Instant;

use machine::{CoreId, Fault, Result};

/// One core's use between two looks, as shares of the time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CoreBusy {
    pub core: CoreId,
    /// Share of the time in which the core was not idle: 0 to 1. Known to 10 ms, and exact between timer ticks, since
    /// the kernel accounts idle time by its clock (kernels with NO_HZ).
    pub busy: f64,
    /// The part of `busy` that a hypervisor gave to others.
    pub stolen: f64,
}

/// Reads `/proc/stat` before and after, which every user may.
pub struct BusyMeter {
    begun: Instant,
    ticks: Vec<Ticks>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ticks {
    core: CoreId,
    idle: u64,
    stolen: u64,
}

impl BusyMeter {
    pub fn begin() -> Result<BusyMeter> {
        let ticks = read()?;
        Ok(BusyMeter { begun: Instant::now(), ticks })
    }

    /// The use of each core since `begin`; cores that went offline meanwhile are left out. A second or more gives
    /// useful precision.
    pub fn end(&self) -> Result<Vec<CoreBusy>> {
        let elapsed = self.begun.elapsed().as_secs_f64() * rustix::param::clock_ticks_per_second() as f64;
        let now = read()?;
        let of = |from: &Ticks| now.iter().find(|now| now.core == from.core).map(|now| (*from, *now));
        let share = |from: u64, to: u64| (to.saturating_sub(from) as f64 / elapsed).clamp(0.0, 1.0);
        let busy = |(from, now): (Ticks, Ticks)| CoreBusy {
            core: from.core,
            busy: 1.0 - share(from.idle, now.idle),
            stolen: share(from.stolen, now.stolen),
        };
        Ok(self.ticks.iter().filter_map(of).map(busy).collect())
    }
}

fn read() -> Result<Vec<Ticks>> {
    let text = fs::read_to_string("/proc/stat").map_err(|e| Fault::because("/proc/stat", e, "mount procfs"))?;
    Ok(cores(&text))
}

/// `cpuN user nice system idle iowait irq softirq steal ...`
fn cores(text: &str) -> Vec<Ticks> {
    let core = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_ascii_whitespace();
        let core = CoreId(words.next()?.parse().ok()?);
        let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        Some(Ticks { core, idle: numbers.get(3)? + numbers.get(4)?, stolen: *numbers.get(7)? })
    };
    text.lines().filter(|line| !line.starts_with("cpu ")).filter_map(core).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_the_cores_and_not_the_sum() {
        let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 40 5 6 7 8 0 0\ncpu12 1 1 1 1 1 1 1 1 0 0\nintr 5 cpu\n";
        let wanted = [(0, 45, 8), (12, 2, 1)].map(|(core, idle, stolen)| Ticks { core: CoreId(core), idle, stolen });
        assert_eq!(cores(text), wanted);
    }

    #[test]
    fn a_core_that_spins_is_busy() {
        let meter = BusyMeter::begin().unwrap();
        let _pinned = crate::affinity::pin(*crate::affinity::allowed().unwrap().last().unwrap()).unwrap();
        let until = Instant::now() + Duration::from_millis(200);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        let busy = meter.end().unwrap();
        assert!(busy.iter().all(|core| (0.0..=1.0).contains(&core.busy) && core.stolen <= 1.0), "{busy:?}");
        assert!(busy.iter().any(|core| core.core == _pinned.core() && core.busy > 0.5), "{busy:?}");
    }

    proptest! {
        #[test]
        fn any_text_reads_without_panic(text in "(cpu)?[ -~\n]{0,200}") {
            let _ = cores(&text);
        }
    }
}
