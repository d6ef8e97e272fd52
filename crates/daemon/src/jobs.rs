//! The jobs that run on this host: those under `plimsoll profile`, and other MPI programs.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use linux::accounting::{is_there, process_time};
use machine::{Fault, Result};
use mapping::decision::Process;
use profile::job::Job as Run;
use record::folder::{JOB, variable};
use record::untrusted::Folder;

use crate::process::{self, Environment};

/// Environment variables of a process's rank: Open MPI 4 and 5, MPICH's and Intel's Hydra, Slurm.
const RANKS: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];

/// The most bytes of a launcher's name of a job; a process with a longer name is of no job.
const NAME: usize = 256;

/// The ranks, by number, of an MPI program without a profile.
pub type UnprofiledRanks = BTreeMap<u32, Process>;

/// The jobs of this host; those with a profile have their ranks there.
pub type Found = BTreeMap<Job, UnprofiledRanks>;

/// Every profile that is being written on this host: the process number of its `plimsoll profile`, its folder and user. Each
/// process of the program has the folder in its environment; the folder's job file names the profiler.
pub fn profiled() -> Vec<(u32, PathBuf, u32)> {
    let mut found: Vec<(u32, PathBuf, u32)> = Vec::new();
    for pid in process::all() {
        let Some((Job { user, name: Name::Profile(folder) }, _)) = Job::of(pid) else { continue };
        let is_known = found.iter().any(|(_, known, of)| (known, *of) == (&folder, user));
        if !is_known && let Some(profiler) = profiler(&folder, user) {
            found.push((profiler, folder, user));
        }
    }
    found.sort();
    found
}

/// The `plimsoll profile` process of a user's profile; `None` where it has ended.
fn profiler(folder: &Path, user: u32) -> Option<u32> {
    let text = Run::text(&Folder::open(folder, Some(user)).ok()?).ok()?;
    Run::parse(&text).ok().filter(|job| job.ended.is_none() && is_there(job.pid)).map(|job| job.pid)
}

/// One job. Its processes choose its name, so that processes of two users are of two jobs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Job {
    pub user: u32,
    pub name: Name,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// The folder of its profile.
    Profile(PathBuf),
    /// The launcher's name of the job.
    Launcher(String),
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Name::Profile(folder) => write!(f, "{}", folder.display())?,
            Name::Launcher(name) => f.write_str(name)?,
        }
        match self.user == rustix::process::geteuid().as_raw() {
            true => Ok(()),
            false => write!(f, " of user {}", self.user),
        }
    }
}

impl Job {
    /// The job of a word: the folder of its profile, or the process number of its `plimsoll profile` or of a rank.
    ///
    /// # Errors
    /// There is none that this user may see.
    pub fn named(word: &Path) -> Result<Job> {
        if word.is_dir() {
            let next = "name a folder that plimsoll profile made";
            return Job::written(word).map_err(|e| Fault::because(word.join(JOB).display().to_string(), e, next));
        }
        let job = word.to_str().and_then(|word| word.parse().ok()).and_then(|pid| {
            let profiler = profiled().into_iter().find(|(profiler, ..)| *profiler == pid);
            let of_profiler = profiler.map(|(_, folder, user)| Job { user, name: Name::Profile(folder) });
            of_profiler.or_else(|| Some(Job::of(pid)?.0))
        });
        let next = "name the folder of a profile, or the process number of a rank or of a plimsoll profile";
        job.ok_or_else(|| Fault::new(word.display().to_string(), "no job is known by it that this user may see", next))
    }

    /// The job of a profile's folder, as its ranks name it; its user is the owner of the file that describes it.
    fn written(folder: &Path) -> io::Result<Job> {
        let folder = folder.canonicalize()?;
        let user = Folder::open(&folder, None)?.file(JOB, u64::MAX)?.metadata()?.uid();
        Ok(Job { user, name: Name::Profile(folder) })
    }

    /// The job of a process, and its rank, from the process's environment.
    fn of(pid: u32) -> Option<(Job, Option<u32>)> {
        let environment = Environment::of(pid)?;
        let rank = RANKS.into_iter().find_map(|name| environment.get(name)?.parse().ok());
        let name = match environment.get(variable::FOLDER) {
            Some(folder) => Name::Profile(folder.into()),
            None => rank.and_then(|_| name(&environment, pid)).map(Name::Launcher)?,
        };
        Some((Job { user: process::user(pid)?, name }, rank))
    }
}

/// Repeated searches for jobs.
#[derive(Debug, Default)]
pub struct Search {
    /// By process that is no rank: the number of searches that found it.
    others: BTreeMap<u32, u32>,
}

/// Searches after which a process without a rank is skipped; before, a launcher may still execute a rank in it.
const SEARCHES_BEFORE_SKIP: u32 = 2;

impl Search {
    /// All jobs whose processes this user may see.
    pub fn find(&mut self) -> Found {
        let mut found = Found::new();
        let before = std::mem::take(&mut self.others);
        for pid in process::all().filter(|pid| *pid != std::process::id()) {
            let seen = before.get(&pid).copied().unwrap_or(0);
            if seen >= SEARCHES_BEFORE_SKIP || look(pid, &mut found).is_none() {
                self.others.insert(pid, (seen + 1).min(SEARCHES_BEFORE_SKIP));
            }
        }
        found
    }
}

/// Adds a process to its job; `None` where it is of no job.
fn look(pid: u32, found: &mut Found) -> Option<()> {
    let process = process::identify(pid)?;
    let (job, rank) = Job::of(pid)?;
    if !process::is_there(process) {
        // The process number may have been reused while it was read.
        return None;
    }
    let is_profiled = matches!(job.name, Name::Profile(_));
    let ranks = found.entry(job).or_default();
    if !is_profiled {
        // A rank's wrapper has the rank's environment: of the two, the process with more processor time is the rank.
        let worked = |process: &Process| process_time(process.pid).unwrap_or_default();
        let known = ranks.entry(rank?).or_insert(process);
        if *known != process && worked(&process) > worked(known) {
            *known = process;
        }
    }
    Some(())
}

/// The name that the ranks of one job have in common.
fn name(environment: &Environment, pid: u32) -> Option<String> {
    if let Some(namespace) = environment.get("PMIX_NAMESPACE") {
        return Some(format!("mpirun {namespace}")).filter(|name| name.len() <= NAME);
    }
    if let (Some(job), Some(step)) = (environment.get("SLURM_JOB_ID"), environment.get("SLURM_STEP_ID")) {
        return Some(format!("Slurm step {job}.{step}")).filter(|name| name.len() <= NAME);
    }
    // Hydra has no name for its job: its ranks of a host have one parent.
    parent(pid).map(|parent| format!("ranks of process {parent}"))
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    use super::*;

    /// A `sleep` process, ended with its test.
    struct Sleep(Child);

    impl Drop for Sleep {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    const NOBODY: u32 = 65534;

    /// A process of a user that claims to be rank 0 of a job; `None` where that user may not start `program`, or where this
    /// process may not read its environment.
    fn rank(program: &Path, user: u32, namespace: &str) -> Option<Sleep> {
        let mut command = Command::new(program);
        command.arg("600").uid(user).gid(user).current_dir("/").env_remove(variable::FOLDER);
        command.env("PMIX_NAMESPACE", namespace).env("OMPI_COMM_WORLD_RANK", "0");
        let sleep = Sleep(command.spawn().ok()?);
        // The child has its own environment once it has executed its program.
        while Job::of(sleep.0.id()).is_none() {
            fs::File::open(format!("/proc/{}/environ", sleep.0.id())).ok()?;
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Some(sleep)
    }

    #[test]
    fn a_process_of_another_user_never_joins_a_job() {
        if !rustix::process::geteuid().is_root() {
            return skip::test("a process of another user needs root");
        }
        let namespace = format!("test-{}", std::process::id());
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        // The process of a program that may be executed but not read is hidden: root owns its folder in `/proc`.
        let hidden = home.path().join("sleep");
        skip::copy_program("/bin/sleep".as_ref(), &hidden);
        fs::set_permissions(&hidden, fs::Permissions::from_mode(0o711)).unwrap();
        let ours = rank("/bin/sleep".as_ref(), 0, &namespace).unwrap();
        for program in [Path::new("/bin/sleep"), hidden.as_path()] {
            let Some(theirs) = rank(program, NOBODY, &namespace) else {
                skip::part(
                    "another user may not reach the folder for temporary files, or root not look into processes",
                );
                continue;
            };
            let found = Search::default().find();
            for (user, sleep) in [(0, &ours), (NOBODY, &theirs)] {
                let job = Job { user, name: Name::Launcher(format!("mpirun {namespace}")) };
                let process = process::identify(sleep.0.id()).unwrap();
                assert_eq!(found.get(&job), Some(&UnprofiledRanks::from([(0, process)])), "{job}");
            }
        }
    }

    #[test]
    fn a_name_that_is_longer_than_any_is_none() {
        let child = Command::new("sleep").arg("600").env("PMIX_NAMESPACE", "x".repeat(NAME)).spawn().unwrap();
        let sleep = Sleep(child);
        let pid = sleep.0.id();
        let said = || Environment::of(pid).filter(|of| of.get("PMIX_NAMESPACE").is_some_and(|name| name.len() == NAME));
        let environment = loop {
            match said() {
                Some(environment) => break environment,
                None => std::thread::sleep(std::time::Duration::from_millis(1)),
            }
        };
        assert_eq!(name(&environment, pid), None);
    }
}
