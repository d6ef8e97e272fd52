//! Interruption as a flag: Ctrl-C and SIGTERM ask a long run to end in good order.

use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

use machine::{Fault, Result};

static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn ask(_: libc::c_int) {
    ASKED.store(true, Ordering::Relaxed);
}

/// From now on the first SIGINT or SIGTERM of each kind only raises the flag; a second one ends the process as ever.
pub fn watch() -> Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: all-zero bytes are a valid sigaction: no handler, no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = ask as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
        // SAFETY: `action` is initialised; its handler only stores to an atomic, which is async-signal-safe.
        if unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } != 0 {
            let error = io::Error::last_os_error();
            return Err(Fault::because(format!("signal {signal}"), error, "run without a filter on sigaction"));
        }
    }
    Ok(())
}

/// Whether a signal has asked this process to end.
pub fn interrupted() -> bool {
    ASKED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[test]
    fn the_first_signal_asks_and_does_not_kill() {
        assert!(!interrupted());
        watch().unwrap();
        kill_process(getpid(), Signal::TERM).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while !interrupted() && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert!(interrupted());
    }
}
