//! What steering changes, written down before it is changed: whoever reads it can restore it.
//!
//! One file for each interface that is steered, in a folder of /run, whose end with the boot is also that of all settings.
//! Its lock says that somebody answers for it: the owner, or the keeper that waits for the owner's end.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use machine::{Fault, FaultKind, Result};

use super::knob::{Knob, Value};
use crate::ownership::{Lock, described, lock};
use crate::warden::Warden;

const FOLDER: &str = "run/plimsoll-steering";

/// How long a keeper gets to restore what its owner left.
const PATIENCE: Duration = Duration::from_secs(5);

/// One change: what restores it, written in order, and what was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub knob: Knob,
    pub back: Vec<Value>,
    pub set: Value,
}

impl Entry {
    pub fn line(&self) -> String {
        let value = |value: &Value| value.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let back: Vec<String> = self.back.iter().map(value).collect();
        format!("{}\t{}\t{}\n", self.knob, back.join(";"), value(&self.set))
    }

    fn parse(line: &str) -> Option<Entry> {
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
pub(super) fn parse(text: &str) -> Vec<Entry> {
    text.split_inclusive('\n').filter_map(|line| Entry::parse(line.strip_suffix('\n')?)).collect()
}

pub(super) struct Journal {
    root: PathBuf,
    path: PathBuf,
    file: File,
    pub entries: Vec<Entry>,
}

impl Journal {
    /// That of `interface` in the calling thread's network namespace, with what is left in it.
    pub fn open(root: &Path, interface: &str) -> Result<Journal> {
        let subject = format!("steering {interface}");
        let fault = |error| Fault::because(format!("{subject}: its journal in /{FOLDER}"), error, "run as root");
        let folder = root.join(FOLDER);
        let path = folder.join(format!("{}{interface}", namespace().map_err(fault)?));
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
                    return Err(Fault::new(subject, cause, "wait until that ends").of_kind(FaultKind::Busy));
                }
            }
        }
    }

    /// What `file` holds, whose lock the caller has.
    pub fn of(root: &Path, path: PathBuf, file: File) -> io::Result<Journal> {
        let mut bytes = vec![0; file.metadata()?.len() as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let entries = parse(&String::from_utf8_lossy(&bytes));
        Ok(Journal { root: root.to_owned(), path, file, entries })
    }

    /// Starts `command`, which is to call [`super::keep`] with its last argument.
    pub fn kept_by(&self, mut command: Command) -> Result<Warden> {
        let file = self.file.try_clone();
        let file = file.map_err(|error| Fault::because("journal of steering", error, "raise `ulimit -n`"))?;
        Warden::by(command.arg(&self.path).stdout(file))
    }

    /// Sets `knob` and reads it back.
    pub fn change(&mut self, knob: Knob, set: Value) -> Result<Value> {
        let next = |error: &io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "run as root, with /sys and /proc writable"
            }
            io::ErrorKind::NotFound => "steer by another means: --by rps, irq or rss",
            _ => "steer by another means (--by rps), or to other cores",
        };
        let failed = |error: io::Error| {
            let next = next(&error);
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
            return Err(Fault::new(
                knob.to_string(),
                cause,
                "ask for cores that the kernel leaves to it (isolcpus, nohz_full)",
            ));
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
            let outcome = knob.read(&self.root).and_then(|now| {
                if now == *set {
                    return back.iter().try_for_each(|value| knob.write(&self.root, value));
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

impl Drop for Journal {
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

/// How the names of journals of the calling thread's network namespace begin: interfaces of another have these names too.
fn namespace() -> io::Result<String> {
    Ok(format!("{}-", fs::metadata("/proc/thread-self/ns/net")?.ino()))
}

/// Restores what nobody answers for, of this network namespace. Says of which interfaces, and what could not be restored.
pub(super) fn restore_remains(root: &Path) -> Result<Vec<String>> {
    let folder = root.join(FOLDER);
    let fault = |error| Fault::because(format!("steering: what is left in /{FOLDER}"), error, "run as root");
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(fault)?,
    };
    let prefix = namespace().map_err(fault)?;
    let mut said = Vec::new();
    for entry in entries {
        let name = entry.map_err(fault)?.file_name();
        let Some(interface) = name.to_str().and_then(|name| name.strip_prefix(&prefix)) else { continue };
        let mut journal = match Journal::open(root, interface) {
            Err(fault) if fault.kind() == FaultKind::Busy => continue,
            journal => journal?,
        };
        if !journal.entries.is_empty() {
            said.push(format!("what a killed run had set on {interface} is restored"));
            said.extend(journal.restore());
        }
    }
    Ok(said)
}

/// Waits for the end of standard input, then restores what the journal at `path` holds, which is open as standard output.
pub(super) fn keep(path: &Path) -> io::Result<()> {
    let mut input = io::stdin().lock();
    let mut bytes = [0; 64];
    while input.read(&mut bytes)? > 0 {}
    let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    Journal::of(Path::new("/"), path.to_owned(), file)?.restore();
    Ok(())
}
