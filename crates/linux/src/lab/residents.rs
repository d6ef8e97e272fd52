//! The processes that live in a host.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::{Duration, Instant};

use machine::{Fault, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::namespace::Namespace;

/// Time for a process to end after it was asked to, and to vanish after it was killed.
const GRACE: Duration = Duration::from_secs(2);

/// The processes, other than this one, in the network namespace of one of `hosts`.
pub(super) fn of(hosts: &[Namespace]) -> Result<Vec<u32>> {
    let unreadable = |error| Fault::because("/proc", error, "mount it: `mount -t proc proc /proc`");
    let mut residents = Vec::new();
    for entry in fs::read_dir("/proc").map_err(unreadable)? {
        let Some(process) = entry.map_err(unreadable)?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process that has ended, or that this user may not look at, does not count.
        let Ok(namespace) = fs::metadata(format!("/proc/{process}/ns/net")) else { continue };
        if process != std::process::id() && hosts.iter().any(|host| host.inode() == namespace.ino()) {
            residents.push(process);
        }
    }
    residents.sort_unstable();
    Ok(residents)
}

/// Asks the processes in `hosts` to end, and kills the rest after two seconds. Returns their number.
pub(super) fn end(hosts: &[Namespace]) -> Result<usize> {
    let residents = of(hosts)?;
    signal(&residents, Signal::TERM);
    if !vanish(hosts)? {
        kill(hosts)?;
    }
    Ok(residents.len())
}

pub(super) fn kill(hosts: &[Namespace]) -> Result<()> {
    signal(&of(hosts)?, Signal::KILL);
    if !vanish(hosts)? {
        return Err(Fault::new(
            "lab",
            format!("processes {:?} do not end", of(hosts)?),
            "see what holds them: `cat /proc/PID/stack`",
        ));
    }
    Ok(())
}

fn signal(processes: &[u32], signal: Signal) {
    for process in processes.iter().filter_map(|process| Pid::from_raw(*process as i32)) {
        // It may have ended by itself; a later check finds the rest.
        let _ = kill_process(process, signal);
    }
}

fn vanish(hosts: &[Namespace]) -> Result<bool> {
    let deadline = Instant::now() + GRACE;
    while !of(hosts)?.is_empty() {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(true)
}
