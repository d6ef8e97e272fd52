//! One owner a thing: locks that the kernel drops with their last holder.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// What came of asking for a lock.
pub(crate) enum Lock {
    Taken,
    /// The process that took it; `None` where that has ended or cannot be seen, and another holds it on.
    Held(Option<u32>),
}

/// Asks for the lock on `file`, which lasts until every descriptor of it is closed.
pub(crate) fn lock(file: &File) -> io::Result<Lock> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock::Taken),
        Err(Errno::WOULDBLOCK) => Ok(Lock::Held(holder(file))),
        Err(error) => Err(error.into()),
    }
}

/// A holder, in words that others can act on.
pub(crate) fn described(holder: Option<u32>, otherwise: &str) -> String {
    holder.map_or(otherwise.to_owned(), |process| {
        let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        format!("process {process} ({}) has it", name.trim())
    })
}

/// The process that took the lock, as the kernel lists it: `1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE 0 EOF`.
fn holder(file: &File) -> Option<u32> {
    let inode = format!(":{}", file.metadata().ok()?.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let line = locks.lines().find(|line| {
        let mut words = line.split_whitespace();
        line.contains(" FLOCK ") && words.any(|word| word.matches(':').count() == 2 && word.ends_with(&inode))
    })?;
    line.split_whitespace().nth(4)?.parse().ok().filter(|process| start_of(*process).is_ok())
}

/// When a process started, in ticks since boot: the 22nd field of `stat`. The second, the name, may hold blanks and
/// parentheses. A zombie has ended.
pub(crate) fn start_of(process: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "no start time in stat");
    let (_, after) = text.rsplit_once(')').ok_or_else(odd)?;
    let mut fields = after.split_ascii_whitespace();
    if fields.next() == Some("Z") {
        return Err(io::ErrorKind::NotFound.into());
    }
    fields.nth(18).and_then(|field| field.parse().ok()).ok_or_else(odd)
}
