//! Locks between processes. Any process that can open a file can lock it, so the lock is a separate file, which no
//! other user may open.

use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::fault::{Fault, FaultKind, Result};
use crate::printable;

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// The most readings of the kernel's list. It is read a page at a time, and a lock that ends meanwhile moves the others, so that
/// a reading may pass over one.
const READS: usize = 20;

/// A lock, held until it is dropped or the process ends in any way. Its file stays, empty.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Drop for Lock {
    /// Unlocks explicitly: a child between fork and exec shares the open file, so closing it alone would not unlock.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl Lock {
    /// Takes the lock in the file at `path`, which guards `subject`, within `patience`.
    ///
    /// # Errors
    /// Another process holds the lock; the fault names it and has `next`. The file cannot be written.
    pub fn take(path: &Path, subject: &str, patience: Duration, next: &str) -> Result<Lock> {
        let failed = |error: io::Error| {
            let lock = format!("{subject}: its lock {}", path.display());
            Fault::unwritable(lock, error, "grant yourself write access there")
        };
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path).map_err(failed)?;
        let until = Instant::now() + patience;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Lock { file }),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
                Err(TryLockError::WouldBlock) if Instant::now() < until => thread::sleep(PAUSE),
                Err(TryLockError::WouldBlock) => {
                    let cause = described(holder(&file), "another process has it");
                    return Err(Fault::new(subject, cause, next).of_kind(FaultKind::Busy));
                }
            }
        }
    }
}

/// The path of the lock of the file at `guarded`, which others may read.
pub fn beside(guarded: &Path) -> PathBuf {
    let mut path = guarded.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

/// Whether a process holds the lock in the file at `path`; works also for users who may not open it.
///
/// # Errors
/// The file is not there.
pub fn is_held(path: &Path) -> io::Result<bool> {
    match File::open(path) {
        Ok(file) => Ok(matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(locker(&fs::metadata(path)?).is_some()),
        Err(error) => Err(error),
    }
}

/// The process that took the lock on `file`; `None` where it has ended and another holds the lock on, or where it cannot be seen.
pub fn holder(file: &File) -> Option<u32> {
    let is_there = |process: &u32| {
        let stat = fs::read(format!("/proc/{process}/stat")).unwrap_or_default();
        // A zombie has ended.
        String::from_utf8_lossy(&stat).rsplit_once(')').is_some_and(|(_, state)| !state.starts_with(" Z"))
    };
    locker(&file.metadata().ok()?).filter(is_there)
}

/// The holder in words that a user can act on.
pub fn described(holder: Option<u32>, otherwise: &str) -> String {
    holder.map_or(otherwise.to_owned(), |process| {
        let name = fs::read(format!("/proc/{process}/comm")).unwrap_or_default();
        format!("process {process} ({}) has it", printable(String::from_utf8_lossy(&name).trim()))
    })
}

/// The process that took the lock, from the kernel's list: `1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE 0 EOF`. On an
/// overlay file system the device there is another.
fn locker(file: &Metadata) -> Option<u32> {
    let (device, inode) = (file.dev(), format!(":{}", file.ino()));
    let major = ((device >> 8) & 0xfff) | ((device >> 32) & !0xfff);
    let minor = (device & 0xff) | ((device >> 12) & !0xff);
    let whole = format!(" {major:02x}:{minor:02x}{inode} ");
    let is_of_inode = |line: &&str| {
        let mut words = line.split_whitespace();
        words.nth(1) == Some("FLOCK") && words.nth(3).is_some_and(|place| place.ends_with(&inode))
    };
    (0..READS).find_map(|_| {
        let locks = fs::read_to_string("/proc/locks").ok()?;
        let line = locks.lines().filter(is_of_inode).max_by_key(|line| line.contains(&whole))?;
        line.split_whitespace().nth(4)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn a_held_lock_names_its_holder_and_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = beside(&folder.path().join("guarded"));
        assert!(is_held(&path).is_err(), "it is not there");
        let lock = Lock::take(&path, "subject", Duration::ZERO, "next").unwrap();
        let fault = Lock::take(&path, "subject", Duration::ZERO, "next").unwrap_err();
        let words = (fault.kind(), fault.subject(), fault.next());
        assert_eq!(words, (FaultKind::Busy, "subject", "next"));
        assert!(fault.cause().starts_with(&format!("process {} (", std::process::id())), "{fault}");
        assert!(is_held(&path).unwrap());
        thread::scope(|scope| {
            let waiting = scope.spawn(|| Lock::take(&path, "subject", LIMIT, "next").map(drop));
            drop(lock);
            waiting.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_holder_is_found_while_others_lock_and_unlock() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: usize| File::create(folder.path().join(name.to_string())).unwrap();
        let (ends, begin) = (AtomicBool::new(false), Barrier::new(4));
        let churn = &|first: usize| {
            let files: Vec<File> = (first..first + 200).map(open).collect();
            begin.wait();
            while !ends.load(Relaxed) {
                files.iter().for_each(|file| file.try_lock().unwrap());
                files.iter().for_each(|file| file.unlock().unwrap());
            }
        };
        thread::scope(|scope| {
            for first in [1, 201, 401] {
                scope.spawn(move || churn(first));
            }
            begin.wait();
            let missed = (0..200).filter(|_| {
                let held = open(0);
                held.try_lock().unwrap();
                holder(&held) != Some(std::process::id())
            });
            let missed = missed.count();
            ends.store(true, Relaxed);
            assert_eq!(missed, 0);
        });
    }

    #[test]
    fn a_lock_that_is_given_back_is_free_also_where_a_new_process_has_its_file_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = beside(&folder.path().join("guarded"));
        let lock = Lock::take(&path, "subject", Duration::ZERO, "next").unwrap();
        let as_after_a_fork = lock.file.try_clone().unwrap();
        drop(lock);
        assert!(!is_held(&path).unwrap());
        drop(as_after_a_fork);
    }

    #[test]
    fn other_users_see_that_a_lock_is_held_and_cannot_hold_it() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let guarded = folder.path().join("guarded");
        fs::write(&guarded, "").unwrap();
        fs::set_permissions(&guarded, Permissions::from_mode(0o644)).unwrap();
        let path = beside(&guarded);
        let lock = Lock::take(&path, "subject", Duration::ZERO, "next").unwrap();
        let theirs = skip::another_user(|| {
            assert!(is_held(&path).unwrap());
            assert_eq!(File::open(&path).unwrap_err().kind(), ErrorKind::PermissionDenied);
            let guarded = File::open(&guarded).unwrap();
            guarded.try_lock().unwrap();
            guarded
        });
        drop(lock);
        if theirs.is_some() {
            Lock::take(&path, "subject", LIMIT, "next").unwrap();
        }
    }
}
