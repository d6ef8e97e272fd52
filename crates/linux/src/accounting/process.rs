//! Repeated looks at other processes: where a thread runs, how often it is taken off its core and for how long.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use machine::{CoreId, Nanoseconds};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::job::{Stat, time_of_schedstat};
use super::thread::{Switches, clock_time, core_of_stat, run_delay_of_schedstat, state_of_stat, switches_of_status};

/// A thread of any process, watched by open files of `/proc`, which stay valid for it alone when its number is reused.
#[derive(Debug)]
pub struct ThreadWatch {
    process: u32,
    thread: u32,
    stat: File,
    status: File,
    /// The file of scheduling statistics; `None` where the kernel has none.
    schedstat: Option<File>,
}

/// State of a thread at a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadState {
    /// The core that it ran on last.
    pub core: CoreId,
    /// Whether it is stopped by a signal or a debugger.
    pub is_stopped: bool,
    /// Whether it is blocked: neither running nor runnable nor stopped.
    pub is_blocked: bool,
    /// Whether no signal wakes it, as during a wait for a disk.
    pub is_uninterruptible: bool,
}

/// The cause for which a thread is blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockedBy {
    /// A timer that it set.
    Sleep,
    /// A lock that another thread or process holds.
    Lock,
    /// A disk, a file system or a page.
    Storage,
    /// Something else, or the kernel does not say.
    Other,
}

impl ThreadWatch {
    pub fn open(process: u32, thread: u32) -> io::Result<ThreadWatch> {
        let open = |name: &str| File::open(format!("/proc/{process}/task/{thread}/{name}"));
        let (stat, status, schedstat) = (open("stat")?, open("status")?, open("schedstat").ok());
        Ok(ThreadWatch { process, thread, stat, status, schedstat })
    }

    /// The thread's state; `None` once it has ended.
    pub fn whereabouts(&self) -> Option<ThreadState> {
        let stat = text(&self.stat, &mut [0; 1024])?;
        let state = state_of_stat(&stat)?;
        Some(ThreadState {
            core: core_of_stat(&stat)?,
            is_stopped: matches!(state, 'T' | 't'),
            is_blocked: matches!(state, 'S' | 'D'),
            is_uninterruptible: state == 'D',
        })
    }

    /// The cause of blocking, where `there` found the thread blocked a moment ago.
    pub fn blocked_by(&self, there: &ThreadState) -> BlockedBy {
        let place = format!("/proc/{}/task/{}/wchan", self.process, self.thread);
        blocked_by(&fs::read_to_string(place).unwrap_or_default(), there.is_uninterruptible)
    }

    /// Its running time so far, which may lag by a tick of the kernel; `None` once it has ended.
    pub fn ran(&self) -> Option<Nanoseconds> {
        let exact = self.schedstat.as_ref().and_then(|file| time_of_schedstat(&text(file, &mut [0; 128])?));
        exact.or_else(|| Some(Stat::of(&text(&self.stat, &mut [0; 1024])?)?.time()))
    }

    /// Its time runnable while others had its core, so far; `None` once it has ended, and where the kernel does not count it.
    pub fn run_delay(&self) -> Option<Nanoseconds> {
        run_delay_of_schedstat(&text(self.schedstat.as_ref()?, &mut [0; 128])?)
    }

    /// Its context switches; `None` once it has ended.
    pub fn switches(&self) -> Option<Switches> {
        switches_of_status(&text(&self.status, &mut [0; 16 << 10])?)
    }
}

/// The cause by the kernel function of the thread; the kernel writes 0 where it does not tell.
fn blocked_by(function: &str, is_uninterruptible: bool) -> BlockedBy {
    let is_of = |parts: &[&str]| parts.iter().any(|part| function.contains(part));
    match () {
        () if is_of(&["nanosleep"]) => BlockedBy::Sleep,
        () if is_of(&["futex", "flock", "posix_lock", "setlk", "semtimedop"]) => BlockedBy::Lock,
        () if is_of(&["vfork"]) => BlockedBy::Other,
        () if is_uninterruptible => BlockedBy::Storage,
        () if is_of(&["nfs", "rpc_wait", "fuse", "io_schedule", "folio_wait"]) => BlockedBy::Storage,
        () => BlockedBy::Other,
    }
}

fn text(file: &File, buffer: &mut [u8]) -> Option<String> {
    let length = file.read_at(buffer, 0).ok().filter(|length| *length > 0)?;
    Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

/// The processor time of a process with all of its threads, to this instant; `None` once it has ended.
pub fn process_time(process: u32) -> Option<Nanoseconds> {
    // CPUCLOCK_SCHED.
    process_clock(process, 2)
}

/// The part of [`process_time`] outside of the kernel, to the kernel's ticks.
pub fn user_time(process: u32) -> Option<Nanoseconds> {
    // CPUCLOCK_VIRT.
    process_clock(process, 1)
}

/// The kernel's encoding of 'clock of this process'.
fn process_clock(process: u32, which: i32) -> Option<Nanoseconds> {
    let process = i32::try_from(process).ok().filter(|process| *process > 0)?;
    clock_time((!process << 3) | which).ok()
}

/// The processor time, user and system, of all children of this process that have ended and were waited for, and of
/// their own such children.
pub fn times_of_children() -> [Nanoseconds; 2] {
    // SAFETY: all-zero is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is ours and lives across the call, which cannot fail for RUSAGE_CHILDREN.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    let time = |of: libc::timeval| Nanoseconds(of.tv_sec as u64 * 1_000_000_000 + of.tv_usec as u64 * 1000);
    [time(usage.ru_utime), time(usage.ru_stime)]
}

/// The processor time of the calling thread.
pub fn own_thread_time() -> Nanoseconds {
    clock_time(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or_default()
}

/// Whether the process exists, zombies included.
pub fn is_there(process: u32) -> bool {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    // A process of another user exists, though it may not be signalled.
    process.is_some_and(|process| test_kill_process(process) != Err(Errno::SRCH))
}

/// Identifier of this process's PID namespace on its host; 0 where `/proc` does not tell it.
pub fn pid_namespace() -> u32 {
    namespace_of("self").unwrap_or(0)
}

fn namespace_of(process: &str) -> Option<u32> {
    fs::metadata(format!("/proc/{process}/ns/pid")).ok().map(|namespace| namespace.ino() as u32)
}

/// The number in this PID namespace of the process `number` of `namespace`; 0 stands for an unknown namespace, taken
/// for this one. `None` where it has ended or is not visible here.
pub fn number_here(number: u32, namespace: u32) -> Option<u32> {
    if namespace == 0 || namespace == pid_namespace() {
        return Some(number);
    }
    let inner = |process: &str| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        line.split_whitespace().next_back()?.parse::<u32>().ok()
    };
    let processes = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    processes
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .find(|name| namespace_of(name) == Some(namespace) && inner(name) == Some(number))
        .and_then(|name| name.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_process_of_another_pid_namespace_is_known_by_its_number_here() {
        let Some(unshare) = skip::tool("unshare") else { return };
        let script = "stat -Lc %i /proc/self/ns/pid; exec sleep 600";
        let mut command = Command::new(unshare);
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]).stdout(Stdio::piped());
        let mut outer = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(outer.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Ok(namespace) = line.trim().parse() else {
            outer.wait().unwrap();
            return skip::test("no PID namespace of its own: run as root");
        };
        assert_ne!(namespace, pid_namespace());
        let found = number_here(1, namespace).unwrap();
        assert!(found > 1 && is_there(found), "{found}");
        assert_eq!(number_here(4_000_000, namespace), None);
        assert_eq!((number_here(1, 0), number_here(7, pid_namespace())), (Some(1), Some(7)));
        outer.kill().unwrap();
        outer.wait().unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while number_here(1, namespace).is_some() {
            assert!(Instant::now() < until, "it does not end with its parent");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn what_a_thread_waits_for_is_told_by_the_kernels_function() {
        let of = |function| blocked_by(function, false);
        assert_eq!(["hrtimer_nanosleep", "hrtimer_nanosleep_restart"].map(of), [BlockedBy::Sleep; 2]);
        assert_eq!(["futex_wait_queue_me", "futex_do_wait", "flock_lock_inode_wait"].map(of), [BlockedBy::Lock; 3]);
        assert_eq!(["0", "", "do_sys_poll", "pipe_read"].map(of), [BlockedBy::Other; 4]);
        assert_eq!(blocked_by("0", true), BlockedBy::Storage);
        assert_eq!(blocked_by("wait_for_vfork_done", true), BlockedBy::Other);
    }

    #[test]
    fn another_process_is_watched_until_it_ends() {
        let script = "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; read -r _";
        let mut child = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
        let watch = ThreadWatch::open(child.id(), child.id()).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while watch.switches().is_none_or(|switches| switches.voluntary == 0) {
            assert!(Instant::now() < until, "it does not wait");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(watch.whereabouts().is_some_and(|there| !there.is_stopped) && is_there(child.id()));
        while !watch.whereabouts().unwrap().is_blocked {
            assert!(Instant::now() < until, "it does not wait");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_ne!(watch.blocked_by(&watch.whereabouts().unwrap()), BlockedBy::Storage, "it waits for a pipe");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        while !watch.whereabouts().unwrap().is_stopped {
            assert!(Instant::now() < until, "it does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
        assert!(process_time(child.id()).unwrap() > Nanoseconds(1_000_000));
        assert!(watch.ran().is_some());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!((watch.whereabouts(), watch.switches(), watch.run_delay()), (None, None, None));
        assert_eq!(watch.ran(), None);
        assert_eq!(process_time(child.id()), None);
        assert!(own_thread_time() > Nanoseconds(0));
    }
}
