//! The allocation of a batch system that this process is in: its nodes, and how long it still lasts.

use std::env;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a batch system gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// `Slurm job 17`.
    pub name: String,
    pub nodes: String,
    /// `None` where it has no end, or does not tell.
    pub left: Option<Duration>,
}

/// The allocation around this process, if there is one.
pub fn around() -> Option<Allocation> {
    let job = |name: &str| env::var(name).ok().filter(|job| !job.is_empty());
    let nodes = |name: &str| env::var(name).unwrap_or_default();
    if let Some(job) = job("SLURM_JOB_ID") {
        let end = env::var("SLURM_JOB_END_TIME").ok().and_then(|end| end.parse().ok()).map(Duration::from_secs);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let left = end.map(|end| end.saturating_sub(now)).or_else(|| {
            clock(said(Command::new("squeue").args(["--noheader", "--jobs", &job, "--format", "%L"]))?.trim())
        });
        return Some(Allocation { name: format!("Slurm job {job}"), nodes: nodes("SLURM_JOB_NODELIST"), left });
    }
    let job = job("PBS_JOBID")?;
    let left = said(Command::new("qstat").args(["-f", &job])).and_then(|text| left_of_qstat(&text));
    let file = nodes("PBS_NODEFILE");
    let listed = std::fs::read_to_string(file).unwrap_or_default();
    let mut nodes: Vec<&str> = listed.lines().collect();
    nodes.dedup();
    Some(Allocation { name: format!("PBS job {job}"), nodes: nodes.join(","), left })
}

fn said(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// `1-02:03:04`, `02:03:04`, `03:04` or `04`; `None` for what is no time, like `UNLIMITED`.
fn clock(text: &str) -> Option<Duration> {
    let (days, rest) =
        text.split_once('-').map_or((0, text), |(days, rest)| (days.parse().ok().unwrap_or(u64::MAX), rest));
    let parts: Option<Vec<u64>> = rest.split(':').map(|part| part.parse().ok()).collect();
    let parts =
        parts.filter(|parts| parts.len() <= 3 && days < 100_000 && parts.iter().all(|part| *part < 1_000_000))?;
    let seconds = parts.iter().fold(0, |sum, part| sum * 60 + part);
    Some(Duration::from_secs(days * 86_400 + seconds))
}

/// What was asked for less what was used, as `qstat -f` shows both.
fn left_of_qstat(text: &str) -> Option<Duration> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name)?.trim_start().strip_prefix('='))?;
        clock(line.trim())
    };
    Some(field("Resource_List.walltime")?.saturating_sub(field("resources_used.walltime").unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_batch_systems_write_them() {
        let seconds = |text| clock(text).map(|time| time.as_secs());
        assert_eq!(seconds("1-02:03:04"), Some(93_784));
        assert_eq!(seconds("10:00"), Some(600));
        assert_eq!(seconds("59"), Some(59));
        for none in ["UNLIMITED", "INVALID", "", "1:2:3:4", "x-1", "99999999999999999999"] {
            assert_eq!(seconds(none), None, "{none}");
        }
    }

    #[test]
    fn what_is_left_of_a_pbs_job() {
        let text = "Job Id: 7.pbs\n    resources_used.walltime = 00:10:00\n    Resource_List.walltime = 01:00:00\n";
        assert_eq!(left_of_qstat(text), Some(Duration::from_secs(3000)));
        assert_eq!(left_of_qstat("Resource_List.walltime = 60"), Some(Duration::from_secs(60)));
        assert_eq!(left_of_qstat("nothing"), None);
    }
}
