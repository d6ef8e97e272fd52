//! CPU time since MPI was initialized, and time without a core.

use std::fs;

use record::layout::Cpu as Used;

use crate::clock;

/// The times of this thread, and of the process with the children that it waited for, at one moment, in ns.
#[derive(Debug, Clone, Copy)]
pub struct Cpu {
    tid: i32,
    thread: u64,
    process: u64,
    runnable: Option<u64>,
}

impl Cpu {
    pub fn now() -> Cpu {
        // SAFETY: the call takes no arguments.
        let tid = unsafe { libc::gettid() };
        let thread = clock::nanoseconds(libc::CLOCK_THREAD_CPUTIME_ID);
        let process = clock::nanoseconds(libc::CLOCK_PROCESS_CPUTIME_ID) + of_children();
        Cpu { tid, thread, process, runnable: runnable() }
    }

    /// What was used since `self`; of a thread nothing where this is another.
    pub fn used(&self) -> Used {
        let now = Cpu::now();
        let process = now.process.saturating_sub(self.process);
        if now.tid != self.tid {
            return Used { process, ..Used::default() };
        }
        let runnable = now.runnable.zip(self.runnable).map_or(0, |(now, then)| now.saturating_sub(then) + 1);
        Used { thread: now.thread.saturating_sub(self.thread), process, runnable }
    }
}

fn of_children() -> u64 {
    // SAFETY: all zeros is a value of the type.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes the structure that it is given.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) };
    let of = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    of(usage.ru_utime) + of(usage.ru_stime)
}

/// Of this thread: time on a core, time runnable without one, times that it got one.
fn runnable() -> Option<u64> {
    fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').nth(1)?.parse().ok()
}
