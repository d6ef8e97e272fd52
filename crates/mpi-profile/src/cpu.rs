//! CPU time since MPI was initialized.

use crate::clock;

/// The CPU time of this thread, and of the process with the children that it waited for, at one moment, in ns.
#[derive(Debug, Clone, Copy)]
pub struct Cpu {
    tid: i32,
    thread: u64,
    process: u64,
}

impl Cpu {
    pub fn now() -> Cpu {
        // SAFETY: the call takes no arguments.
        let tid = unsafe { libc::gettid() };
        let thread = clock::nanoseconds(libc::CLOCK_THREAD_CPUTIME_ID);
        Cpu { tid, thread, process: clock::nanoseconds(libc::CLOCK_PROCESS_CPUTIME_ID) + of_children() }
    }

    /// What was used since `self`; of a thread nothing where this is another.
    pub fn used(&self) -> (u64, u64) {
        let now = Cpu::now();
        let thread = if now.tid == self.tid { now.thread.saturating_sub(self.thread) } else { 0 };
        (thread, now.process.saturating_sub(self.process))
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
