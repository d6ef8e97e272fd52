//! Taking summaries out of a spool.
//!
//! A file leaves the spool after the store has its summary, so that a killed process loses nothing, and a summary that is added
//! twice is known. What is no summary is kept aside with the reason.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use machine::{Fault, Result};
use record::untrusted::Folder;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, open, openat, renameat, unlinkat};
use rustix::io::Errno;

use crate::store::{Event, Store, Taken};
use crate::summary::{FILE_MOST, Summary};

/// Ending of a summary's file. One that is being written has another.
pub const ENDING: &str = "job";
/// Folder of the spool for what is no summary, each beside its reason.
pub const ASIDE: &str = "aside";
/// Ending of the file with the reason, behind the whole name.
pub const WHY: &str = ".why";
/// Bytes of a file name.
const NAME_MOST: usize = 255;
const BATCH: usize = 2_000;

/// What became of a spool's files.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Added {
    pub new: u64,
    /// Summaries that the store had.
    pub known: u64,
    /// Files kept aside, each with the reason, up to [`NAMED`].
    pub aside: Vec<(OsString, String)>,
    pub aside_in_all: u64,
}

/// Files kept aside that are named.
pub const NAMED: usize = 20;

/// Adds all summaries of the spool to the store.
///
/// # Errors
/// The spool cannot be read or the store not written; what was not added is still in the spool.
pub fn add(spool: &Path, store: &mut Store) -> Result<Added> {
    let mut added = Added::default();
    let all = add_to(spool, store, &mut added);
    store.note(Event::Aside, added.aside_in_all)?;
    all?;
    store.note(Event::Added, 1)?;
    Ok(added)
}

fn add_to(spool: &Path, store: &mut Store, added: &mut Added) -> Result<()> {
    let unread = |e| {
        Fault::because(format!("spool {}", spool.display()), e, "name the folder of summaries: plimsoll fleet add DIR")
    };
    let folder = Folder::open(spool, None).map_err(unread)?;
    let names: Vec<OsString> = folder.names(ENDING).map_err(unread)?.collect();
    for batch in names.chunks(BATCH) {
        let mut read = Vec::with_capacity(batch.len());
        for name in batch {
            match summary(&folder, name) {
                Ok(Some(summary)) => read.push((name, summary)),
                // Another process has taken it meanwhile.
                Ok(None) => {}
                Err(why) => added.put_aside(spool, name, &why)?,
            }
        }
        let (names, summaries): (Vec<_>, Vec<_>) = read.into_iter().unzip();
        for (name, taken) in names.into_iter().zip(store.add(&summaries)?) {
            match taken {
                Taken::New => added.new += 1,
                Taken::Known => added.known += 1,
                Taken::Contradicts => {
                    added.put_aside(spool, name, "the store has another summary of this step")?;
                    continue;
                }
            }
            remove(spool, name)?;
        }
    }
    Ok(())
}

/// The summary in a file; `None` where the file is gone, else the reason why it is none.
fn summary(folder: &Folder, name: &OsString) -> Result<Option<Summary>, String> {
    let read = || {
        let (file, mut bytes) = (folder.file(name, FILE_MOST)?, Vec::new());
        let owner = file.metadata()?.uid();
        file.take(FILE_MOST).read_to_end(&mut bytes)?;
        Ok((owner, bytes))
    };
    match read() {
        Ok((owner, bytes)) => {
            let summary = Summary::parse(&bytes)?;
            // Root writes for others.
            match owner == 0 || owner == summary.owner.user {
                true => Ok(Some(summary)),
                false => Err("it tells of another user's job".into()),
            }
        }
        Err::<_, std::io::Error>(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

impl Added {
    fn put_aside(&mut self, spool: &Path, name: &OsString, why: &str) -> Result<()> {
        let into = spool.join(ASIDE);
        let unkept =
            |e: Errno| Fault::because(into.display().to_string(), e, "free some space, or let this user write there");
        match mkdirat(CWD, &into, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(unkept(error)),
        }
        // A link that a user has put there is not followed.
        let aside =
            open(&into, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).map_err(unkept)?;
        match renameat(CWD, spool.join(name), &aside, name) {
            Ok(()) => write_why(&aside, name, why).map_err(unkept)?,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(unkept(error)),
        }
        self.aside_in_all += 1;
        if self.aside.len() < NAMED {
            self.aside.push((name.clone(), why.to_owned()));
        }
        Ok(())
    }
}

/// Writes the reason beside a file, in a new file: what a user has put under its name is not written to.
fn write_why(aside: &OwnedFd, of: &OsString, why: &str) -> Result<(), Errno> {
    let mut name = of.as_bytes()[..of.len().min(NAME_MOST - WHY.len())].to_vec();
    name.extend(WHY.as_bytes());
    match unlinkat(aside, &name[..], AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(aside, &name[..], flags, Mode::RUSR | Mode::WUSR)?);
    let written = file.write_all(format!("{why}\n").as_bytes());
    written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

fn remove(spool: &Path, name: &OsString) -> Result<()> {
    match unlinkat(CWD, spool.join(name), AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => {
            let subject = spool.join(name).display().to_string();
            Err(Fault::because(
                subject,
                error,
                "let this user write to the spool: the store knows the summary, and would read it again",
            ))
        }
    }
}

/// Puts a summary into a spool: its whole file appears at once, readable by its owner alone.
///
/// # Errors
/// The file cannot be written; nothing is left of it.
pub fn put(spool: &Path, summary: &Summary) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let name: String = summary.key().iter().map(|byte| format!("{byte:02x}")).collect();
    let (unfinished, finished) =
        (spool.join(format!("{name}.{}", std::process::id())), spool.join(format!("{name}.{ENDING}")));
    let write = || {
        let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        file.write_all(&serde_json::to_vec(summary).expect("a summary serializes"))?;
        file.sync_all()?;
        std::fs::rename(&unfinished, &finished)
    };
    write().inspect_err(|_| _ = std::fs::remove_file(&unfinished))
}

/// A name for a message: users choose the names of files.
pub fn shown(name: &OsString) -> String {
    name.as_bytes().escape_ascii().to_string()
}
