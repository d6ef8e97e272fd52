//! What processes were allowed before the daemon moved them, written before each change: whatever ends the daemon, the next
//! one finds here what to put back.
//!
//! A line of JSON each. The file is one boot's: processes do not outlive it. Threads need no lines of their own, since only
//! processes are moved whose threads all have the same mask.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use machine::{CpuSet, Fault, FaultKind, Result};
use mapping::decision::Process;
use serde::{Deserialize, Serialize};

use crate::mover;

pub const NAME: &str = "journal.jsonl";

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// What tells this start of the host from others.
    Boot(String),
    Before {
        #[serde(flatten)]
        process: Process,
        old: CpuSet,
        new: CpuSet,
    },
}

/// What one process had, and what the daemon gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    old: CpuSet,
    given: Vec<CpuSet>,
}

/// What was put back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    pub process: Process,
    pub cores: CpuSet,
    /// Threads that were put back.
    pub threads: usize,
    /// Threads that others had moved since, and that were left there.
    pub left: usize,
}

pub struct Journal {
    path: PathBuf,
    file: File,
    boot: String,
    kept: BTreeMap<Process, Kept>,
}

fn unwritable(path: &Path, error: std::io::Error) -> Fault {
    Fault::unwritable(path.display().to_string(), error, "name another folder with --state")
}

impl Journal {
    /// Reads what an earlier daemon left in `folder`, which no other daemon may use meanwhile.
    pub fn open(folder: &Path, boot: &str) -> Result<Journal> {
        let path = folder.join(NAME);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Fault::because(path.display().to_string(), error, "name a folder with --state")),
        };
        // A line that is cut short was never acted on.
        let mut lines = text.lines().map_while(|line| serde_json::from_str::<Line>(line).ok());
        let mut kept = BTreeMap::new();
        if matches!(lines.next(), Some(Line::Boot(of)) if of == boot) {
            for line in lines {
                if let Line::Before { process, old, new } = line {
                    keep(&mut kept, process, old, new);
                }
            }
        }
        let file = write(&path, boot, &kept)?;
        Ok(Journal { path, file, boot: boot.into(), kept })
    }

    /// To be called before `process` is moved from `old` to `new`.
    pub fn note(&mut self, process: Process, old: &CpuSet, new: &CpuSet) -> Result<()> {
        // What it had before the first change is what it gets back.
        let old = self.kept.get(&process).map_or(old, |kept| &kept.old).clone();
        let line = Line::Before { process, old: old.clone(), new: new.clone() };
        self.file.write_all(&text(&line)).map_err(|e| unwritable(&self.path, e))?;
        keep(&mut self.kept, process, old, new.clone());
        Ok(())
    }

    /// Processes that are not as they were.
    pub fn processes(&self) -> Vec<Process> {
        self.kept.keys().copied().collect()
    }

    /// Puts a process back. What cannot be put back stays noted, unless it has ended.
    pub fn restore(&mut self, process: Process) -> Result<Option<Restored>> {
        let Some(Kept { old, given }) = self.kept.get(&process) else { return Ok(None) };
        let put = mover::put_back(process, |mask| given.contains(mask), old);
        let restored = match put {
            Ok((threads, left)) => Some(Restored { process, cores: old.clone(), threads, left }),
            Err(fault) if fault.kind() == FaultKind::Closed => None,
            Err(fault) => return Err(fault),
        };
        self.kept.remove(&process);
        self.file = write(&self.path, &self.boot, &self.kept)?;
        Ok(restored)
    }
}

fn keep(kept: &mut BTreeMap<Process, Kept>, process: Process, old: CpuSet, new: CpuSet) {
    let kept = kept.entry(process).or_insert(Kept { old, given: vec![] });
    if !kept.given.contains(&new) {
        kept.given.push(new);
    }
}

fn text(line: &Line) -> Vec<u8> {
    let mut text = serde_json::to_vec(line).unwrap_or_default();
    text.push(b'\n');
    text
}

/// The whole journal again, in place of the old one at once; returns it open for more.
fn write(path: &Path, boot: &str, kept: &BTreeMap<Process, Kept>) -> Result<File> {
    let mut whole = text(&Line::Boot(boot.into()));
    for (process, Kept { old, given }) in kept {
        for new in given {
            whole.extend(text(&Line::Before { process: *process, old: old.clone(), new: new.clone() }));
        }
    }
    let beside = path.with_extension("new");
    let written = fs::write(&beside, whole)
        .and_then(|()| fs::rename(&beside, path))
        .and_then(|()| File::options().append(true).open(path));
    written.map_err(|e| unwritable(path, e))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::process;

    fn cores(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    #[test]
    fn what_was_noted_is_put_back_by_the_next_journal() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let process = process::identify(child.id()).unwrap();
        let before = mover::seat(process).unwrap().unwrap();
        let to: CpuSet = before.first().into_iter().collect();
        let mut journal = Journal::open(folder.path(), "boot").unwrap();
        journal.note(process, &before, &to).unwrap();
        mover::settle(process, &before, &to).unwrap();
        journal.note(process, &to, &before).unwrap();
        drop(journal);
        // A line that was being written when the daemon was killed.
        let path = folder.path().join(NAME);
        File::options().append(true).open(&path).unwrap().write_all(br#"{"before":{"pid":1,"#).unwrap();

        let mut journal = Journal::open(folder.path(), "boot").unwrap();
        assert_eq!(journal.processes(), [process]);
        let restored = journal.restore(process).unwrap();
        let threads = usize::from(before != to);
        assert_eq!(restored, Some(Restored { process, cores: before.clone(), threads, left: 0 }));
        assert_eq!(mover::seat(process).unwrap(), Some(before));
        assert_eq!((journal.processes(), journal.restore(process).unwrap()), (vec![], None));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_journal_of_another_boot_or_of_another_process_moves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let own = process::identify(std::process::id()).unwrap();
        let other = Process { started: own.started + 1, ..own };
        let mut journal = Journal::open(folder.path(), "boot").unwrap();
        journal.note(other, &cores("0"), &cores("0-1")).unwrap();
        drop(journal);
        let mut journal = Journal::open(folder.path(), "boot").unwrap();
        assert_eq!((journal.processes(), journal.restore(other).unwrap()), (vec![other], None));
        journal.note(own, &cores("0"), &cores("0-1")).unwrap();
        drop(journal);
        assert_eq!(Journal::open(folder.path(), "later").unwrap().processes(), []);
        fs::write(folder.path().join(NAME), "nonsense").unwrap();
        assert_eq!(Journal::open(folder.path(), "boot").unwrap().processes(), []);
    }
}
