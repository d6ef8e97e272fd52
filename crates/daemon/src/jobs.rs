//! The jobs that run on this host: those under `plimsoll profile`, and other MPI programs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use linux::accounting::{is_there, process_time};
use machine::{Fault, Result};
use mapping::decision::Process;
use profile::job::Job as Run;
use record::folder::{JOB, variable};

use crate::process::{self, Environment};

/// Where launchers write a process's rank: Open MPI 4 and 5, MPICH's and Intel's Hydra, Slurm.
const RANKS: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];

/// An MPI program of which only the kernel tells something: ranks by number.
pub type Plain = BTreeMap<u32, Process>;

/// Every profile that is written on this host, by the process number of its `plimsoll profile`, with its folder: what that
/// started has the folder in its environment, and the folder's job names the profiler.
pub fn profiled() -> Vec<(u32, PathBuf)> {
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    for pid in process::all() {
        let Some(folder) = Environment::of(pid).and_then(|environment| environment.get(variable::FOLDER)) else {
            continue;
        };
        let folder = PathBuf::from(folder);
        if found.iter().all(|(_, known)| *known != folder)
            && let Some(job) = job(&folder, pid)
            && is_there(job.pid)
        {
            found.push((job.pid, folder));
        }
    }
    found.sort();
    found
}

/// The job of a profile that the process `pid` writes; `None` where it is over. A process may name any folder: only one of
/// its own user is read.
fn job(folder: &Path, pid: u32) -> Option<Run> {
    let file = fs::symlink_metadata(folder.join(JOB)).ok().filter(fs::Metadata::is_file)?;
    let is_theirs = process::user(pid) == Some(file.uid());
    Run::read(folder).ok().filter(|job| is_theirs && job.ended.is_none())
}

/// One job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Job {
    /// By its profile's folder.
    Profiled(PathBuf),
    /// By its launcher's name of it.
    Plain(String),
}

impl Job {
    /// The job that a user means: by the folder of its profile, or by the number of its `plimsoll profile` or of a rank.
    ///
    /// # Errors
    /// There is none that this user may see.
    pub fn named(word: &Path) -> Result<Job> {
        if word.is_dir() {
            return Ok(Job::Profiled(word.into()));
        }
        let job = word.to_str().and_then(|word| word.parse().ok()).and_then(|pid| {
            let profiler = profiled().into_iter().find(|(profiler, _)| *profiler == pid);
            profiler.map(|(_, folder)| Job::Profiled(folder)).or_else(|| Job::of_rank(pid))
        });
        let next = "name the folder of a profile, or the process number of a rank or of a plimsoll profile";
        job.ok_or_else(|| Fault::new(word.display().to_string(), "no job is known by it that this user may see", next))
    }

    fn of_rank(pid: u32) -> Option<Job> {
        let environment = Environment::of(pid)?;
        match environment.get(variable::FOLDER) {
            Some(folder) => Some(Job::Profiled(folder.into())),
            None => rank(&environment).and_then(|_| name(&environment, pid)).map(Job::Plain),
        }
    }
}

fn rank(environment: &Environment) -> Option<u32> {
    RANKS.into_iter().find_map(|name| environment.get(name)?.parse().ok())
}

/// What runs here.
#[derive(Debug, Default)]
pub struct Found {
    /// Folders that ranks of this host write their profile into.
    pub profiled: Vec<PathBuf>,
    /// By the launcher's name of the job.
    pub plain: BTreeMap<String, Plain>,
}

/// Searches for jobs, again and again.
pub struct Search {
    /// What tells this start of the host from others.
    boot: String,
    /// In how many searches a process was seen that is no rank.
    others: BTreeMap<u32, u32>,
}

/// A process that was no rank in so many searches becomes none: its launcher may have been about to start one.
const ENOUGH: u32 = 2;

impl Search {
    pub fn new(boot: impl Into<String>) -> Search {
        Search { boot: boot.into(), others: BTreeMap::new() }
    }

    /// All jobs whose processes this user may see.
    pub fn find(&mut self) -> Found {
        let mut found = Found::default();
        let before = std::mem::take(&mut self.others);
        for pid in process::all().filter(|pid| *pid != std::process::id()) {
            let seen = before.get(&pid).copied().unwrap_or(0);
            if seen >= ENOUGH || !self.look(pid, &mut found) {
                self.others.insert(pid, (seen + 1).min(ENOUGH));
            }
        }
        found
    }

    /// Whether a process is of a job.
    fn look(&self, pid: u32, found: &mut Found) -> bool {
        let Some(environment) = Environment::of(pid) else { return false };
        if let Some(folder) = environment.get(variable::FOLDER).map(PathBuf::from) {
            let is_new = !found.profiled.contains(&folder);
            // Of a profiler on another host nothing is known here but that its job did not end.
            let goes_on = |job: Run| job.boot != self.boot || is_there(job.pid);
            if is_new && job(&folder, pid).is_some_and(goes_on) {
                found.profiled.push(folder);
            }
            return true;
        }
        let rank = rank(&environment);
        let (Some(rank), Some(job), Some(process)) = (rank, name(&environment, pid), process::identify(pid)) else {
            return false;
        };
        // A rank's wrapper has its environment too: the one that works is the rank.
        let worked = |process: &Process| process_time(process.pid).unwrap_or_default();
        let known = found.plain.entry(job).or_default().entry(rank).or_insert(process);
        if *known != process && worked(&process) > worked(known) {
            *known = process;
        }
        true
    }
}

/// What the ranks of one job have in common.
fn name(environment: &Environment, pid: u32) -> Option<String> {
    if let Some(namespace) = environment.get("PMIX_NAMESPACE") {
        return Some(format!("mpirun {namespace}"));
    }
    if let (Some(job), Some(step)) = (environment.get("SLURM_JOB_ID"), environment.get("SLURM_STEP_ID")) {
        return Some(format!("Slurm step {job}.{step}"));
    }
    // Hydra names its job nowhere: its ranks of a host have one parent.
    parent(pid).map(|parent| format!("ranks of process {parent}"))
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}
