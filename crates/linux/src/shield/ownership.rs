//! One owner a core: a lock that the kernel drops with its holder.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use machine::{CoreId, Fault, FaultKind, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::subject;

/// The lock on the core's folder in sysfs, which is there for every user and leaves no file behind.
pub(super) struct Ownership {
    _lock: File,
}

impl Ownership {
    /// A fault that names the owner where there is one.
    pub fn take(core: CoreId) -> Result<Ownership> {
        let path = format!("/sys/devices/system/cpu/cpu{}", core.0);
        let fault = |e: std::io::Error| Fault::because(subject(core), e, "mount sysfs: `mount -t sysfs sysfs /sys`");
        let folder = File::open(path).map_err(fault)?;
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Ownership { _lock: folder }),
            Err(Errno::WOULDBLOCK) => {
                let owner = holder(&folder).map_or("another shield has it".into(), |process| {
                    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
                    format!("process {process} ({}) has it", name.trim())
                });
                let next = "choose another core, or wait until it ends";
                Err(Fault::new(subject(core), owner, next).of_kind(FaultKind::Busy))
            }
            Err(e) => Err(fault(e.into())),
        }
    }
}

/// The process that holds the lock, as the kernel lists it: `1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE 0 EOF`.
fn holder(folder: &File) -> Option<u32> {
    let inode = format!(":{}", folder.metadata().ok()?.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let line = locks.lines().find(|line| {
        let mut words = line.split_whitespace();
        line.contains(" FLOCK ") && words.any(|word| word.matches(':').count() == 2 && word.ends_with(&inode))
    })?;
    line.split_whitespace().nth(4)?.parse().ok()
}
