//! Signals as events, for a process that passes them on to a child; none is lost between two waits.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use machine::{Fault, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

use crate::ending;

/// Signals that users and batch systems send to a job.
const PASSED_ON: [libc::c_int; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

/// A signal received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    pub number: i32,
    /// Whether the terminal sent it, to every process in the foreground: a child in the same group has it already.
    pub by_terminal: bool,
}

impl Received {
    /// Whether it asks a job to end: Ctrl-C, or SIGTERM.
    pub fn ends(&self) -> bool {
        matches!(self.number, libc::SIGINT | libc::SIGTERM)
    }
}

/// Signals of this process, blocked and read as events while this lives.
///
/// Make it before other threads are started: a thread that does not block the signals would take them. A child inherits
/// what its parent blocks: see [`Relay::release`].
#[derive(Debug)]
pub struct Relay {
    signals: OwnedFd,
    before: libc::sigset_t,
    /// The child attended last, and its end.
    ending: Mutex<Option<(u32, OwnedFd)>>,
}

impl Relay {
    pub fn open() -> Result<Relay> {
        let refused = |error| Fault::because("signals", error, "run without a filter on signalfd");
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises `set`, sigaddset adds valid numbers to it, pthread_sigmask reads it and, when
        // it succeeds, initialises `before`.
        let (set, before) = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in PASSED_ON {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            match libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) {
                0 => (set.assume_init(), before.assume_init()),
                error => return Err(refused(io::Error::from_raw_os_error(error))),
            }
        };
        // SAFETY: `set` is initialised and read only.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(refused(io::Error::last_os_error()));
        }
        // SAFETY: signalfd has just returned this descriptor, which nothing else owns.
        Ok(Relay { signals: unsafe { OwnedFd::from_raw_fd(fd) }, before, ending: Mutex::new(None) })
    }

    /// Makes a child start with this process's earlier signal mask.
    pub fn release(&self, command: &mut Command) {
        let before = self.before;
        let restore = move || {
            // SAFETY: `before` is initialised; pthread_sigmask is async-signal-safe.
            match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) } {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        };
        // SAFETY: between fork and exec `restore` makes one system call on a value of its own; it neither allocates,
        // locks nor unwinds.
        unsafe { command.pre_exec(restore) };
    }

    /// Waits until `child` has ended or `patience` is over, passing on every signal that comes meanwhile. Returns these signals.
    pub fn attend(&self, child: &Child, patience: Duration) -> Result<Vec<Received>> {
        let failed = |error: io::Error| Fault::because("waiting for a child", error, "raise the limit on open files");
        let pid = Pid::from_child(child);
        let mut ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        let known = ending.take().filter(|(of, _)| *of == child.id());
        let known = known.map_or_else(|| ending::of(child).map(|ended| (child.id(), ended)), Ok).map_err(failed)?;
        let (_, ended) = &*ending.insert(known);
        let mut events = [PollFd::new(&self.signals, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
        let patience = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
        match poll(&mut events, Some(&patience)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(failed(error.into())),
        }
        // Its number may be another child's later.
        if !events[1].revents().is_empty() {
            *ending = None;
        }
        let mut received = Vec::new();
        while let Some(signal) = next(self.signals.as_fd()) {
            if !signal.by_terminal
                && let Some(number) = Signal::from_named_raw(signal.number)
            {
                // A child that has just ended needs no signal.
                let _ = kill_process(pid, number);
            }
            received.push(signal);
        }
        Ok(received)
    }

    /// Waits for the end of `child`, passing on every signal that comes meanwhile. Where waiting fails the child is
    /// killed, so that it does not go on alone.
    pub fn wait(&self, child: &mut Child) -> Result<ExitStatus> {
        loop {
            let ended = child.try_wait().map_err(|e| Fault::because("the command", e, "run it again"))?;
            if let Some(status) = ended {
                return Ok(status);
            }
            if let Err(fault) = self.attend(child, Duration::from_secs(1)) {
                let _ = child.kill();
                let _ = child.wait();
                return Err(fault);
            }
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // Signals since the last wait would now take their default action, although the sender meant the child.
        while next(self.signals.as_fd()).is_some() {}
        // SAFETY: `before` was initialised by pthread_sigmask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

fn next(signals: BorrowedFd<'_>) -> Option<Received> {
    let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
    let length = size_of::<libc::signalfd_siginfo>();
    // SAFETY: the buffer is `length` bytes and ours.
    let read = unsafe { libc::read(signals.as_raw_fd(), info.as_mut_ptr().cast(), length) };
    if read != length as isize {
        return None;
    }
    // SAFETY: the structure is plain integers, all zeros before and written whole by the kernel.
    let info = unsafe { info.assume_init() };
    Some(Received { number: info.ssi_signo as i32, by_terminal: info.ssi_code == libc::SI_KERNEL })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;
    use std::time::Instant;

    use rustix::process::getpid;

    use super::*;

    #[test]
    fn a_signal_goes_to_the_child_and_the_child_blocks_none() {
        // Threads of other tests do not block the signal, so it is sent to this thread.
        let relay = Relay::open().unwrap();
        let mut command = Command::new("sleep");
        relay.release(&mut command);
        let mut child = command.arg("600").stdin(Stdio::null()).spawn().unwrap();
        let process = getpid().as_raw_nonzero().get();
        // SAFETY: the signal goes to this thread, which blocks it.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, process, libc::gettid(), libc::SIGUSR2) };
        assert_eq!(sent, 0);
        let until = Instant::now() + Duration::from_secs(20);
        let mut received = Vec::new();
        let status = loop {
            received.extend(relay.attend(&child, Duration::from_millis(100)).unwrap());
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(Instant::now() < until, "the child did not get the signal"),
            }
        };
        assert_eq!(status.signal(), Some(libc::SIGUSR2));
        assert_eq!(received, [Received { number: libc::SIGUSR2, by_terminal: false }]);
    }
}
