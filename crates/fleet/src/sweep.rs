//! Removing the folders of steps that left no summary: their node died, or they were killed before it was made.
//!
//! A step is dead if Slurm does not know its job. Folders are listed before Slurm is asked, so that Slurm knows the job of each that
//! is listed and runs. What was written lately stays all the same.
//!
//! A folder is its user's, who may put anything there, also while it is swept. It is held open, links are not followed, and nothing
//! goes that its user could not have removed: entries of folders of the same user and file system, no deeper than a step makes
//! them.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use machine::{Fault, Nanoseconds, Result};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat, unlinkat};
use rustix::io::Errno;

use crate::spool::NAMED;

/// Folder of the spool with a folder for each step.
const RUNNING: &CStr = c"running";
const FLAGS: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);
/// Levels of folders below a step's.
const DEPTH: usize = 1;

/// What became of the folders of dead steps.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Swept {
    pub removed: u64,
    /// Those that stay, or of which something stays, each with the reason, up to [`NAMED`].
    pub left: Vec<(OsString, String)>,
}

/// Removes what dead steps left, unless something was written there since `quiet`. `jobs` asks Slurm for all jobs that it knows.
///
/// # Errors
/// The spool cannot be read, or Slurm does not answer; nothing is removed.
pub fn sweep(spool: &Path, quiet: Nanoseconds, jobs: impl FnOnce() -> Result<BTreeSet<u64>>) -> Result<Swept> {
    let unread = |e: Errno| {
        let next = "name the folder of summaries: plimsoll fleet add DIR";
        Fault::because(format!("spool {}", spool.display()), e, next)
    };
    let above = openat(CWD, spool, FLAGS, Mode::empty()).map_err(unread)?;
    let running = match open(&above, RUNNING) {
        Err(Errno::NOENT) => return Ok(Swept::default()),
        opened => opened.map_err(unread)?,
    };
    let mut steps = Vec::new();
    for name in names(&running).map_err(unread)? {
        let name = name.map_err(unread)?;
        steps.extend(job_of(&name).map(|job| (job, name)));
    }
    let mut swept = Swept::default();
    if steps.is_empty() {
        return Ok(swept);
    }
    let alive = jobs()?;
    for (_, name) in steps.into_iter().filter(|(job, _)| !alive.contains(job)) {
        match remove_step(&running, &name, quiet) {
            Ok(is_removed) => swept.removed += u64::from(is_removed),
            Err(why) if swept.left.len() < NAMED => {
                swept.left.push((OsString::from_vec(name.into_bytes()), why.to_string()));
            }
            Err(_) => {}
        }
    }
    Ok(swept)
}

/// The job of a step's folder, `JOB.STEP.RESTART`, or `JOB.STEP.ended` while its summary is made.
fn job_of(name: &CStr) -> Option<u64> {
    let mut words = name.to_str().ok()?.split('.');
    let (job, step, last) = (words.next()?.parse::<u32>().ok()?, words.next()?, words.next()?);
    let is_one = step.parse::<u32>().is_ok() && (last == "ended" || last.parse::<u32>().is_ok());
    (is_one && words.next().is_none()).then_some(job.into())
}

/// Whether a step's folder was removed, as nothing was written there since `quiet`.
fn remove_step(running: &OwnedFd, name: &CStr, quiet: Nanoseconds) -> io::Result<bool> {
    let folder = match open(running, name) {
        // Another sweep took it, or it is none.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
        opened => opened?,
    };
    let owner = fstat(&folder)?;
    if newest(&folder, &owner, DEPTH)? > i128::from(quiet.0) {
        return Ok(false);
    }
    empty(&folder, &owner, DEPTH)?;
    unlinkat(running, name, AtFlags::REMOVEDIR)?;
    Ok(true)
}

fn open(above: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    openat(above, name, FLAGS | OFlags::NOFOLLOW, Mode::empty())
}

/// A folder below a step's of this owner.
fn below(above: &OwnedFd, name: &CStr, owner: &Stat, depth: usize) -> io::Result<OwnedFd> {
    if depth == 0 {
        return Err(io::Error::other("it has folders that no step makes"));
    }
    let folder = open(above, name)?;
    let found = fstat(&folder)?;
    match (found.st_uid, found.st_dev) == (owner.st_uid, owner.st_dev) {
        true => Ok(folder),
        false => Err(io::Error::other("it has another user's folder")),
    }
}

fn names(folder: &OwnedFd) -> Result<impl Iterator<Item = Result<CString, Errno>>, Errno> {
    let entries = Dir::read_from(folder)?.map(|entry| entry.map(|entry| entry.file_name().to_owned()));
    Ok(entries.filter(|name| !name.as_ref().is_ok_and(|name| [c".", c".."].contains(&&**name))))
}

/// When an entry, or what is said of it, was last changed: a user cannot set the latter back. Nanoseconds since 1970.
fn moment(of: &Stat) -> i128 {
    let changed = (of.st_ctime, of.st_ctime_nsec);
    let written = (of.st_mtime, of.st_mtime_nsec);
    let nanoseconds = |(seconds, rest)| i128::from(seconds) * 1_000_000_000 + rest as i128;
    nanoseconds(changed).max(nanoseconds(written))
}

/// The newest moment of a folder and all that is in it.
fn newest(folder: &OwnedFd, owner: &Stat, depth: usize) -> io::Result<i128> {
    let mut newest = moment(&fstat(folder)?);
    for name in names(folder)? {
        let name = name?;
        let found = statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        newest = newest.max(moment(&found));
        if FileType::from_raw_mode(found.st_mode).is_dir() {
            newest = newest.max(self::newest(&below(folder, &name, owner, depth)?, owner, depth - 1)?);
        }
    }
    Ok(newest)
}

fn empty(folder: &OwnedFd, owner: &Stat, depth: usize) -> io::Result<()> {
    for name in names(folder)? {
        let name = name?;
        match unlinkat(folder, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ISDIR) => {
                empty(&below(folder, &name, owner, depth)?, owner, depth - 1)?;
                unlinkat(folder, &name, AtFlags::REMOVEDIR)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
