//! Slurm's account of a node's power and of a job's energy.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use machine::power::{Band, Covers, Measure, Sensor};
use machine::{Fault, Nanoseconds, Result};

use super::reader::{Look, Reader};
use super::spawn;
use crate::clock::monotonic;

const LIMIT: Duration = Duration::from_secs(10);

pub struct Slurm {
    sensors: Vec<Sensor>,
    node: String,
    job: Option<String>,
    end: Arc<AtomicBool>,
}

fn run(words: &[&str], end: &AtomicBool) -> std::result::Result<String, String> {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    spawn::output(command, LIMIT, end).map_err(|cause| format!("{}: {cause}", words[0]))
}

/// The value of `key=` in the output of scontrol.
fn of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

/// The value of a `key = value` line of `scontrol show config`.
fn setting<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.split_once('=').filter(|(name, _)| name.trim() == key).map(|(_, value)| value.trim()))
}

impl Slurm {
    /// # Errors
    /// There is no Slurm, it does not know this node, or gathers no energy.
    pub fn open(end: Arc<AtomicBool>) -> Result<Slurm> {
        let refused = |cause: String, next: &str| Fault::new("slurm", cause, next);
        let config = run(&["scontrol", "show", "config"], &end)
            .map_err(|cause| refused(cause, "run it on a node of a cluster with Slurm, where scontrol answers"))?;
        let gathers = setting(&config, "AcctGatherEnergyType").unwrap_or("not told");
        if !config.is_empty() && (gathers.ends_with("none") || gathers == "not told" || gathers == "(null)") {
            return Err(refused(
                format!("Slurm gathers no energy here: AcctGatherEnergyType is {gathers}"),
                "ask who runs the cluster for acct_gather_energy/rapl, ipmi, xcc or pm_counters, or name a command that reads the node",
            ));
        }
        let here = std::env::var("SLURMD_NODENAME")
            .unwrap_or_else(|_| rustix::system::uname().nodename().to_string_lossy().into_owned());
        let node = here.split('.').next().unwrap_or_default().to_owned();
        let shown = run(&["scontrol", "show", "node", &node], &end)
            .map_err(|cause| refused(cause, "run it on a node that Slurm knows"))?;
        if watts(&shown).is_none() {
            let cause = format!("Slurm tells no CurrentWatts of node {node}");
            return Err(refused(cause, "ask who runs the cluster whether slurmd can read its sensor"));
        }
        let mut sensors = vec![sensor("slurm:node", Measure::Gauge)];
        let job = std::env::var("SLURM_JOB_ID").ok();
        if job.as_deref().is_some_and(|job| consumed(job, &end).is_ok()) {
            let counter = Measure::Counter { range: None, step: 1_000_000, lag: Nanoseconds(30_000_000_000) };
            sensors.push(sensor("slurm:job", counter));
        }
        Ok(Slurm { sensors, node, job, end })
    }
}

fn sensor(name: &str, measure: Measure) -> Sensor {
    Sensor { name: name.to_owned(), covers: Covers::Node, band: Band::Unstated, measure, within: None }
}

/// Slurm's values for unknown and infinite, in 32 bits.
const UNKNOWN: [u64; 2] = [u32::MAX as u64 - 1, u32::MAX as u64];

fn watts(shown: &str) -> Option<u64> {
    // A live node draws more than nothing.
    of(shown, "CurrentWatts")?.parse::<u64>().ok().filter(|watts| *watts > 0 && !UNKNOWN.contains(watts))
}

/// Microjoules of the job's running steps.
fn consumed(job: &str, end: &AtomicBool) -> std::result::Result<u64, String> {
    let text =
        run(&["sstat", "--noheader", "--parsable2", "--allsteps", "--format=ConsumedEnergyRaw", "-j", job], end)?;
    joules(&text).ok_or_else(|| "sstat tells no ConsumedEnergyRaw of this job".to_owned())
}

/// The sum of sstat's output over steps.
fn joules(text: &str) -> Option<u64> {
    let steps = text.lines().filter(|line| !line.trim().is_empty()).map(|line| line.trim().parse::<u64>());
    let steps: Vec<u64> = steps.collect::<std::result::Result<_, _>>().ok()?;
    // Slurm's value for unknown is -2 in 64 bits.
    let is_known = !steps.is_empty() && steps.iter().all(|joules| *joules < 1 << 50 && !UNKNOWN.contains(joules));
    is_known.then(|| steps.iter().sum::<u64>() * 1_000_000)
}

impl Reader for Slurm {
    fn sensors(&self) -> &[Sensor] {
        &self.sensors
    }

    fn look(&mut self, give: &mut dyn FnMut(usize, Look)) {
        let mut told = |place, begun: Nanoseconds, told| match told {
            Ok(micro) => give(place, Look::Value { at: Nanoseconds(begun.0 + (monotonic().0 - begun.0) / 2), micro }),
            Err(cause) => give(place, Look::Stopped { at: begun, cause }),
        };
        let begun = monotonic();
        let shown = run(&["scontrol", "show", "node", &self.node], &self.end);
        let power = shown.and_then(|shown| watts(&shown).ok_or_else(|| "scontrol tells no CurrentWatts".to_owned()));
        told(0, begun, power.map(|watts| watts.saturating_mul(1_000_000)));
        if let (2, Some(job)) = (self.sensors.len(), &self.job) {
            let begun = monotonic();
            told(1, begun, consumed(job, &self.end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_slurm_are_read() {
        let shown =
            "NodeName=n1 Arch=x86_64\n   CurrentWatts=312 AveWatts=298\n   ExtSensorsJoules=n/s ExtSensorsWatts=0\n";
        assert_eq!(watts(shown), Some(312));
        for unknown in ["n/s", "0", "4294967294", "4294967295"] {
            assert_eq!(watts(&format!("NodeName=n1 CurrentWatts={unknown} AveWatts=n/s")), None, "{unknown}");
        }
        let config =
            "AccountingStorageType   = accounting_storage/none\nAcctGatherEnergyType    = acct_gather_energy/none\n";
        assert_eq!(setting(config, "AcctGatherEnergyType"), Some("acct_gather_energy/none"));
        assert_eq!(joules("1200\n34\n"), Some(1_234_000_000));
        for unknown in ["", "18446744073709551614\n", "4294967294\n", "12\n4294967295\n", "n/a\n"] {
            assert_eq!(joules(unknown), None, "{unknown}");
        }
    }
}
