//! Hardware counters of one thread, user and kernel side together (`perf_event_open(2)`).

use std::fs;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use machine::{CoreId, Reading};
use rustix::io::Errno;

machine::named! {
    /// The event to count.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum CounterKind {
        Cycles = "cycles",
        Instructions = "instructions",
        /// Misses of the last-level cache.
        CacheMisses = "cache misses",
    }
}

impl CounterKind {
    /// PERF_COUNT_HW_*.
    fn config(self) -> u64 {
        match self {
            CounterKind::Cycles => 0,
            CounterKind::Instructions => 1,
            CounterKind::CacheMisses => 3,
        }
    }
}

const PERF_TYPE_HARDWARE: u32 = 0;
/// TOTAL_TIME_ENABLED and TOTAL_TIME_RUNNING.
const READ_FORMAT: u64 = 0b11;
const FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// `struct perf_event_attr` as of PERF_ATTR_SIZE_VER0, which every kernel takes.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

const _: () = assert!(size_of::<Attributes>() == 64);

/// One counter, running since it was opened.
#[derive(Debug)]
pub struct Counter {
    file: fs::File,
}

/// A counter's value with the times that tell whether it shared its hardware with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Count {
    value: u64,
    enabled: u64,
    running: u64,
}

impl Count {
    /// The increase since `from`; scaled up, and so modelled, where the counter did not run all the time.
    pub fn since(self, from: Count) -> Reading<u64> {
        let (value, enabled, running) =
            (self.value - from.value, self.enabled - from.enabled, self.running - from.running);
        if running == enabled {
            Reading::Measured(value)
        } else if running == 0 {
            Reading::absent("the counter got no time on the hardware: others use all of its counters")
        } else {
            Reading::Modelled((u128::from(value) * u128::from(enabled) / u128::from(running)) as u64)
        }
    }
}

impl Counter {
    /// Counts `kind` for thread `thread` of this process.
    pub fn open(kind: CounterKind, thread: i32) -> Reading<Self> {
        let attributes = Attributes {
            kind: PERF_TYPE_HARDWARE,
            size: size_of::<Attributes>() as u32,
            config: kind.config(),
            read_format: READ_FORMAT,
            ..Attributes::default()
        };
        let error = match open(&attributes, thread, -1) {
            Ok(file) => return Reading::Measured(Counter { file }),
            Err(error) => error,
        };
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        refused(kind, errno, fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok().as_deref())
    }

    pub(super) fn read(&self) -> std::io::Result<Count> {
        let mut bytes = [0; 24];
        (&self.file).read_exact(&mut bytes)?;
        let word = |i: usize| u64::from_ne_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("eight bytes"));
        Ok(Count { value: word(0), enabled: word(1), running: word(2) })
    }
}

/// An event of a PMU: the PMU's number and the event's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PmuEvent {
    kind: u32,
    config: u64,
}

/// The event of the PMU whose folder in sysfs is `pmu`; `None` where it has none.
pub(super) fn pmu_event(pmu: &Path, event: &str) -> Option<PmuEvent> {
    let kind = fs::read_to_string(pmu.join("type")).ok()?.trim().parse().ok()?;
    let text = fs::read_to_string(pmu.join("events").join(event)).ok()?;
    let config = u64::from_str_radix(text.trim().strip_prefix("event=0x")?, 16).ok()?;
    Some(PmuEvent { kind, config })
}

/// An event of one core, whatever runs on it.
#[derive(Debug)]
pub(super) struct CoreCounter {
    file: fs::File,
}

impl CoreCounter {
    pub fn open(event: PmuEvent, core: CoreId) -> std::io::Result<CoreCounter> {
        let attributes = Attributes {
            kind: event.kind,
            size: size_of::<Attributes>() as u32,
            config: event.config,
            ..Attributes::default()
        };
        open(&attributes, -1, core.0 as i32).map(|file| CoreCounter { file })
    }

    pub fn read(&self) -> std::io::Result<u64> {
        let mut bytes = [0; 8];
        (&self.file).read_exact(&mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

fn open(attributes: &Attributes, thread: i32, core: i32) -> std::io::Result<fs::File> {
    // SAFETY: `attributes` is a whole perf_event_attr of the size that it states and lives across the call.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const *attributes, thread, core, -1i32, FLAG_FD_CLOEXEC)
    };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }.into())
}

fn refused<T>(kind: CounterKind, errno: Errno, paranoid: Option<&str>) -> Reading<T> {
    let name = kind.name();
    match errno {
        Errno::NOENT | Errno::OPNOTSUPP | Errno::NODEV | Errno::NXIO => Reading::absent(format!(
            "{name}: this machine has no such hardware counter ({errno}); virtual machines often have none"
        )),
        Errno::ACCESS | Errno::PERM => {
            let level = paranoid.map_or("unknown", str::trim);
            Reading::not_permitted(
                format!("{name}: kernel.perf_event_paranoid is {level}"),
                "run as root, or set kernel.perf_event_paranoid to 1",
            )
        }
        Errno::NOSYS => Reading::absent(format!("{name}: this kernel is built without performance events")),
        other => Reading::absent(format!("{name}: {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_or_says_why_not() {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        match Counter::open(CounterKind::Instructions, thread) {
            Reading::Measured(counter) => {
                let from = counter.read().unwrap();
                let mut x = 1u64;
                for _ in 0..100_000 {
                    x = std::hint::black_box(x.wrapping_mul(3));
                }
                let counted = counter.read().unwrap().since(from);
                assert!(counted.value().is_none_or(|&n| n >= 100_000), "{counted:?}");
            }
            other => {
                let said = format!("{:?}", other.map(|_| ()));
                assert!(said.contains("instructions: "), "{said}");
                skip::part(said);
            }
        }
    }

    #[test]
    fn no_hardware_and_no_permission_are_two_answers() {
        let absent: Reading<()> = refused(CounterKind::Cycles, Errno::NOENT, None);
        assert!(matches!(absent, Reading::Absent { .. }));
        let denied: Reading<()> = refused(CounterKind::Cycles, Errno::ACCESS, Some("3\n"));
        let Reading::NotPermitted { reason, next } = denied else { panic!("{denied:?}") };
        assert!(reason.contains("is 3") && next.contains("paranoid to 1"));
    }

    #[test]
    fn a_shared_counter_is_scaled_and_says_so() {
        let from = Count { value: 10, enabled: 100, running: 100 };
        let until = |value, enabled, running| Count { value, enabled, running }.since(from);
        assert_eq!(until(30, 200, 200), Reading::Measured(20));
        assert_eq!(until(30, 300, 200), Reading::Modelled(40));
        assert!(matches!(until(10, 300, 100), Reading::Absent { .. }));
    }
}
