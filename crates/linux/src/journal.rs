//! What is changed of the machine for a while, written down before it is changed: whoever reads it can restore it.
//!
//! One file for each thing that one run at a time may change (an interface that is steered, the machine's clocks), in a folder of
//! /run, whose end with the boot is also that of all settings. Its lock says that somebody answers for it: the owner, or the keeper
//! that waits for the owner's end.

use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use machine::{Fault, FaultKind, Result};

use crate::ownership::{Lock, described, lock};
use crate::warden::Warden;

/// Numbers of cores, of a table's queues, of flows, or kilohertz.
pub type Value = Vec<u32>;

/// One setting of the machine. It is written down as its words, and read back from them.
pub(crate) trait Knob: Clone + fmt::Display + FromStr<Err = ()> {
    /// Of the journals, below the root.
    const FOLDER: &str;
    /// What they are of: `steering`.
    const WHAT: &str;

    /// Its value, in the files below `root`.
    fn read(&self, root: &Path) -> io::Result<Value>;

    fn write(&self, root: &Path, value: &[u32]) -> io::Result<()>;

    /// What writes restore `value`, in order.
    fn way_back(&self, root: &Path, value: Value) -> Vec<Value>;

    /// A value of it, for people.
    fn shown(&self, value: &[u32]) -> String;

    /// What to do where it cannot be set so.
    fn refused(error: &io::Error) -> &'static str;

    /// What to do where the kernel took something else than was set.
    fn ignored() -> &'static str;
}

/// How long a keeper gets to restore what its owner left.
const PATIENCE: Duration = Duration::from_secs(5);

/// One change: what restores it, written in order, and what was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry<K> {
    pub knob: K,
    pub back: Vec<Value>,
    pub set: Value,
}

impl<K: Knob> Entry<K> {
    pub fn line(&self) -> String {
        let value = |value: &Value| value.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let back: Vec<String> = self.back.iter().map(value).collect();
        format!("{}\t{}\t{}\n", self.knob, back.join(";"), value(&self.set))
    }

    fn parse(line: &str) -> Option<Entry<K>> {
        let value = |text: &str| -> Option<Value> {
            text.split(',').filter(|number| !number.is_empty()).map(|number| number.parse().ok()).collect()
        };
        let mut fields = line.split('\t');
        let (knob, back, set) = (fields.next()?.parse().ok()?, fields.next()?, fields.next()?);
        let back = back.split(';').map(value).collect::<Option<_>>()?;
        fields.next().is_none().then_some(Entry { knob, back, set: value(set)? })
    }
}

/// Of whole lines alone: a change follows its line, so that one that was cut short was never made.
pub(crate) fn parse<K: Knob>(text: &str) -> Vec<Entry<K>> {
    text.split_inclusive('\n').filter_map(|line| Entry::parse(line.strip_suffix('\n')?)).collect()
}

pub(crate) struct Journal<K: Knob> {
    root: PathBuf,
    path: PathBuf,
    file: File,
    pub entries: Vec<Entry<K>>,
}

impl<K: Knob> Journal<K> {
    /// That of `name`, with what is left in it; `subject` says what it is of.
    pub fn open(root: &Path, name: &str, subject: &str) -> Result<Journal<K>> {
        let fault = |error| Fault::because(format!("{subject}: its journal in /{}", K::FOLDER), error, "run as root");
        let folder = root.join(K::FOLDER);
        let path = folder.join(name);
        let until = Instant::now() + PATIENCE;
        loop {
            DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(fault)?;
            let file = match File::options().read(true).append(true).create(true).open(&path) {
                // The last of another run took the folder away.
                Err(error) if error.kind() == io::ErrorKind::NotFound && Instant::now() < until => continue,
                file => file.map_err(fault)?,
            };
            match lock(&file).map_err(fault)? {
                Lock::Taken if is_at(&file, &path) => return Journal::of(root, path, file).map_err(fault),
                Lock::Taken => {}
                // A keeper at work.
                Lock::Held(None) if Instant::now() < until => thread::sleep(Duration::from_millis(20)),
                Lock::Held(holder) => {
                    let cause = described(holder, "another run has it");
                    return Err(Fault::new(subject.to_owned(), cause, "wait until that ends").of_kind(FaultKind::Busy));
                }
            }
        }
    }

    /// What `file` holds, whose lock the caller has.
    pub fn of(root: &Path, path: PathBuf, file: File) -> io::Result<Journal<K>> {
        let mut bytes = vec![0; file.metadata()?.len() as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let entries = parse(&String::from_utf8_lossy(&bytes));
        Ok(Journal { root: root.to_owned(), path, file, entries })
    }

    /// Starts `command`, which is to call [`keep`] with its last argument.
    pub fn kept_by(&self, mut command: Command) -> Result<Warden> {
        let file = self.file.try_clone();
        let file =
            file.map_err(|error| Fault::because(format!("journal of {}", K::WHAT), error, "raise `ulimit -n`"))?;
        Warden::by(command.arg(&self.path).stdout(file))
    }

    /// Sets `knob` and reads it back.
    pub fn change(&mut self, knob: K, set: Value) -> Result<Value> {
        let failed = |error: io::Error| {
            let next = K::refused(&error);
            Fault::because(knob.to_string(), error, next)
        };
        let before = knob.read(&self.root).map_err(failed)?;
        if before == set {
            return Ok(before);
        }
        let entry = Entry { back: knob.way_back(&self.root, before.clone()), knob: knob.clone(), set: set.clone() };
        self.file.write_all(entry.line().as_bytes()).map_err(failed)?;
        self.entries.push(entry);
        knob.write(&self.root, &set).map_err(failed)?;
        let now = knob.read(&self.root).map_err(failed)?;
        if now != set {
            let cause = format!("set to {}, the kernel has {}", knob.shown(&set), knob.shown(&now));
            return Err(Fault::new(knob.to_string(), cause, K::ignored()));
        }
        Ok(before)
    }

    /// Restores all, the last change first. What somebody else has set since stays. Says what did not hold, and what could
    /// not be restored, which the journal keeps.
    pub fn restore(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        let mut left = Vec::new();
        for entry in std::mem::take(&mut self.entries).into_iter().rev() {
            let Entry { knob, back, set } = &entry;
            let put_back = || back.iter().try_for_each(|value| knob.write(&self.root, value));
            let now = match knob.read(&self.root) {
                // What a killed writer left of a file that is none of the kernel's: nobody set that.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(set.clone()),
                now => now,
            };
            let outcome = now.and_then(|now| {
                if now == *set {
                    return put_back();
                }
                if Some(&now) != back.last() {
                    let (set, now) = (knob.shown(set), knob.shown(&now));
                    said.push(format!(
                        "{knob}: set to {set}, found at {now}: something else set it meanwhile, and it stays so"
                    ));
                }
                Ok(())
            });
            match outcome {
                // With its interface.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => {}
                Err(error) => {
                    said.push(format!("{knob}: not restored: {error}"));
                    left.push(entry);
                }
                Ok(()) => {}
            }
        }
        self.entries = left.into_iter().rev().collect();
        let lines: String = self.entries.iter().map(Entry::line).collect();
        let written = self.file.set_len(0).and_then(|()| self.file.write_all(lines.as_bytes()));
        said.extend(written.err().map(|error| format!("{}: {error}", self.path.display())));
        said
    }
}

impl<K: Knob> Drop for Journal<K> {
    fn drop(&mut self) {
        if self.entries.is_empty() && is_at(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
            // Only the last one finds it empty.
            let _ = self.path.parent().map(fs::remove_dir);
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let identity = |data: fs::Metadata| (data.dev(), data.ino());
    file.metadata().ok().map(identity) == fs::metadata(path).ok().map(identity)
}

/// Restores what nobody answers for. `subject` says what a journal of that name is of; `None`: it is not the caller's. Says what was
/// restored, and what could not be.
pub(crate) fn restore_remains<K: Knob>(root: &Path, subject: impl Fn(&str) -> Option<String>) -> Result<Vec<String>> {
    let folder = root.join(K::FOLDER);
    let fault = |error| Fault::because(format!("{}: what is left in /{}", K::WHAT, K::FOLDER), error, "run as root");
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(fault)?,
    };
    let mut said = Vec::new();
    for entry in entries {
        let name = entry.map_err(fault)?.file_name();
        let Some((name, subject)) = name.to_str().and_then(|name| Some((name, subject(name)?))) else { continue };
        let mut journal = match Journal::<K>::open(root, name, &format!("{} {subject}", K::WHAT)) {
            Err(fault) if fault.kind() == FaultKind::Busy => continue,
            journal => journal?,
        };
        if !journal.entries.is_empty() {
            said.push(format!("what a killed run had set on {subject} is restored"));
            said.extend(journal.restore());
        }
    }
    Ok(said)
}

/// Waits for the end of standard input, then restores what the journal at `path` holds, which is open as standard output.
pub(crate) fn keep<K: Knob>(path: &Path) -> io::Result<()> {
    let mut input = io::stdin().lock();
    let mut bytes = [0; 64];
    while input.read(&mut bytes)? > 0 {}
    let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    // Its folder is some steps below the root.
    let steps = Path::new(K::FOLDER).components().count() + 1;
    let root = path.ancestors().nth(steps).unwrap_or(Path::new("/"));
    Journal::<K>::of(root, path.to_owned(), file)?.restore();
    Ok(())
}
