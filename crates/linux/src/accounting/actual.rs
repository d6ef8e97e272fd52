//! The clock of a core while it worked, by two counters of the processor: APERF grows with the core's cycles, MPERF at
//! a fixed rate, both while the core is not idle.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use machine::{CoreId, Hertz, Reading};

use super::counters::{CoreCounter, pmu_event};

/// Model-specific registers: the time stamp counter, MPERF and APERF (Intel SDM volume 4, AMD PPR).
const REGISTERS: [u64; 3] = [0x10, 0xe7, 0xe8];
const EVENTS: [&str; 3] = ["tsc", "mperf", "aperf"];

/// Both counters of one core, and its time stamp counter, which has MPERF's rate.
#[derive(Debug)]
pub struct ActualClock {
    from: Counters,
    last: Look,
}

#[derive(Debug)]
enum Counters {
    /// Events of the kernel's `msr` PMU.
    Pmu([CoreCounter; 3]),
    /// The device file of the core's registers.
    Registers(File),
}

#[derive(Debug, Clone, Copy)]
struct Look {
    at: Instant,
    /// Values in the order of [`EVENTS`].
    counts: [u64; 3],
}

impl ActualClock {
    /// Opens the counters of `core`: by perf's `msr` PMU, else by the device of its registers.
    pub fn open(core: CoreId) -> Reading<ActualClock> {
        ActualClock::below(Path::new("/"), core)
    }

    fn below(root: &Path, core: CoreId) -> Reading<ActualClock> {
        let pmu = root.join("sys/bus/event_source/devices/msr");
        let events = EVENTS.map(|event| pmu_event(&pmu, event));
        let from = match events {
            [Some(tsc), Some(mperf), Some(aperf)] => {
                match [tsc, mperf, aperf].map(|event| CoreCounter::open(event, core)) {
                    [Ok(tsc), Ok(mperf), Ok(aperf)] => Reading::Measured(Counters::Pmu([tsc, mperf, aperf])),
                    _ => registers(root, core),
                }
            }
            _ => registers(root, core),
        };
        let from = match from {
            Reading::Measured(from) | Reading::Modelled(from) => from,
            missing => return missing.map(|_| unreachable!("it holds no value")),
        };
        match look(&from) {
            // A hypervisor may show the counters without running them.
            Ok(last) if last.counts[1] > 0 && last.counts[2] > 0 => Reading::Measured(ActualClock { from, last }),
            Ok(_) => Reading::absent("APERF and MPERF stand still: the hypervisor does not pass them on"),
            Err(error) => Reading::absent(format!("APERF and MPERF cannot be read: {error}")),
        }
    }

    /// The mean clock while the core worked, since the last call or since it was opened.
    pub fn since(&mut self) -> Reading<Hertz> {
        match look(&self.from) {
            Ok(now) => clock(std::mem::replace(&mut self.last, now), now),
            Err(error) => Reading::absent(format!("APERF and MPERF cannot be read any more: {error}")),
        }
    }
}

/// The mean clock: cycles over the counts of a fixed clock, times that clock's rate.
fn clock(from: Look, to: Look) -> Reading<Hertz> {
    let [tsc, mperf, aperf] = std::array::from_fn(|nth| to.counts[nth].wrapping_sub(from.counts[nth]) as f64);
    let seconds = (to.at - from.at).as_secs_f64();
    match mperf > 0.0 && seconds > 0.0 {
        true => Reading::Measured(Hertz((aperf / mperf * tsc / seconds).round() as u64)),
        false => Reading::absent("the core rested all the time"),
    }
}

fn registers(root: &Path, core: CoreId) -> Reading<Counters> {
    let path = root.join(format!("dev/cpu/{}/msr", core.0));
    match File::open(&path) {
        Ok(file) => Reading::Measured(Counters::Registers(file)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Reading::absent("neither perf's msr PMU has APERF and MPERF nor is there /dev/cpu/N/msr (`modprobe msr`)")
        }
        Err(error) => Reading::not_permitted(
            format!("/dev/cpu/{}/msr: {error}", core.0),
            "run as root, or set kernel.perf_event_paranoid to 0",
        ),
    }
}

fn look(from: &Counters) -> std::io::Result<Look> {
    let mut counts = [0; 3];
    for (nth, count) in counts.iter_mut().enumerate() {
        *count = match from {
            Counters::Pmu(counters) => counters[nth].read()?,
            Counters::Registers(file) => {
                let mut bytes = [0; 8];
                file.read_exact_at(&mut bytes, REGISTERS[nth])?;
                u64::from_ne_bytes(bytes)
            }
        };
    }
    Ok(Look { at: Instant::now(), counts })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_clock_is_of_the_time_in_which_the_core_worked() {
        let at = Instant::now();
        let from = Look { at, counts: [1_000, u64::MAX - 9, 500] };
        // A tenth of a second at a fixed 2 GHz; the core worked for a quarter of it, at 1.5 times that clock.
        let to = Look { at: at + Duration::from_millis(100), counts: [200_001_000, 49_999_990, 75_000_500] };
        assert_eq!(clock(from, to), Reading::Measured(Hertz(3_000_000_000)));
        assert!(matches!(clock(to, Look { at: to.at + Duration::from_millis(1), ..to }), Reading::Absent { .. }));
    }

    #[test]
    fn registers_are_read_where_they_are_told_and_absence_has_its_reason() {
        let place = tempfile::tempdir().unwrap();
        let none = ActualClock::below(place.path(), CoreId(0));
        assert!(matches!(&none, Reading::Absent { reason } if reason.contains("modprobe msr")), "{none:?}");
        std::fs::create_dir_all(place.path().join("dev/cpu/0")).unwrap();
        let registers = place.path().join("dev/cpu/0/msr");
        let write = |counts: [u64; 3]| {
            let mut bytes = vec![0; 0xe8 + 8];
            // Registers are eight bytes at their number; written in this order, since their bytes overlap in a plain file.
            bytes[0x10..0x18].copy_from_slice(&counts[0].to_ne_bytes());
            bytes[0xe8..0xf0].copy_from_slice(&counts[2].to_ne_bytes());
            bytes[0xe7] = counts[1] as u8;
            std::fs::write(&registers, bytes).unwrap();
        };
        write([5, 0, 0]);
        let still = ActualClock::below(place.path(), CoreId(0));
        assert!(matches!(&still, Reading::Absent { reason } if reason.contains("stand still")), "{still:?}");
        write([5, 7, 9]);
        assert!(matches!(ActualClock::below(place.path(), CoreId(0)), Reading::Measured(_)));
    }
}
