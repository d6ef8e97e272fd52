//! What a running job does, from the tables that its ranks write and the samples of its hosts: rates and shares of the
//! time between two looks.

mod hosts;
mod ranks;
pub mod screen;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use machine::Result;
use record::functions::FunctionId;

use self::hosts::Host;
use self::ranks::Followed;
use crate::job::Job;
use crate::split::Model;

/// The host that looks, since a clock and processes are only known where they are.
pub struct Here<'a> {
    /// What tells its present start from others, as the kernel gives it.
    pub boot: String,
    /// CLOCK_MONOTONIC, ns.
    pub monotonic: &'a dyn Fn() -> u64,
    /// Of the process that looks: what tells it from others of its host.
    pub pid_namespace: u32,
    pub is_alive: &'a dyn Fn(u32) -> bool,
}

impl Here<'_> {
    /// Whether a process of the host with this `boot` is known to have ended: its number counts in its own PID namespace,
    /// where 0 stands for one that is not known.
    fn has_ended(&self, boot: &str, namespace: u32, pid: u32) -> bool {
        boot == self.boot && (namespace == 0 || namespace == self.pid_namespace) && !(self.is_alive)(pid)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    pub job: JobNow,
    /// Time since the look before; `None` at the first one, which can tell no rate.
    pub seconds: Option<f64>,
    /// The ranks, by world, then by rank.
    pub ranks: Vec<RankNow>,
    /// The cores with ranks or network softirqs, by host.
    pub cores: Vec<CoreNow>,
    /// The functions, by share of the time in MPI, most first.
    pub functions: Vec<FunctionNow>,
    /// What could not be read, and why.
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
    /// `plimsoll profile` was killed; its ranks may go on.
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
    /// Its process is no longer there, and did not end in order.
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
    pub messages: Option<f64>,
    pub bytes: Option<f64>,
    /// The ranks of its world that it sent most to so far, most first, where these messages are large.
    pub partners: Vec<u32>,
    pub core: Option<u32>,
    /// Times that it was taken off its core.
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
    folder: PathBuf,
    job: Job,
    ranks: BTreeMap<PathBuf, Followed>,
    hosts: BTreeMap<PathBuf, Host>,
    worlds: Vec<String>,
    before: Option<u64>,
    /// Whose turn it is to have its whole tables held against themselves.
    turn: usize,
}

impl Watch {
    /// # Errors
    /// `folder` is none that `plimsoll profile` made.
    pub fn open(folder: &Path) -> Result<Watch> {
        Ok(Watch {
            folder: folder.to_path_buf(),
            job: Job::read(folder)?,
            ranks: BTreeMap::new(),
            hosts: BTreeMap::new(),
            worlds: Vec::new(),
            before: None,
            turn: 0,
        })
    }

    pub fn look(&mut self, here: &Here) -> Look {
        let mut notes = Vec::new();
        match Job::read(&self.folder) {
            Ok(job) => self.job = job,
            Err(fault) => notes.push(fault.to_string()),
        }
        hosts::follow(&self.folder, &mut self.hosts, &mut notes);
        ranks::follow(&self.folder, &mut self.ranks, &mut notes);
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
        // What calls of a kind take when nobody waits is judged by those of all ranks.
        let model = Model::of_calls(self.ranks.values().filter_map(|followed| followed.calls(&ticks)));
        let mut functions: BTreeMap<(FunctionId, u32), ranks::Sum> = BTreeMap::new();
        for followed in self.ranks.values_mut() {
            followed.compare(&ticks, &model, (here.monotonic)(), &mut functions);
        }

        let over = self.job.ended.is_some();
        let mut all: Vec<RankNow> = Vec::new();
        for followed in self.ranks.values_mut() {
            all.extend(followed.look(here, over, &ticks, &self.hosts, &mut self.worlds, &mut notes));
        }
        all.sort_by(|a, b| (a.world, a.rank, &a.host, a.pid).cmp(&(b.world, b.rank, &b.host, b.pid)));
        let cores = self.hosts.values_mut().flat_map(|host| host.cores(&all)).collect();
        ranks::add_held(&self.ranks, &mut functions);
        let functions = ranks::shares(functions);
        Look { job: self.job_now(here), seconds, ranks: all, cores, functions, notes }
    }

    fn job_now(&self, here: &Here) -> JobNow {
        let job = &self.job;
        let state = match job.ended {
            Some(_) => JobState::Ended { exit_code: job.exit_code, signal: job.signal },
            None if here.has_ended(&job.boot, job.pid_namespace, job.pid) => JobState::Orphaned,
            None => JobState::Running,
        };
        JobNow { command: job.command.clone(), folder: self.folder.clone(), state, started: job.started }
    }
}
