//! Resources that one thread of this process used: CPU time, context switches, hardware counters.
//!
//! A thread that busy-waits looks fully used to the kernel, whatever it achieved; and softirq work on top of a thread
//! is part of its CPU time on kernels without IRQ_TIME_ACCOUNTING.

use std::fs;

use machine::accounting::ThreadCost;
use machine::{CoreId, Fault, Nanoseconds, Reading, Result};
use rustix::io::Errno;

use super::counters::{Count, Counter, CounterKind};

/// The kernel's number of the calling thread.
pub fn current_thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Meters one thread of this process, from that thread or from another.
///
/// Opened once; `begin` and `end` around each block cost about 2 us on the thread itself and 60 us from another.
pub struct ThreadMeter {
    end: String,
    role: String,
    thread: i32,
    counters: [Reading<Counter>; 3],
    begun: Option<Snapshot>,
}

struct Snapshot {
    cpu: Nanoseconds,
    switches: Switches,
    core: Option<CoreId>,
    counts: [Option<Count>; 3],
}

/// Context switches of a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Switches {
    /// Switches because the thread waited for something.
    pub voluntary: u64,
    /// Switches because another thread was to run.
    pub involuntary: u64,
}

impl ThreadMeter {
    /// `end` is `local` or `remote`, `role` the thread's task; both go into the result.
    pub fn open(end: impl Into<String>, role: impl Into<String>, thread: i32) -> Result<Self> {
        let meter = ThreadMeter {
            end: end.into(),
            role: role.into(),
            thread,
            counters: [CounterKind::Cycles, CounterKind::Instructions, CounterKind::CacheMisses]
                .map(|kind| Counter::open(kind, thread)),
            begun: None,
        };
        meter.snapshot()?;
        Ok(meter)
    }

    pub fn begin(&mut self) -> Result<()> {
        self.begun = Some(self.snapshot()?);
        Ok(())
    }

    /// The thread's use since the last `begin`.
    pub fn end(&mut self) -> Result<ThreadCost> {
        let now = self.snapshot()?;
        let from = self.begun.take().ok_or_else(|| {
            Fault::new(format!("meter of thread {}", self.role), "it was ended before it was begun", "call begin first")
        })?;
        let count = |i: usize| match (&self.counters[i], now.counts[i], from.counts[i]) {
            (Reading::Measured(_), Some(now), Some(from)) => now.since(from),
            (Reading::Measured(_), ..) => Reading::absent("the counter could not be read"),
            (Reading::NotPermitted { reason, next }, ..) => Reading::not_permitted(reason, next),
            (Reading::Absent { reason }, ..) => Reading::absent(reason),
            (Reading::Modelled(_), ..) => unreachable!("a counter is opened or refused"),
        };
        let core = match (from.core, now.core) {
            (Some(before), Some(after)) if before == after => Reading::Measured(after),
            (Some(before), Some(after)) => Reading::absent(format!("it moved from {before} to {after}")),
            _ => Reading::absent("the kernel did not say where it ran"),
        };
        Ok(ThreadCost {
            end: self.end.clone(),
            role: self.role.clone(),
            core,
            cpu: Reading::Measured(now.cpu - from.cpu),
            voluntary_switches: Reading::Measured(now.switches.voluntary.saturating_sub(from.switches.voluntary)),
            involuntary_switches: Reading::Measured(now.switches.involuntary.saturating_sub(from.switches.involuntary)),
            cycles: count(0),
            instructions: count(1),
            cache_misses: count(2),
        })
    }

    fn snapshot(&self) -> Result<Snapshot> {
        let gone = |e: Errno| {
            let subject = format!("thread {} ({})", self.thread, self.role);
            Fault::because(subject, e, "meter a thread of this process while it lives")
        };
        let counts = self.counters.each_ref().map(|c| c.value().and_then(|counter| counter.read().ok()));
        let (switches, core) = if self.thread == current_thread() {
            (own_switches(), Some(CoreId(rustix::thread::sched_getcpu() as u32)))
        } else {
            let read = |name: &str| {
                fs::read_to_string(format!("/proc/self/task/{}/{name}", self.thread))
                    .map_err(|e| gone(Errno::from_io_error(&e).unwrap_or(Errno::IO)))
            };
            (switches_of_status(&read("status")?).unwrap_or_default(), core_of_stat(&read("stat")?))
        };
        Ok(Snapshot { cpu: cpu_time(self.thread).map_err(gone)?, switches, core, counts })
    }
}

/// CPU time up to now, also of a running thread; `/proc` gives it only as of the last tick.
fn cpu_time(thread: i32) -> std::result::Result<Nanoseconds, Errno> {
    // The kernel's encoding of 'scheduler clock of this thread' (CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED).
    clock_time((!thread << 3) | 4 | 2)
}

/// The value of a processor-time clock.
pub(super) fn clock_time(clock: libc::clockid_t) -> std::result::Result<Nanoseconds, Errno> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours and lives across the call.
    match unsafe { libc::clock_gettime(clock, &raw mut time) } {
        0 => Ok(Nanoseconds(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::SRCH)),
    }
}

fn own_switches() -> Switches {
    // SAFETY: all-zero is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is ours and lives across the call, which cannot fail for RUSAGE_THREAD.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    Switches { voluntary: usage.ru_nvcsw as u64, involuntary: usage.ru_nivcsw as u64 }
}

/// The context switches in the text of a `status` file.
pub(super) fn switches_of_status(text: &str) -> Option<Switches> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().parse().ok()
    };
    Some(Switches { voluntary: field("voluntary_ctxt_switches")?, involuntary: field("nonvoluntary_ctxt_switches")? })
}

/// The core in the text of a `stat` file: its 39th field. The second, the name, may hold blanks and parentheses.
pub(super) fn core_of_stat(text: &str) -> Option<CoreId> {
    let (_, after_name) = text.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(36)?.parse().ok().map(CoreId)
}

/// The state in the text of a `stat` file: its third field.
pub(super) fn state_of_stat(text: &str) -> Option<char> {
    let (_, after_name) = text.rsplit_once(')')?;
    after_name.trim_start().chars().next()
}

/// Time on the run queue, in the text of a `schedstat` file: its second field. A kernel without such statistics writes
/// three zeros, also for a thread that has run.
pub(super) fn run_delay_of_schedstat(text: &str) -> Option<Nanoseconds> {
    let mut numbers = text.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
    let (ran, delay, times) = (numbers.next()??, numbers.next()??, numbers.next()??);
    ((ran, delay, times) != (0, 0, 0)).then_some(Nanoseconds(delay))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    fn spin(time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn own_thread_and_sleep_are_told_apart() {
        let mut meter = ThreadMeter::open("local", "app", current_thread()).unwrap();
        meter.begin().unwrap();
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let slept = meter.end().unwrap();
        assert!(slept.voluntary_switches.value().unwrap() >= &5, "{slept:?}");

        let start = Instant::now();
        meter.begin().unwrap();
        // Runs until 20 ms of CPU time are used, however long that takes on a busy machine.
        let from = cpu_time(current_thread()).unwrap();
        while cpu_time(current_thread()).unwrap() - from < Nanoseconds(20_000_000) {
            spin(Duration::from_micros(100));
        }
        let spun = meter.end().unwrap();
        let elapsed = start.elapsed().as_nanos() as u64;
        let cpu = spun.cpu.value().unwrap().0;
        // The two kernel clocks may differ slightly.
        assert!((20_000_000..=elapsed + elapsed / 10).contains(&cpu), "{cpu} ns of {elapsed} ns");
        assert_eq!((spun.end.as_str(), spun.role.as_str()), ("local", "app"));
    }

    #[test]
    fn another_thread_is_metered_while_it_runs() {
        let (tell, told) = mpsc::channel();
        let (stop, stopped) = mpsc::channel::<()>();
        let worker = std::thread::spawn(move || {
            tell.send(current_thread()).unwrap();
            while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                spin(Duration::from_micros(100));
            }
        });
        let thread = told.recv().unwrap();
        let mut meter = ThreadMeter::open("local", "engine", thread).unwrap();
        meter.begin().unwrap();
        // On a busy machine it may take long until the thread runs.
        let (from, patience) = (cpu_time(thread).unwrap(), Instant::now() + Duration::from_secs(30));
        while cpu_time(thread).unwrap() == from && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
        let cost = meter.end().unwrap();
        stop.send(()).unwrap();
        worker.join().unwrap();
        assert!(cost.cpu.value().unwrap().0 > 0, "{cost:?}");
        // A joined thread is in /proc for a moment longer.
        while meter.begin().is_ok() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(meter.begin().is_err(), "the thread has ended");
    }

    #[test]
    fn an_end_without_a_begin_is_a_fault() {
        let mut meter = ThreadMeter::open("local", "app", current_thread()).unwrap();
        assert!(meter.end().unwrap_err().next().contains("begin"));
    }

    #[test]
    fn names_do_not_shift_the_core() {
        let fields: Vec<String> = (3..=52).map(|i| if i == 39 { "7".into() } else { "0".to_string() }).collect();
        assert_eq!(core_of_stat(&format!("12 (a) b (c)) {}", fields.join(" "))), Some(CoreId(7)));
        assert_eq!(state_of_stat(&format!("12 (a) b (c)) {}", "T 1 2")), Some('T'));
        let own = fs::read_to_string(format!("/proc/self/task/{}/stat", current_thread())).unwrap();
        assert!(core_of_stat(&own).is_some() && state_of_stat(&own) == Some('R'));
        let own = fs::read_to_string("/proc/self/status").unwrap();
        assert!(switches_of_status(&own).is_some());
    }

    #[test]
    fn a_kernel_that_counts_no_delay_has_none() {
        assert_eq!(run_delay_of_schedstat("214785 17 1\n"), Some(Nanoseconds(17)));
        assert_eq!(run_delay_of_schedstat("214785 0 1\n"), Some(Nanoseconds(0)));
        assert_eq!(run_delay_of_schedstat("0 0 0\n"), None);
        assert_eq!(run_delay_of_schedstat("1 2\n"), None);
    }

    proptest! {
        #[test]
        fn any_text_reads_without_panic(text in "[ -~\n]{0,300}", n: u64, m: u64) {
            let _ = (switches_of_status(&text), core_of_stat(&text), state_of_stat(&text), run_delay_of_schedstat(&text));
            let status = format!("Name:\tx\nvoluntary_ctxt_switches:\t{n}\nnonvoluntary_ctxt_switches:\t{m}\n");
            prop_assert_eq!(switches_of_status(&status), Some(Switches { voluntary: n, involuntary: m }));
        }
    }
}
