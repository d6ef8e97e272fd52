//! Exclusive ownership by locks that the kernel releases with their last holder.

use std::env;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use machine::lock::described;
use machine::{Fault, Result};
use rustix::fs::{Access, access};
use rustix::process::geteuid;

/// The result of asking for a lock.
pub(crate) enum Lock {
    Taken,
    /// Another process holds it: the process that took it, or `None` where that has ended or is not visible.
    Held(Option<u32>),
}

/// Tries to lock `file`; the lock lasts until every descriptor of it is closed. No other user may be able to open it.
pub(crate) fn lock(file: &File) -> io::Result<Lock> {
    match file.try_lock() {
        Ok(()) => Ok(Lock::Taken),
        Err(TryLockError::WouldBlock) => Ok(Lock::Held(machine::lock::holder(file))),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Locks something without a file of its own, such as a core, for this user; as [`machine::lock::Lock::take`].
pub(crate) fn take(name: &str, subject: &str, patience: Duration, next: &str) -> Result<machine::lock::Lock> {
    machine::lock::Lock::take(&folder()?.join(name), subject, patience, next)
}

/// The folder of this user's locks.
fn folder() -> Result<PathBuf> {
    let user = geteuid();
    let session = || env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute());
    let runtime = if user.is_root() { Some("/run".into()) } else { session() };
    // A systemd unit may be able to write only to a private /tmp.
    let first = runtime.and_then(|folder| closed(folder.join("plimsoll-locks")).ok());
    first.map_or_else(|| closed(format!("/tmp/plimsoll-{}", user.as_raw()).into()), Ok)
}

/// Makes `folder` where it does not exist, and checks that it is closed to other users.
fn closed(folder: PathBuf) -> Result<PathBuf> {
    let subject = format!("folder of locks {}", folder.display());
    let next = "remove it, or set XDG_RUNTIME_DIR to a folder that is yours alone";
    let fault = |error: io::Error| Fault::unwritable(subject.as_str(), error, next);
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(fault(error)),
        _ => {}
    }
    // A link is not followed, since others may have made it.
    let found = fs::symlink_metadata(&folder).map_err(fault)?;
    // Even root may be unable to write there.
    access(&folder, Access::WRITE_OK).map_err(|e| fault(e.into()))?;
    if found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0 {
        return Ok(folder);
    }
    Err(Fault::new(subject, "another user has made it, or may enter it", next))
}

/// Start time of a process, in ticks since boot: the 22nd field of `stat`. The second, the name, may hold blanks and
/// parentheses. An error for a zombie, which has ended.
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    #[test]
    fn locks_are_in_no_folder_of_others_and_behind_no_link() {
        let above = tempfile::tempdir().unwrap();
        let [own, open, link] = ["own", "open", "link"].map(|name| above.path().join(name));
        for _ in 0..2 {
            assert_eq!(closed(own.clone()).unwrap(), own);
        }
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o711)).unwrap();
        symlink(&own, &link).unwrap();
        let refused = |folder: &PathBuf| {
            let fault = closed(folder.clone()).unwrap_err();
            assert_eq!(fault.cause(), "another user has made it, or may enter it");
        };
        refused(&open);
        refused(&link);
        match chown(&own, Some(skip::OTHER_USER), None) {
            Ok(()) => refused(&own),
            Err(error) => skip::part(format_args!("no folder can be another user's: {error}")),
        }
        assert!(folder().unwrap().is_dir());
    }
}
