//! The folder of a profile: the names of its files.
//!
//! ```text
//! DIR/job.json                 the command, its start and end, its status, the options of the profile
//! DIR/ranks/HOST.PID.rank      the tables of a rank (`layout`)
//! DIR/ranks/HOST.PID.K.trace   the timeline of its thread K, if requested
//! DIR/hosts/HOST.samples       samples of a host's cores and ranks, moment by moment
//! DIR/hosts/placed             the host of each rank, if delays depend on hosts
//! DIR/hosts/HOST.PID.past      objects of a process whose calls of MPI bypass the recorder ([`past`])
//! DIR/hosts/BOOT.sampled       mark of a sampler on the host whose present boot is BOOT
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use machine::{Fault, Result};

pub const JOB: &str = "job.json";
pub const RANKS: &str = "ranks";
pub const HOSTS: &str = "hosts";
pub const RANK_SUFFIX: &str = "rank";
pub const TRACE_SUFFIX: &str = "trace";
pub const SAMPLES_SUFFIX: &str = "samples";
pub const PAST_SUFFIX: &str = "past";

/// First words of the lines of a [`past_file`]; a file's path follows.
pub mod past {
    /// No call was recorded: functions are bound to this MPI library itself.
    pub const ALL: &str = "all";
    /// Calls of this object were not recorded: the object is bound to the MPI library itself.
    pub const SOME: &str = "some";
}

/// Environment variables of the preloaded library; `plimsoll profile` sets them.
pub mod variable {
    /// The folder, as an absolute path. Without it the library records nothing.
    pub const FOLDER: &str = "PLIMSOLL_PROFILE";
    /// Most bytes of a thread's timeline; unset or 0: no timeline.
    pub const TRACE: &str = "PLIMSOLL_PROFILE_TRACE";
    /// Most bytes of a rank's tables.
    pub const MEMORY: &str = "PLIMSOLL_PROFILE_MEMORY";
    /// The plimsoll program that samples the cores, which the first rank of a host without a sampler starts.
    pub const SAMPLER: &str = "PLIMSOLL_PROFILE_SAMPLER";
    /// Set where a site profiles all jobs: nothing is printed.
    pub const SITE: &str = "PLIMSOLL_PROFILE_SITE";
    /// Delays injected into the program ([`crate::perturbation`]); unset or empty: none.
    pub const PERTURB: &str = "PLIMSOLL_PROFILE_PERTURB";
}

/// A host's name as a part of a file's name.
pub fn host_word(host: &str) -> String {
    let word: String = host
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '-' })
        .take(64)
        .collect();
    if word.is_empty() { "host".into() } else { word }
}

pub fn rank_file(folder: &Path, host: &str, pid: u32) -> PathBuf {
    folder.join(RANKS).join(format!("{}.{pid}.{RANK_SUFFIX}", host_word(host)))
}

/// `thread` is the index of the thread in the rank's tables.
pub fn trace_file(folder: &Path, host: &str, pid: u32, thread: u16) -> PathBuf {
    folder.join(RANKS).join(format!("{}.{pid}.{thread}.{TRACE_SUFFIX}", host_word(host)))
}

/// The mark of a sampled host, whose present boot is `boot`: the process that creates it starts the sampler.
pub fn sampled_mark(folder: &Path, boot: &str) -> PathBuf {
    folder.join(HOSTS).join(format!("{}.sampled", host_word(boot)))
}

/// The placement: a line for each rank with its number, a blank and its host.
pub fn placed_file(folder: &Path) -> PathBuf {
    folder.join(HOSTS).join("placed")
}

pub fn past_file(folder: &Path, host: &str, pid: u32) -> PathBuf {
    folder.join(HOSTS).join(format!("{}.{pid}.{PAST_SUFFIX}", host_word(host)))
}

pub fn samples_file(folder: &Path, host: &str) -> PathBuf {
    folder.join(HOSTS).join(format!("{}.{SAMPLES_SUFFIX}", host_word(host)))
}

/// The tables of all ranks, in the order of file names.
///
/// # Errors
/// The folder cannot be read.
pub fn rank_files(profile: &Path) -> Result<Vec<PathBuf>> {
    files(profile, RANK_SUFFIX)
}

/// Files of ranks with this suffix, in the order of file names.
///
/// # Errors
/// As [`rank_files`].
pub fn files(profile: &Path, suffix: &str) -> Result<Vec<PathBuf>> {
    let ranks = profile.join(RANKS);
    let entries = match fs::read_dir(&ranks) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Fault::because(ranks.display().to_string(), error, "let this user read the folder")),
    };
    let is_one = |path: &PathBuf| path.extension().is_some_and(|of| of == suffix);
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_one).collect();
    files.sort();
    Ok(files)
}
