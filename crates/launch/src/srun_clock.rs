//! Clocks set by the batch system: Slurm permits `srun --cpu-freq` to users who may not write cpufreq themselves.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use linux::answer;
use linux::clock_setting::{no_cpufreq, permitted};
use machine::{Fault, Hertz, Result};

use crate::allocation;

/// Clock settings in a cluster's configuration (`scontrol show config`).
const SETTINGS: [&str; 2] = ["CpuFreqDef", "CpuFreqGovernors"];

/// The Slurm job of this process, if any.
pub fn job() -> Option<String> {
    allocation::slurm_job()
}

/// A means of setting a clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setter {
    Cpufreq,
    /// A step of this job.
    Step {
        job: String,
    },
}

/// The means by which this process can set clocks of the machine below `root`.
///
/// # Errors
/// There is none.
pub fn setter(root: &Path) -> Result<Setter> {
    let may = permitted(root);
    if may == Some(true) || root != Path::new("/") {
        return Ok(Setter::Cpufreq);
    }
    // Slurm sets clocks by cpufreq too, so a node without cpufreq has no means.
    let here = std::env::var_os("SLURMD_NODENAME").is_some();
    match (may, job()) {
        (None, Some(_)) if here => Err(no_cpufreq()),
        (_, Some(job)) => Ok(Setter::Step { job }),
        (None, None) => Err(no_cpufreq()),
        (Some(_), None) => Err(Fault::new(
            "clocks",
            "cpufreq may not be written by this user",
            "run as root, or inside a Slurm job; else stretch protocol work: --dilate K",
        )),
    }
}

/// `CpuFreqDef = Unknown`: a line for each setting, or the reason why Slurm gives none.
pub fn limits() -> Vec<String> {
    let said = answer::of(Command::new("scontrol").args(["show", "config"]), answer::TIMEOUT);
    match said {
        Ok(output) if output.status.success() => of_config(&String::from_utf8_lossy(&output.stdout)),
        Ok(output) => vec![format!("scontrol show config ended with {}: Slurm's limits are not known", output.status)],
        Err(error) => vec![format!("scontrol: {error}: Slurm's limits are not known")],
    }
}

fn of_config(text: &str) -> Vec<String> {
    let value = |line: &str| {
        let (name, value) = line.split_once('=')?;
        SETTINGS.contains(&name.trim()).then(|| format!("Slurm: {} = {}", name.trim(), value.trim()))
    };
    text.lines().filter_map(value).collect()
}

/// Command that runs `words` on this node in a step whose cores have the clock. `verifier` starts `words` and compares the
/// clock with the effective one.
pub fn step(clock: Hertz, verifier: &Path, held: bool, words: &[OsString]) -> Command {
    let kilohertz = clock.0 / 1000;
    let mut srun = Command::new("srun");
    srun.arg(format!("--cpu-freq={kilohertz}-{kilohertz}")).args(["--nodes=1", "--ntasks=1", "--overlap"]);
    if let Ok(node) = std::env::var("SLURMD_NODENAME") {
        srun.arg(format!("--nodelist={node}"));
    }
    if let Ok(cores) = std::env::var("SLURM_CPUS_ON_NODE") {
        srun.arg(format!("--cpus-per-task={cores}"));
    }
    srun.arg(verifier).args(["clock", &format!("{kilohertz}kHz"), "--verify"]);
    srun.args(held.then_some("--held")).arg("--").args(words);
    srun
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_told_as_the_configuration_has_them() {
        let text = "CommunicationParameters = (null)\nCpuFreqDef              = Unknown\nCpuFreqGovernors        = OnDemand,Performance,UserSpace\nCredType = x\n";
        let told = of_config(text);
        assert_eq!(told, ["Slurm: CpuFreqDef = Unknown", "Slurm: CpuFreqGovernors = OnDemand,Performance,UserSpace"]);
    }

    #[test]
    fn a_step_has_the_clock_and_what_verifies_it() {
        let step = step(Hertz(1_900_000_000), Path::new("/p"), true, &["a".into(), "b c".into()]);
        let words: Vec<_> = step.get_args().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(words[0], "--cpu-freq=1900000-1900000");
        assert_eq!(words[words.len() - 8..], ["/p", "clock", "1900000kHz", "--verify", "--held", "--", "a", "b c"]);
    }
}
