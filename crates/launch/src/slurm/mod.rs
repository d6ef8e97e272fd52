//! Job arrays of Slurm: their scripts ([`script`]), the partitions that they may run in ([`partition`]), and the states of
//! their tasks ([`tasks`]). All by Slurm's own commands.

pub mod clock;
pub(crate) mod output;
pub mod partition;
pub mod record;
pub mod script;
pub mod tasks;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use linux::answer;
use machine::{Fault, Result};

use self::partition::Partition;
use self::tasks::Task;
use crate::program;

/// The commands of a Slurm.
#[derive(Debug, Clone)]
pub struct Slurm {
    sbatch: PathBuf,
    squeue: PathBuf,
    scontrol: PathBuf,
}

impl Slurm {
    /// Slurm's commands in PATH.
    ///
    /// # Errors
    /// A command is not in PATH.
    pub fn find() -> Result<Slurm> {
        let find = |name: &str| {
            program::find(name.as_ref()).map_err(|fault| {
                let next =
                    "run it on a login node of the cluster, or add Slurm's commands to PATH (`module load slurm`)";
                Fault::new(format!("Slurm's {name}"), fault.cause().to_owned(), next)
            })
        };
        Ok(Slurm { sbatch: find("sbatch")?, squeue: find("squeue")?, scontrol: find("scontrol")? })
    }

    /// # Errors
    /// Slurm does not answer.
    pub fn partitions(&self) -> Result<Vec<Partition>> {
        Ok(partition::read(&said(&self.scontrol, &["--oneliner", "show", "partition"])?))
    }

    /// Slurm's MaxArraySize: indices of an array's tasks are below it.
    ///
    /// # Errors
    /// Slurm does not answer.
    pub fn most_tasks(&self) -> Result<u32> {
        let text = said(&self.scontrol, &["show", "config"])?;
        Ok(most_tasks(&text))
    }

    /// Submits a script, to start once the dependency `after` is met. Returns the job's number.
    ///
    /// # Errors
    /// Slurm refuses the script; the fault has the reason.
    pub fn submit(&self, script: &Path, after: Option<&str>) -> Result<u32> {
        let dependency = after.map(|after| format!("--dependency={after}"));
        let words = ["--parsable"].into_iter().chain(dependency.as_deref()).map(OsStr::new);
        let words: Vec<&OsStr> = words.chain([script.as_os_str()]).collect();
        let answer = said(&self.sbatch, &words)?;
        job_of(&answer).ok_or_else(|| {
            let cause = format!("it answers '{}', which has no number of a job", answer.trim());
            Fault::new("sbatch", cause, "see with `squeue` whether it took the job, and report this as a defect")
        })
    }

    /// Tasks of jobs named `name` that have not ended.
    ///
    /// # Errors
    /// Slurm does not answer.
    pub fn active(&self, name: &str) -> Result<Vec<Task>> {
        let words = ["--noheader", "--array", "--format", tasks::FORMAT, "--name", name];
        Ok(tasks::active(&said(&self.squeue, &words)?))
    }

    /// All jobs that Slurm knows, also those that ended a moment ago.
    ///
    /// # Errors
    /// Slurm does not answer, or says anything else; another cluster would be asked.
    pub fn jobs(&self) -> Result<BTreeSet<u64>> {
        if std::env::var_os("SLURM_CLUSTERS").is_some() {
            return Err(Fault::new("SLURM_CLUSTERS", "it has squeue ask other clusters", "unset it, and ask again"));
        }
        let words = ["--noheader", "--all", "--states=all", "--format=%A"];
        let text = said(&self.squeue, &words)?;
        let number = |line: &str| {
            let refused = |_| {
                Fault::new(
                    "squeue",
                    format!("'{line}' is no job"),
                    "see what `squeue` prints, and report this as a defect",
                )
            };
            line.trim().parse().map_err(refused)
        };
        text.lines().map(number).collect()
    }

    /// Ended tasks of an array, as long as Slurm remembers them.
    pub fn ended(&self, job: u32) -> Vec<Task> {
        said(&self.scontrol, &["--oneliner", "show", "job", &job.to_string()])
            .map_or_else(|_| Vec::new(), |text| tasks::ended(&text))
    }
}

/// Slurm's default of MaxArraySize.
const MOST_TASKS: u32 = 1001;

fn most_tasks(text: &str) -> u32 {
    let value = text.lines().find_map(|line| line.strip_prefix("MaxArraySize")?.split_once('='));
    value.and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(MOST_TASKS)
}

/// Job number in sbatch's output: `17`, or `17;cluster`.
fn job_of(answer: &str) -> Option<u32> {
    answer.lines().last()?.split(';').next()?.trim().parse().ok()
}

/// `SBATCH_` variables that override options within a script.
const OF_SCRIPTS: [&str; 13] = [
    "ARRAY_INX",
    "CPU_FREQ_REQ",
    "ERROR",
    "EXCLUSIVE",
    "JOB_NAME",
    "NO_REQUEUE",
    "OPEN_MODE",
    "OUTPUT",
    "PARTITION",
    "REQUEUE",
    "SIGNAL",
    "TIMELIMIT",
    "WAIT",
];

/// Whether a variable overrides the options given here. `SQUEUE_` variables hide tasks, which would then be submitted twice.
fn overrides(name: &str) -> bool {
    name.starts_with("SQUEUE_") || name.strip_prefix("SBATCH_").is_some_and(|name| OF_SCRIPTS.contains(&name))
}

/// Removes variables that override a Slurm command's options.
pub(crate) fn as_told(command: &mut Command) -> &mut Command {
    for (variable, _) in std::env::vars_os().filter(|(variable, _)| variable.to_str().is_some_and(overrides)) {
        command.env_remove(variable);
    }
    command
}

/// More than Slurm's own timeout for a silent controller: an sbatch must not be killed midway.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Standard output of a Slurm command that succeeds.
fn said(program: &Path, words: &[impl AsRef<OsStr>]) -> Result<String> {
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let output = answer::of(as_told(&mut Command::new(program)).args(words), TIMEOUT)
        .map_err(|error| Fault::because(&name, error, "check that Slurm is whole: `sinfo`"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(refused(&name, &said, &output.status.to_string()))
}

/// Next steps, by words of Slurm's error.
const ADVICE: [(&str, &str); 8] = [
    ("contact slurm controller", "see with `sinfo` whether Slurm is up, and submit again"),
    ("time limit", "name shorter chunks (--chunk-time), or another --partition"),
    ("Invalid account", "name the account after the file: -- --account=NAME"),
    ("Invalid qos", "name the quality of service after the file: -- --qos=NAME"),
    ("job submit limit", "submit fewer chunks at a time: --chunks N"),
    ("AssocMaxSubmitJobLimit", "submit fewer chunks at a time: --chunks N"),
    ("node configuration is not available", "choose another --partition, or fewer nodes in the file"),
    ("array specification", "submit fewer chunks: --chunks N"),
];

fn refused(name: &str, said: &str, status: &str) -> Fault {
    let line = |line: &str| {
        let line = line.trim();
        let line = line.strip_prefix(&format!("{name}: ")).unwrap_or(line);
        line.strip_prefix("error: ").unwrap_or(line).to_owned()
    };
    let lines: Vec<String> = said.lines().map(line).filter(|line| !line.is_empty()).collect();
    let cause = if lines.is_empty() { format!("it ended with {status}") } else { lines.join("; ") };
    let advice = ADVICE.iter().find(|(sign, _)| cause.to_lowercase().contains(&sign.to_lowercase()));
    let next = advice.map_or("see with `sinfo` and `squeue` what the cluster takes", |(_, next)| next);
    Fault::new(name, cause, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_jobs_and_of_tasks_are_read() {
        assert_eq!(job_of("17\n"), Some(17));
        assert_eq!(job_of("17;north\n"), Some(17));
        assert_eq!(job_of("Submitted batch job\n"), None);
        assert_eq!(most_tasks("MaxArraySize            = 500\nX = 1\n"), 500);
        assert_eq!(most_tasks(""), MOST_TASKS);
    }

    #[test]
    fn variables_that_say_another_thing_are_kept_from_slurm() {
        for name in ["SQUEUE_STATES", "SQUEUE_USERS", "SBATCH_ARRAY_INX", "SBATCH_OUTPUT", "SBATCH_TIMELIMIT"] {
            assert!(overrides(name), "{name}");
        }
        for name in ["SBATCH_ACCOUNT", "SBATCH_QOS", "SLURM_CONF", "SLURM_CLUSTERS", "PATH"] {
            assert!(!overrides(name), "{name}");
        }
    }

    #[test]
    fn what_slurm_refuses_is_told_with_a_next_step() {
        let said = "sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)\n";
        let fault = refused("sbatch", said, "exit status: 1").to_string();
        assert!(fault.starts_with("sbatch: Batch job submission failed: Requested time limit is invalid"), "{fault}");
        assert!(fault.contains("--chunk-time"), "{fault}");
        let fault = refused("sbatch", "", "exit status: 1").to_string();
        assert!(fault.contains("it ended with exit status: 1"), "{fault}");
    }
}
