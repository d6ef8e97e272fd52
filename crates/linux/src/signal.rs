//! Interruption as a flag: Ctrl-C and SIGTERM ask a long run to end in order.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use machine::{Fault, Nanoseconds, Result};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::thread::{ClockId, clock_nanosleep_absolute};

use crate::clock;

/// The first signal received; 0: none.
static ASKED: AtomicI32 = AtomicI32::new(0);

/// An event descriptor, readable from the first signal on, for sleeping threads. The number is for the handler.
static EVENT: OnceLock<OwnedFd> = OnceLock::new();
static EVENT_NUMBER: AtomicI32 = AtomicI32::new(-1);

extern "C" fn ask(signal: libc::c_int) {
    let _ = ASKED.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed);
    let one = 1_u64;
    // SAFETY: write(2) is async-signal-safe and reads eight bytes of a local. The descriptor is kept by `EVENT`; before
    // there is one the number is no descriptor, which the call refuses. It does not block and leaves `errno` as it was,
    // because an event counter takes another 1 until it is near 2^64.
    unsafe { libc::write(EVENT_NUMBER.load(Ordering::Relaxed), (&raw const one).cast(), 8) };
}

/// Lets the first SIGINT or SIGTERM of each kind only raise the flag; a second one ends the process.
pub fn watch() -> Result<()> {
    if EVENT.get().is_none() {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event =
            event.map_err(|e| Fault::because("event descriptor", e, "raise the limit on open files (ulimit -n)"));
        let event = EVENT.get_or_init({
            let event = event?;
            move || event
        });
        EVENT_NUMBER.store(event.as_raw_fd(), Ordering::Relaxed);
    }
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: all-zero bytes are a valid sigaction: no handler, no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = ask as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
        // SAFETY: `action` is initialised; its handler only exchanges an atomic, which is async-signal-safe.
        if unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } != 0 {
            let error = io::Error::last_os_error();
            return Err(Fault::because(format!("signal {signal}"), error, "run without a filter on sigaction"));
        }
    }
    Ok(())
}

/// Whether a signal has asked this process to end.
pub fn interrupted() -> bool {
    ASKED.load(Ordering::Relaxed) != 0
}

/// A descriptor that is readable from the first signal on; `None` before [`watch`].
pub fn asked() -> Option<BorrowedFd<'static>> {
    EVENT.get().map(AsFd::as_fd)
}

/// Sleeps until `time`, or until a signal asks this process to end.
pub fn sleep_until(time: Nanoseconds) {
    while !interrupted() && clock_nanosleep_absolute(ClockId::Monotonic, &clock::timespec(time)) == Err(Errno::INTR) {}
}

/// The exit status of a command that a signal ended early, by the convention of shells: 130 after Ctrl-C, 143 after
/// SIGTERM. `None`: no signal came.
pub fn exit_status() -> Option<u8> {
    let signal = ASKED.load(Ordering::Relaxed);
    (signal != 0).then_some(128 + signal as u8)
}

/// The exit status of a server, for which SIGTERM is the normal end.
pub fn exit_status_of_server() -> Option<u8> {
    exit_status().filter(|status| *status == 128 + libc::SIGINT as u8)
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[test]
    fn the_first_signal_asks_and_does_not_kill() {
        // A relay of another test may take signals of the process.
        if !skip::alone() {
            return;
        }
        assert!(!interrupted() && exit_status().is_none());
        watch().unwrap();
        kill_process(getpid(), Signal::TERM).unwrap();
        let mut asked = [rustix::event::PollFd::from_borrowed_fd(asked().unwrap(), rustix::event::PollFlags::IN)];
        let limit = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
        // The handler may run in this thread during the wait.
        let woken = std::iter::repeat_with(|| rustix::event::poll(&mut asked, Some(&limit)));
        assert_eq!({ woken }.find(|woken| *woken != Err(Errno::INTR)), Some(Ok(1)));
        assert!(interrupted());
        assert_eq!((exit_status(), exit_status_of_server()), (Some(143), None));
    }
}
