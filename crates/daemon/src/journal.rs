//! Masks of processes before the daemon moved them, written before each change: however a daemon ends, the next daemon can
//! restore them. Restoring takes no space on the disk, and restoring twice does no harm.
//!
//! A line of JSON each, of one boot: processes do not outlive it. Threads need no lines of their own, since only
//! processes are moved whose threads all have the same mask.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use linux::write_ahead::Log;
use machine::{CpuSet, Fault, FaultKind, Result};
use mapping::decision::Process;
use serde::{Deserialize, Serialize};

use crate::decision::{Restored, What};
use crate::mover;

pub const NAME: &str = "journal.jsonl";

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    /// The identity of this boot.
    boot: String,
    #[serde(flatten)]
    process: Process,
    old: CpuSet,
    new: CpuSet,
}

/// The original mask of a process, and the mask that the daemon gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    old: CpuSet,
    given: Vec<CpuSet>,
}

pub struct Journal {
    path: PathBuf,
    log: Log,
    boot: String,
    kept: BTreeMap<Process, Kept>,
    /// Damage of the log, until it is reported.
    damage: Option<String>,
}

impl Journal {
    /// Reads the journal of an earlier daemon in `folder`, which no other daemon may use meanwhile.
    pub fn open(folder: &Path, boot: &str) -> Result<Journal> {
        let path = folder.join(NAME);
        let opened = File::options().read(true).append(true).create(true).open(&path);
        let read = opened.and_then(|file| Log::open(&path, file, |line| serde_json::from_str::<Line>(line).ok()));
        let (log, lines, damage) = read.map_err(|e| unwritable(&path, e))?;
        let mut journal = Journal { path, log, boot: boot.into(), kept: BTreeMap::new(), damage };
        for Line { process, old, new, .. } in lines.into_iter().filter(|line| line.boot == boot) {
            journal.keep(process, old, new);
        }
        Ok(journal)
    }

    /// Writes a change to the journal; to be called before `process` is moved from `old` to `new`.
    pub fn note(&mut self, process: Process, old: &CpuSet, new: &CpuSet) -> Result<()> {
        // The mask before the first change is the one to restore.
        let kept = self.kept.get(&process);
        let old = kept.map_or(old, |kept| &kept.old).clone();
        if *new == old || kept.is_some_and(|kept| kept.given.contains(new)) {
            return Ok(());
        }
        let line = text(&self.boot, process, &old, new);
        self.log.add(&line).and_then(|()| self.log.sync()).map_err(|e| unwritable(&self.path, e))?;
        self.keep(process, old, new.clone());
        Ok(())
    }

    fn keep(&mut self, process: Process, old: CpuSet, new: CpuSet) {
        self.kept.entry(process).or_insert(Kept { old, given: vec![] }).given.push(new);
    }

    /// Processes whose masks are changed.
    pub fn processes(&self) -> Vec<Process> {
        self.kept.keys().copied().collect()
    }

    /// Restores processes, going on after failures, and returns the outcomes. A process that cannot be restored stays in the
    /// journal, unless it has ended.
    pub fn restore(&mut self, processes: &[Process]) -> Vec<What> {
        let mut said: Vec<What> = self.damage.take().map(What::Noted).into_iter().collect();
        for process in processes {
            let Some(Kept { old, given }) = self.kept.get(process) else { continue };
            match mover::put_back(*process, |mask| given.contains(mask), old) {
                // The process was moved back before.
                Ok((0, 0)) => {}
                Ok((threads, left)) => {
                    said.push(What::Restored(Restored { process: *process, cores: old.clone(), threads, left }));
                }
                Err(fault) if fault.kind() == FaultKind::Closed => {}
                Err(fault) => {
                    said.push(What::Noted(format!("not put back: {fault}")));
                    continue;
                }
            }
            self.kept.remove(process);
        }
        if let Err(error) = self.shorten() {
            said.push(What::Noted(unwritable(&self.path, error).to_string()));
        }
        said
    }

    /// Removes restored processes from the file. Where the disk has no space for that, they stay in it.
    fn shorten(&mut self) -> io::Result<()> {
        if self.kept.is_empty() {
            return self.log.clear();
        }
        let mut lines = String::new();
        for (process, Kept { old, given }) in &self.kept {
            lines.extend(given.iter().map(|new| text(&self.boot, *process, old, new)));
        }
        self.log.replace(&lines)
    }
}

fn unwritable(path: &Path, error: io::Error) -> Fault {
    Fault::unwritable(path.display().to_string(), error, "name another folder with --state")
}

fn text(boot: &str, process: Process, old: &CpuSet, new: &CpuSet) -> String {
    let line = Line { boot: boot.into(), process, old: old.clone(), new: new.clone() };
    serde_json::to_string(&line).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use std::fs;

    use skip::disk::Disk;

    use super::*;
    use crate::testing::{Sleeper, two_cores};

    #[test]
    fn killed_at_any_write_everything_is_put_back_though_the_disk_is_full() {
        let Some(disk) = Disk::small() else { return };
        let Some([one, two]) = two_cores() else { return };
        let ranks = [Sleeper::start(), Sleeper::start()];
        let moves = [(&ranks[0], &one), (&ranks[1], &two), (&ranks[0], &two)];
        let mut journal = Journal::open(disk.path(), "boot").unwrap();
        moves.iter().for_each(|(rank, to)| journal.note(rank.process, &rank.before, to).unwrap());
        let whole = fs::read(&journal.path).unwrap();
        for cut in 0..=whole.len() {
            disk.free();
            fs::write(&journal.path, &whole[..cut]).unwrap();
            let noted = whole[..cut].iter().filter(|byte| **byte == b'\n').count();
            moves[..noted].iter().for_each(|(rank, to)| rank.settle(to));
            disk.fill(0);
            let mut journal = Journal::open(disk.path(), "boot").unwrap();
            let said = journal.restore(&journal.processes());
            assert_eq!(said.len(), noted.min(2), "cut at {cut}: {said:?}");
            let is_whole = |what: &What| matches!(what, What::Restored(Restored { threads: 1, left: 0, .. }));
            assert!(said.iter().all(is_whole), "cut at {cut}: {said:?}");
            assert!(ranks.iter().all(|rank| rank.seat() == rank.before), "cut at {cut}");
            assert_eq!((journal.processes().len(), fs::metadata(&journal.path).unwrap().len()), (0, 0));
        }
    }

    #[test]
    fn what_cannot_be_put_back_is_said_and_kept_and_the_rest_is_put_back() {
        let Some(disk) = Disk::small() else { return };
        let Some([one, two]) = two_cores() else { return };
        let [odd, damaged, other] = [Sleeper::start(), Sleeper::start(), Sleeper::start()];
        let mut journal = Journal::open(disk.path(), "boot").unwrap();
        // A core that no machine has.
        journal.note(odd.process, &"20000".parse().unwrap(), &one).unwrap();
        journal.note(damaged.process, &damaged.before, &one).unwrap();
        journal.note(other.process, &other.before, &two).unwrap();
        let whole = fs::read_to_string(&journal.path).unwrap();
        let damaged_line = whole.lines().nth(1).unwrap();
        let whole = whole.replace(damaged_line, &"\0".repeat(damaged_line.len()));
        fs::write(&journal.path, &whole).unwrap();
        [(&odd, &one), (&damaged, &one), (&other, &two)].into_iter().for_each(|(rank, to)| rank.settle(to));
        disk.fill(0);
        let mut journal = Journal::open(disk.path(), "boot").unwrap();
        let said = journal.restore(&journal.processes());
        let [damage, kept, full] = notes(&said)[..] else { panic!("{said:?}") };
        assert!(damage.ends_with("journal.jsonl is damaged: 1 line left out"), "{damage}");
        assert!(kept.starts_with(&format!("not put back: process {}: ", odd.process.pid)), "{kept}");
        assert!(full.contains("Next: free space there"), "{full}");
        assert_eq!((odd.seat(), damaged.seat(), other.seat()), (one.clone(), one, other.before.clone()));
        assert_eq!(fs::read_to_string(&journal.path).unwrap(), whole, "it stays as it was");

        disk.free();
        let mut journal = Journal::open(disk.path(), "boot").unwrap();
        assert_eq!(journal.processes().len(), 2);
        let said = journal.restore(&journal.processes());
        assert_eq!((said.len(), notes(&said).len()), (2, 2), "to put back twice does no harm: {said:?}");
        assert_eq!((other.seat(), journal.processes()), (other.before.clone(), vec![odd.process]));
        assert_eq!(fs::read_to_string(&journal.path).unwrap().lines().count(), 1);
    }

    fn notes(said: &[What]) -> Vec<&str> {
        said.iter()
            .filter_map(|what| match what {
                What::Noted(note) => Some(note.as_str()),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn a_journal_of_another_boot_or_of_another_process_moves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let own = crate::process::identify(std::process::id()).unwrap();
        let other = Process { started: own.started + 1, ..own };
        let [one, both] = ["0", "0-1"].map(|list| list.parse::<CpuSet>().unwrap());
        let mut journal = Journal::open(folder.path(), "boot").unwrap();
        journal.note(other, &one, &both).unwrap();
        let mut journal = Journal::open(folder.path(), "boot").unwrap();
        assert_eq!(journal.processes(), [other]);
        assert_eq!((journal.restore(&[other]), journal.processes()), (vec![], vec![]));
        journal.note(own, &one, &both).unwrap();
        let mut journal = Journal::open(folder.path(), "later").unwrap();
        assert_eq!((journal.restore(&journal.processes()), journal.processes()), (vec![], vec![]));
        assert_eq!(fs::metadata(&journal.path).unwrap().len(), 0);
    }
}
