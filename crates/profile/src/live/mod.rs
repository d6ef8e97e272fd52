//! State of a running job, from the tables that its ranks write and the samples of its hosts: rates and shares of the
//! time between two looks.

mod hosts;
mod ranks;
pub mod screen;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use machine::budget::{Budget, Share};
use machine::{Fault, FaultKind, Result};
use record::folder;
use record::functions::FunctionId;
use record::untrusted::Folder;

use self::hosts::Host;
use self::ranks::Followed;
use crate::job::Job;
use crate::split::Model;
use crate::summary::Stall;

/// The host of the observer, since a clock and processes are only known on their own host.
pub struct Here<'a> {
    /// The kernel's boot identifier.
    pub boot: String,
    /// CLOCK_MONOTONIC, ns.
    pub monotonic: &'a dyn Fn() -> u64,
    /// PID namespace of the observing process.
    pub pid_namespace: u32,
    pub is_alive: &'a dyn Fn(u32) -> bool,
}

impl Here<'_> {
    /// Whether a process of the host with this `boot` is there; `None` where that cannot be told from here. Its number counts
    /// in its own PID namespace, where 0 stands for one that is not known.
    pub(crate) fn has(&self, boot: &str, namespace: u32, pid: u32) -> Option<bool> {
        let is_told = boot == self.boot && (namespace == 0 || namespace == self.pid_namespace);
        is_told.then(|| (self.is_alive)(pid))
    }

    /// Whether the process is known to have ended.
    fn has_ended(&self, boot: &str, namespace: u32, pid: u32) -> bool {
        self.has(boot, namespace, pid) == Some(false)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    pub job: JobNow,
    /// Time since the previous look; `None` at the first look, which has no rates.
    pub seconds: Option<f64>,
    /// The ranks, by world, then by rank.
    pub ranks: Vec<RankNow>,
    /// The cores with ranks or network softirqs, by host.
    pub cores: Vec<CoreNow>,
    /// The functions, by share of the time in MPI, most first.
    pub functions: Vec<FunctionNow>,
    /// Files that could not be read, with the reason.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct JobNow {
    pub command: Vec<String>,
    pub folder: PathBuf,
    pub state: JobState,
    /// When the job started, in ns since 1970.
    pub started: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    Running,
    Ended {
        exit_code: Option<i32>,
        signal: Option<i32>,
    },
    /// `plimsoll profile` was killed, or its profile removed; its ranks may go on.
    Orphaned,
}

#[derive(Debug, Clone, PartialEq)]
pub enum RankState {
    /// MPI_Init did not return yet.
    Starting,
    Computing,
    /// The function, with `MPI_`, and since when, in seconds; `None` where that host's clock is not known here.
    Inside {
        function: String,
        seconds: Option<f64>,
    },
    Finalized,
    Exited,
    Aborted,
    /// The process has ended without an orderly exit.
    Killed,
}

/// Rates are a second; shares are of the time of the rank's threads.
#[derive(Debug, Clone, PartialEq)]
pub struct RankNow {
    /// `None` until it is known.
    pub rank: Option<u32>,
    pub world: usize,
    pub host: String,
    pub pid: u32,
    pub threads: u32,
    pub state: RankState,
    pub calls: Option<f64>,
    pub mpi: Option<f64>,
    /// Modelled; see [`crate::split`].
    pub wait: Option<f64>,
    /// Length of a wait, s: the mean over the time that the rank waited. Modelled.
    pub pause: Option<f64>,
    /// Share of time blocked outside MPI, from samples.
    pub blocked: Option<f64>,
    /// The cause, where the rank was blocked for most of its time outside MPI.
    pub stall: Option<Stall>,
    pub messages: Option<f64>,
    pub bytes: Option<f64>,
    /// The ranks of its world that it sent most to so far, most first, where these messages are large.
    pub partners: Vec<u32>,
    pub core: Option<u32>,
    /// Involuntary context switches.
    pub involuntary: Option<f64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CoreNow {
    pub host: String,
    pub core: u32,
    /// Share of the time.
    pub softirq: Option<f64>,
    /// A second.
    pub softirqs: Option<f64>,
    pub busy: Option<f64>,
    /// Places in [`Look::ranks`].
    pub ranks: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct FunctionNow {
    /// The function's name with `MPI_`.
    pub name: String,
    /// Ranks of the communicator of a collective call; 0 for calls of other kinds.
    pub group: u32,
    /// A second, of all ranks that were read.
    pub calls: f64,
    /// Its share of the time in MPI.
    pub share: f64,
    /// The part of its own time that was waiting; `None` where its calls are too few to divide.
    pub wait: Option<f64>,
}

/// A job that is looked at again and again.
pub struct Watch {
    folder: Folder,
    job: Job,
    is_removed: bool,
    memory: Arc<Budget>,
    share: Share,
    ranks: BTreeMap<PathBuf, Followed>,
    hosts: BTreeMap<PathBuf, Host>,
    before: Option<u64>,
    /// The rank whose whole tables are checked for consistency next.
    turn: usize,
}

/// Bytes that each file and each job counts at least: its descriptor, its path and the last read from it.
const LEAST: u64 = 64 << 10;
/// Number of notes of one look from which no more files are opened.
const NOTES: usize = 1000;

fn used_up() -> Fault {
    let next = "watch fewer jobs, or jobs of fewer ranks, at once";
    Fault::new("its figures", "they need more memory than is left for profiles", next).of_kind(FaultKind::Limit)
}

/// Reads a job again and draws its memory from the share.
fn job(folder: &Folder, share: &mut Share) -> Result<Job> {
    let text = Job::text(folder)?;
    // An empty word takes eight times its size in the text, in three copies: as read, as kept and as shown.
    share.resize(LEAST + 24 * text.len() as u64).map_err(|_| used_up())?;
    Job::parse(&text).map_err(|fault| fault.within(folder.path().join(folder::JOB).display()))
}

/// Opens new files of one kind and notes those that cannot be read.
fn open_new<T>(
    profile: &Folder,
    (below, suffix): (&'static str, &'static str),
    known: &mut BTreeMap<PathBuf, T>,
    notes: &mut Vec<String>,
    open: impl Fn(File) -> Result<Option<T>>,
) {
    let mut look = || -> io::Result<()> {
        let folder = profile.below(below)?;
        for name in folder.names(suffix)? {
            let path = folder.path().join(&name);
            if known.contains_key(&path) {
                continue;
            }
            if notes.len() >= NOTES {
                notes.push(format!("left out: more of {}", folder.path().display()));
                break;
            }
            let next = "profile the program again";
            let file = folder.file(&name, u64::MAX);
            let file = file.map_err(|e| Fault::because(path.display().to_string(), e, next));
            match file.and_then(|file| open(file).map_err(|fault| fault.within(path.display()))) {
                Ok(None) => {}
                Ok(Some(new)) => _ = known.insert(path, new),
                Err(fault) => notes.push(format!("left out: {fault}")),
            }
        }
        Ok(())
    };
    if let Err(error) = look()
        && error.kind() != ErrorKind::NotFound
    {
        notes.push(format!("left out: {}: {error}", profile.path().join(below).display()));
    }
}

impl Watch {
    /// The contents of a profile are untrusted. Files are read if they are of this `user`; with `None`, of any user, since
    /// the caller has named the folder. Memory for their contents is drawn from `memory`.
    ///
    /// # Errors
    /// `folder` is none that `plimsoll profile` made.
    pub fn open(folder: &Path, user: Option<u32>, memory: Arc<Budget>) -> Result<Watch> {
        let mut share = memory.draw(LEAST).map_err(|_| used_up())?;
        let next = "name a folder that plimsoll profile made";
        let folder = Folder::open(folder, user).map_err(|e| Fault::because(folder.display().to_string(), e, next))?;
        Ok(Watch {
            job: job(&folder, &mut share)?,
            folder,
            is_removed: false,
            memory,
            share,
            ranks: BTreeMap::new(),
            hosts: BTreeMap::new(),
            before: None,
            turn: 0,
        })
    }

    pub fn look(&mut self, here: &Here) -> Look {
        let mut notes = Vec::new();
        let read = job(&self.folder, &mut self.share);
        self.is_removed = read.as_ref().is_err_and(|fault| fault.kind() == FaultKind::Missing);
        match read {
            Ok(job) => self.job = job,
            Err(fault) => notes.push(fault.to_string()),
        }
        hosts::follow(&self.folder, &mut self.hosts, &self.memory, &mut notes);
        ranks::follow(&self.folder, &mut self.ranks, &self.memory, &mut notes);
        let now = (here.monotonic)();
        let seconds = self.before.map(|before| now.saturating_sub(before) as f64 / 1e9);
        self.before = Some(now);

        let ticks = ranks::ticks(&self.ranks);
        let checked = self.turn.checked_rem(self.ranks.len());
        self.turn = checked.map_or(0, |turn| turn + 1);
        for (place, (path, followed)) in self.ranks.iter_mut().enumerate() {
            notes.extend(followed.read(path));
            // Whole tables are some hundred KiB: each rank's once, and then one rank's a look.
            if !followed.is_checked() || checked == Some(place) {
                notes.extend(followed.check(path));
            }
        }
        // The unhindered time of calls of one kind comes from the calls of all ranks.
        let model = Model::of_calls(self.ranks.values().filter_map(|followed| followed.calls(&ticks)));
        let mut functions: BTreeMap<(FunctionId, u32), ranks::Sum> = BTreeMap::new();
        for followed in self.ranks.values_mut() {
            followed.compare(&ticks, &model, (here.monotonic)(), &mut functions);
        }

        let over = self.job.ended.is_some();
        let mut all: Vec<RankNow> = Vec::new();
        let worlds = ranks::worlds(&self.ranks);
        for (followed, world) in self.ranks.values_mut().zip(worlds) {
            all.extend(followed.look(here, over, &ticks, &self.hosts, world, &mut notes));
        }
        all.sort_by(|a, b| (a.world, a.rank, &a.host, a.pid).cmp(&(b.world, b.rank, &b.host, b.pid)));
        let cores = self.hosts.values_mut().flat_map(|host| host.cores(&all)).collect();
        ranks::add_held(&self.ranks, &mut functions);
        let functions = ranks::shares(functions);
        Look { job: self.job_now(here), seconds, ranks: all, cores, functions, notes }
    }

    /// The state by the last job.json that was read.
    pub fn state(&self, here: &Here) -> JobState {
        let job = &self.job;
        match job.ended {
            Some(_) => JobState::Ended { exit_code: job.exit_code, signal: job.signal },
            None if self.is_removed || here.has_ended(&job.boot, job.pid_namespace, job.pid) => JobState::Orphaned,
            None => JobState::Running,
        }
    }

    fn job_now(&self, here: &Here) -> JobNow {
        let (command, folder) = (self.job.command.clone(), self.folder.path().to_path_buf());
        JobNow { command, folder, state: self.state(here), started: self.job.started }
    }
}
