//! The folder of a daemon: its lock, its decisions and its status. One daemon uses it at a time; anyone may read.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use linux::output::replace;
use linux::write_ahead::Log;
use machine::lock::{Lock, is_held};
use machine::{Fault, Result};
use serde::{Deserialize, Serialize};

use crate::decision::Decision;

const LOCK: &str = "daemon.lock";
const STATUS: &str = "status.json";
const DECISIONS: &str = "decisions.jsonl";
/// The file of earlier decisions, replaced when the present one is full.
const EARLIER: &str = "decisions.earlier.jsonl";
/// The most bytes of decisions in one file.
const MOST: u64 = 1 << 20;
/// The most time to wait for the lock: a reader holds it for a moment.
const TIMEOUT: Duration = Duration::from_millis(200);

/// The usual folder: that of systemd's unit, of the session, or of the host for root.
pub fn folder() -> Result<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    if let Some(folder) = named("RUNTIME_DIRECTORY") {
        return Ok(folder);
    }
    if rustix::process::geteuid().is_root() {
        return Ok("/run/plimsoll".into());
    }
    named("XDG_RUNTIME_DIR").map(|folder| folder.join("plimsoll")).ok_or_else(|| {
        Fault::new("the daemon's folder", "this session has no XDG_RUNTIME_DIR", "name one with --state DIR")
    })
}

/// The folder, held by this daemon.
pub struct State {
    folder: PathBuf,
    /// The log, once there is a decision.
    decisions: Option<Log>,
    _lock: Lock,
}

impl State {
    /// # Errors
    /// Another daemon has the folder; the folder cannot be written, or other users can write to it.
    pub fn take(folder: &Path) -> Result<State> {
        let fault = |e| Fault::unwritable(folder.display().to_string(), e, "name another folder with --state");
        fs::DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(fault)?;
        let found = fs::metadata(folder).map_err(fault)?;
        // The daemon acts on the journal, so no other user may write it.
        if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
            return Err(Fault::new(
                folder.display().to_string(),
                "other users could write into it",
                "name a folder that is this user's alone with --state",
            ));
        }
        let subject = format!("daemon's folder {}", folder.display());
        let next = "see what it does with plimsoll daemon status, or name another folder with --state";
        let lock = Lock::take(&folder.join(LOCK), &subject, TIMEOUT, next)?;
        Ok(State { folder: folder.into(), decisions: None, _lock: lock })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn fault(&self, error: std::io::Error) -> Fault {
        Fault::unwritable(self.folder.display().to_string(), error, "free space there")
    }

    pub fn log(&mut self, decision: &Decision) -> Result<()> {
        let line = serde_json::to_string(decision).unwrap_or_default() + "\n";
        self.add(&line).map_err(|e| self.fault(e))
    }

    fn add(&mut self, line: &str) -> io::Result<()> {
        let path = self.folder.join(DECISIONS);
        let mut log = match self.decisions.take() {
            Some(log) if log.length() <= MOST => log,
            full => {
                full.map_or(Ok(()), |_| fs::rename(&path, self.folder.join(EARLIER)))?;
                let file = File::options().read(true).append(true).create(true).open(&path)?;
                Log::open(&path, file, |_| Some(()))?.0
            }
        };
        let added = log.add(line);
        self.decisions = Some(log);
        added
    }

    pub fn show(&self, status: &Status) -> Result<()> {
        let text = serde_json::to_string_pretty(status).unwrap_or_default() + "\n";
        replace(&self.folder.join(STATUS), &text)
    }
}

/// The state of a daemon after its last window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub pid: u32,
    /// Seconds since 1970.
    pub started: u64,
    pub updated: u64,
    /// Length of a window, s.
    pub window: f64,
    pub dry_run: bool,
    pub counts: Counts,
    /// Processor time that the daemon used, over the time since it started.
    pub cpu_share: f64,
    pub jobs: Vec<JobStatus>,
}

/// Counts since the daemon started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub windows: u64,
    /// Steps that were carried out, undone ones included.
    pub moves: u64,
    pub confirmed: u64,
    pub undone: u64,
    /// Steps that the kernel or a program refused.
    pub refused: u64,
    /// Processes whose masks were restored.
    pub restored: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobStatus {
    pub name: String,
    /// The source of the observations.
    pub sees: String,
    pub ranks: Vec<RankStatus>,
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RankStatus {
    pub rank: u32,
    pub host: String,
    pub pid: u32,
    pub cores: String,
    pub mpi: Option<f64>,
    pub wait: Option<f64>,
    /// The share of its cores that others take.
    pub taken: Option<f64>,
    /// The reason why the rank is left alone.
    pub held: Option<String>,
}

/// The state of a folder, for readers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shown {
    /// Whether a daemon has the folder.
    pub running: bool,
    pub status: Option<Status>,
    /// The last decisions, oldest first.
    pub decisions: Vec<Decision>,
}

impl Shown {
    /// Reads a folder with its last `most` decisions. A folder that does not exist belongs to no daemon.
    pub fn read(folder: &Path, most: usize) -> Result<Shown> {
        let next = "start one with plimsoll daemon, or name its folder with --state";
        let fault = |e| Fault::because(folder.display().to_string(), e, next);
        // A living daemon holds the lock.
        let running = match is_held(&folder.join(LOCK)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            held => held.map_err(fault)?,
        };
        let status = fs::read_to_string(folder.join(STATUS)).ok();
        let status = status.and_then(|text| serde_json::from_str(&text).ok());
        let mut decisions: Vec<Decision> = Vec::new();
        for name in [EARLIER, DECISIONS] {
            let text = fs::read_to_string(folder.join(name)).unwrap_or_default();
            decisions.extend(text.lines().filter_map(|line| serde_json::from_str(line).ok()));
        }
        decisions.drain(..decisions.len().saturating_sub(most));
        Ok(Shown { running, status, decisions })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use machine::FaultKind;

    use super::*;
    use crate::decision::What;

    #[test]
    fn a_folder_that_others_may_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let fault = State::take(folder.path()).err().unwrap();
        assert_eq!(fault.cause(), "other users could write into it");
    }

    #[test]
    fn other_users_lock_what_they_can_open_and_keep_no_daemon_away() {
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let folder = home.path().join("state");
        let state = State::take(&folder).unwrap();
        state.show(&Status::default()).unwrap();
        let opened = skip::another_user(|| {
            assert!(Shown::read(&folder, 1).unwrap().running, "anyone may read");
            let files = fs::read_dir(&folder).unwrap().map(|entry| File::open(entry.unwrap().path()));
            files.flatten().collect::<Vec<File>>()
        });
        let Some(opened) = opened else { return };
        drop(state);
        assert!(!opened.is_empty());
        for file in &opened {
            file.try_lock().unwrap();
        }
        State::take(&folder).unwrap();
    }

    #[test]
    fn one_daemon_has_a_folder_and_its_log_is_bounded() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("state");
        let none = Shown { running: false, status: None, decisions: Vec::new() };
        assert_eq!(Shown::read(&folder, 1).unwrap(), none);
        let mut state = State::take(&folder).unwrap();
        assert_eq!(State::take(&folder).err().unwrap().kind(), FaultKind::Busy);
        assert!(Shown::read(&folder, 1).unwrap().running);
        let note = "x".repeat(1000);
        for at in 0..3000 {
            state.log(&Decision { at, job: "job".into(), what: What::Noted(note.clone()) }).unwrap();
        }
        let size = |name: &str| fs::metadata(folder.join(name)).unwrap().len();
        assert!(size(DECISIONS) < MOST + 2000 && size(EARLIER) < MOST + 2000);
        drop(state);
        let shown = Shown::read(&folder, 3).unwrap();
        assert_eq!(shown.decisions.iter().map(|decision| decision.at).collect::<Vec<_>>(), [2997, 2998, 2999]);
        assert!(!shown.running);
    }
}
