//! `job.json`: the run that a profile describes.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use machine::bounds::PROFILE_JOB;
use machine::{Fault, FaultKind, Result};
use record::folder;
use record::untrusted::Folder;
use serde::{Deserialize, Serialize};

/// One run of a command under the profiler. Written when it starts, and again when it has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub command: Vec<String>,
    /// The host where the command was started.
    pub host: String,
    /// The kernel's boot identifier of that host.
    pub boot: String,
    /// Process number of `plimsoll profile`, while it runs.
    pub pid: u32,
    /// The PID namespace of `pid`; 0 where unknown.
    #[serde(default)]
    pub pid_namespace: u32,
    /// CLOCK_REALTIME, ns since 1970.
    pub started: u64,
    /// CLOCK_REALTIME, ns; `None` while the run lasts, or where the profiler was killed.
    pub ended: Option<u64>,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// Bytes a thread's timeline may take; 0: no timeline.
    pub trace_limit: u64,
    /// Time between two samples of the cores, ns; `None` where the sampler chose it.
    #[serde(default)]
    pub interval: Option<u64>,
    /// The requested delays (`record::perturbation`); `None`: no delays.
    #[serde(default)]
    pub perturbation: Option<String>,
    /// Sources of power that every sampler reads, as `plimsoll power` has them.
    #[serde(default)]
    pub power: Vec<String>,
    /// Notes of the profiler: data that could not be recorded, with the reason.
    pub notes: Vec<String>,
}

impl Job {
    pub fn read(profile: &Path) -> Result<Job> {
        let folder = Folder::open(profile, None).map_err(|e| unreadable(profile, e))?;
        let text = Job::text(&folder)?;
        Job::parse(&text).map_err(|fault| fault.within(profile.join(folder::JOB).display()))
    }

    /// The text of a profile's job.json.
    ///
    /// # Errors
    /// [`FaultKind::Missing`]: the profile has no job.json.
    pub fn text(profile: &Folder) -> Result<String> {
        let bytes = profile.read(folder::JOB, PROFILE_JOB.each.bytes().0).map_err(|e| unreadable(profile.path(), e))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The job that the text of a job.json states.
    pub fn parse(text: &str) -> Result<Job> {
        // The parser's message may quote contents that the reader may not show.
        let cause = |e: serde_json::Error| format!("it is none from line {}, column {} on", e.line(), e.column());
        let next = "the file is damaged; profile the program again";
        serde_json::from_str(text).map_err(|e| Fault::new("the job of a profile", cause(e), next))
    }

    /// Writes the file atomically, also for concurrent readers.
    pub fn write(&self, profile: &Path) -> Result<()> {
        let path = profile.join(folder::JOB);
        let fault = |e| Fault::unwritable(path.display().to_string(), e, "name another folder with -o");
        let text = serde_json::to_string_pretty(self).map_err(|e| fault(e.into()))?;
        let beside = path.with_extension("json.new");
        let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, &path));
        written.inspect_err(|_| drop(fs::remove_file(&beside))).map_err(fault)
    }
}

fn unreadable(profile: &Path, error: io::Error) -> Fault {
    let is_missing = error.kind() == ErrorKind::NotFound;
    let next = "name a folder that plimsoll profile made, as in: plimsoll report DIR";
    let fault = Fault::because(profile.join(folder::JOB).display().to_string(), error, next);
    if is_missing { fault.of_kind(FaultKind::Missing) } else { fault }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let job = Job { command: vec!["mpirun".into(), "./a b".into()], exit_code: Some(3), ..Job::default() };
        job.write(folder.path()).unwrap();
        assert_eq!(Job::read(folder.path()).unwrap(), job);
        std::fs::write(folder.path().join(record::folder::JOB), r#"{"command": "a secret"}"#).unwrap();
        let fault = Job::read(folder.path()).unwrap_err().to_string();
        assert!(fault.contains("job.json") && !fault.contains("secret"), "{fault}");
    }
}
