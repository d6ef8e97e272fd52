//! Temporary changes of the machine, written down before they are made, so that any later process can restore them.
//!
//! One [`Log`] for each thing that only one run at a time may change (a steered interface, the machine's clocks), in a
//! folder of /run, which ends with the boot like all settings. Its lock shows that somebody is responsible: the owner,
//! or the keeper that waits for the owner's end. Restoring needs no disk space, and may be repeated.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use machine::{Fault, FaultKind, Result};

use crate::ownership::{Lock, described, lock};
use crate::warden::Warden;
use crate::write_ahead::Log;

/// A value: core numbers, a table's queues, flows, or kilohertz.
pub type Value = Vec<u32>;

/// One setting of the machine. The journal stores its displayed form, and parses that again.
pub(crate) trait JournaledSetting: Clone + fmt::Display + FromStr<Err = ()> {
    /// Folder of its journals, below the root.
    const FOLDER: &str;
    /// The subject of its journals: `steering`.
    const WHAT: &str;

    /// The present value, from the files below `root`.
    fn read(&self, root: &Path) -> io::Result<Value>;

    fn write(&self, root: &Path, value: &[u32]) -> io::Result<()>;

    /// The writes that restore `value`, in order.
    fn restoring_writes(&self, root: &Path, value: Value) -> Vec<Value>;

    /// A value for display.
    fn shown(&self, value: &[u32]) -> String;

    /// The next step where it cannot be set.
    fn refused(error: &io::Error) -> &'static str;

    /// The next step where the kernel took another value than was set.
    fn ignored() -> &'static str;
}

/// Time for a keeper to restore what its owner left.
const TIMEOUT: Duration = Duration::from_secs(5);

/// One change: the writes that restore it, in order, and the value set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry<K> {
    pub setting: K,
    pub back: Vec<Value>,
    pub set: Value,
}

impl<K: JournaledSetting> Entry<K> {
    pub fn line(&self) -> String {
        let value = |value: &Value| value.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let back: Vec<String> = self.back.iter().map(value).collect();
        format!("{}\t{}\t{}\n", self.setting, back.join(";"), value(&self.set))
    }

    /// Parses a line without its end.
    pub fn parse(line: &str) -> Option<Entry<K>> {
        let value = |text: &str| -> Option<Value> {
            text.split(',').filter(|number| !number.is_empty()).map(|number| number.parse().ok()).collect()
        };
        let mut fields = line.split('\t');
        let (setting, back, set) = (fields.next()?.parse().ok()?, fields.next()?, fields.next()?);
        let back = back.split(';').map(value).collect::<Option<_>>()?;
        fields.next().is_none().then_some(Entry { setting, back, set: value(set)? })
    }
}

pub(crate) struct Journal<K: JournaledSetting> {
    root: PathBuf,
    log: Log,
    pub entries: Vec<Entry<K>>,
    /// Damage of the log that was not yet reported.
    damage: Option<String>,
}

impl<K: JournaledSetting> Journal<K> {
    /// The journal `name`, with remaining entries; `subject` is for faults.
    pub fn open(root: &Path, name: &str, subject: &str) -> Result<Journal<K>> {
        let fault =
            |error| Fault::unwritable(format!("{subject}: its journal in /{}", K::FOLDER), error, "run as root");
        let folder = root.join(K::FOLDER);
        let path = folder.join(name);
        let until = Instant::now() + TIMEOUT;
        loop {
            DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(fault)?;
            let file = match File::options().read(true).append(true).create(true).open(&path) {
                // Another run has just removed the folder.
                Err(error) if error.kind() == io::ErrorKind::NotFound && Instant::now() < until => continue,
                file => file.map_err(fault)?,
            };
            match lock(&file).map_err(fault)? {
                Lock::Taken if is_at(&file, &path) => return Journal::of(root, &path, file).map_err(fault),
                Lock::Taken => {}
                // A keeper is at work.
                Lock::Held(None) if Instant::now() < until => thread::sleep(Duration::from_millis(20)),
                Lock::Held(holder) => {
                    let cause = described(holder, "another run has it");
                    return Err(Fault::new(subject.to_owned(), cause, "wait until that ends").of_kind(FaultKind::Busy));
                }
            }
        }
    }

    /// The journal in `file`, whose lock the caller has.
    pub fn of(root: &Path, path: &Path, file: File) -> io::Result<Journal<K>> {
        let (log, entries, damage) = Log::open(path, file, Entry::parse)?;
        Ok(Journal { root: root.to_owned(), log, entries, damage })
    }

    /// Starts the keeper: `command`, which must call [`keep`] with its last argument.
    pub fn start_keeper(&self, mut command: Command) -> Result<Warden> {
        let file = self.log.file.try_clone();
        let file =
            file.map_err(|error| Fault::because(format!("journal of {}", K::WHAT), error, "raise `ulimit -n`"))?;
        Warden::by(command.arg(&self.log.path).stdout(file))
    }

    /// Sets `setting` and reads it back.
    pub fn change(&mut self, setting: K, set: Value) -> Result<Value> {
        let failed = |error: io::Error| {
            let next = K::refused(&error);
            Fault::because(setting.to_string(), error, next)
        };
        let before = setting.read(&self.root).map_err(failed)?;
        if before == set {
            return Ok(before);
        }
        let entry = Entry {
            back: setting.restoring_writes(&self.root, before.clone()),
            setting: setting.clone(),
            set: set.clone(),
        };
        let written = self.log.add(&entry.line());
        written.map_err(|error| Fault::unwritable(self.log.path.display().to_string(), error, "run as root"))?;
        self.entries.push(entry.clone());
        setting.write(&self.root, &set).map_err(failed)?;
        let now = setting.read(&self.root).map_err(failed)?;
        if now != set {
            let cause = format!("set to {}, the kernel has {}", setting.shown(&set), setting.shown(&now));
            // The value that the kernel took instead is restored too.
            let taken = Entry { set: now, ..entry };
            let _ = self.log.add(&taken.line());
            self.entries.push(taken);
            return Err(Fault::new(setting.to_string(), cause, K::ignored()));
        }
        Ok(before)
    }

    /// Restores all entries, the last first, also after failures. Settings that something else has changed since stay.
    /// Returns notes on those, and on entries that could not be restored, which the journal keeps.
    pub fn restore(&mut self) -> Vec<String> {
        let mut said = Vec::from_iter(self.damage.take());
        let mut left = Vec::new();
        for entry in std::mem::take(&mut self.entries).into_iter().rev() {
            let Entry { setting, back, set } = &entry;
            // Only the last write must succeed.
            let put_back = || back.iter().map(|value| setting.write(&self.root, value)).last().unwrap_or(Ok(()));
            let now = match setting.read(&self.root) {
                // A killed writer left a partial plain file, never one of the kernel's: nothing else set that.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(set.clone()),
                now => now,
            };
            let outcome = now.and_then(|now| {
                // A killed restore leaves the value of one of its steps.
                if now == *set || back.iter().rev().skip(1).any(|value| *value == now) {
                    return put_back();
                }
                if Some(&now) != back.last() {
                    let (set, now) = (setting.shown(set), setting.shown(&now));
                    said.push(format!(
                        "{setting}: set to {set}, found at {now}: something else set it meanwhile, and it stays so"
                    ));
                }
                Ok(())
            });
            match outcome {
                // The setting is gone with its interface.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => {}
                Err(error) => {
                    said.push(format!("{setting}: not restored: {error}"));
                    left.push(entry);
                }
                Ok(()) => {}
            }
        }
        self.entries = left.into_iter().rev().collect();
        // The file keeps all entries while one is left.
        if self.entries.is_empty()
            && let Err(error) = self.log.clear()
        {
            said.push(format!("{}: {error}", self.log.path.display()));
        }
        said
    }
}

impl<K: JournaledSetting> Drop for Journal<K> {
    fn drop(&mut self) {
        let Log { path, file, .. } = &self.log;
        if self.entries.is_empty() && is_at(file, path) {
            let _ = fs::remove_file(path);
            // Succeeds only for the last journal of the folder.
            let _ = path.parent().map(fs::remove_dir);
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let identity = |data: fs::Metadata| (data.dev(), data.ino());
    file.metadata().ok().map(identity) == fs::metadata(path).ok().map(identity)
}

/// Restores all journals without an owner, also after failures. `subject` gives the subject of a journal by its name;
/// `None` where it is not the caller's. Returns notes.
/// the caller's. Says what was restored, and what could not be.
pub(crate) fn restore_remains<K: JournaledSetting>(
    root: &Path,
    subject: impl Fn(&str) -> Option<String>,
) -> Result<Vec<String>> {
    let folder = root.join(K::FOLDER);
    let fault = |error| Fault::because(format!("{}: what is left in /{}", K::WHAT, K::FOLDER), error, "run as root");
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(fault)?,
    };
    let restore = |name: &OsStr| -> Result<Vec<String>> {
        let Some((name, subject)) = name.to_str().and_then(|name| Some((name, subject(name)?))) else {
            return Ok(Vec::new());
        };
        let mut journal = match Journal::<K>::open(root, name, &format!("{} {subject}", K::WHAT)) {
            Err(fault) if fault.kind() == FaultKind::Busy => return Ok(Vec::new()),
            journal => journal?,
        };
        let is_left = !journal.entries.is_empty();
        let restored = is_left.then(|| format!("what a killed run had set on {subject} is restored"));
        Ok(restored.into_iter().chain(journal.restore()).collect())
    };
    let each = entries.map(|entry| entry.map_err(fault).and_then(|entry| restore(&entry.file_name())));
    Ok(each.flat_map(|said| said.unwrap_or_else(|fault| vec![fault.to_string()])).collect())
}

/// Waits for the end of standard input, then restores the journal at `path`, which is open as standard output.
pub(crate) fn keep<K: JournaledSetting>(path: &Path) -> io::Result<()> {
    let mut input = io::stdin().lock();
    let mut bytes = [0; 64];
    while input.read(&mut bytes)? > 0 {}
    let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    // The root lies above the folder's components.
    let steps = Path::new(K::FOLDER).components().count() + 1;
    let root = path.ancestors().nth(steps).unwrap_or(Path::new("/"));
    Journal::<K>::of(root, path, file)?.restore();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number in a kernel that accepts even ones only.
    #[derive(Debug, Clone)]
    struct Even;

    impl fmt::Display for Even {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("even")
        }
    }

    impl FromStr for Even {
        type Err = ();

        fn from_str(text: &str) -> Result<Even, ()> {
            (text == "even").then_some(Even).ok_or(())
        }
    }

    impl JournaledSetting for Even {
        const FOLDER: &str = "run/plimsoll-test";
        const WHAT: &str = "numbers";

        fn read(&self, root: &Path) -> io::Result<Value> {
            let text = fs::read_to_string(root.join("even"))?;
            Ok(vec![text.parse().map_err(|_| io::ErrorKind::InvalidData)?])
        }

        fn write(&self, root: &Path, value: &[u32]) -> io::Result<()> {
            fs::write(root.join("even"), (value[0] & !1).to_string())
        }

        fn restoring_writes(&self, _: &Path, value: Value) -> Vec<Value> {
            vec![value]
        }

        fn shown(&self, value: &[u32]) -> String {
            format!("{value:?}")
        }

        fn refused(_: &io::Error) -> &'static str {
            ""
        }

        fn ignored() -> &'static str {
            "choose an even one"
        }
    }

    #[test]
    fn what_the_kernel_took_instead_is_put_back_too() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for is_killed in [false, true] {
            Even.write(root, &[2]).unwrap();
            let mut journal = Journal::open(root, "one", "numbers").unwrap();
            let fault = journal.change(Even, vec![5]).unwrap_err();
            assert_eq!((fault.cause(), fault.next()), ("set to [5], the kernel has [4]", "choose an even one"));
            if !is_killed {
                assert_eq!(journal.restore(), Vec::<String>::new());
            }
            // The state after a kill: the journal's entries remain.
            drop(journal);
            let said = restore_remains::<Even>(root, |name| Some(name.to_owned())).unwrap();
            assert_eq!(said.len(), usize::from(is_killed), "{said:?}");
            assert_eq!(Even.read(root).unwrap(), [2]);
        }
    }
}
