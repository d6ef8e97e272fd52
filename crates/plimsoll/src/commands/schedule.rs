//! `plimsoll whatif --goal`: a schedule that nobody need have recorded, under LogGOPS (with `--carried` it is replayed).

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use chart::number::nanoseconds;
use machine::{Fault, Result, count};
use serde_json::json;
use whatif::simulate::loggops::{Finished, Parameters};
use whatif::simulate::{self, goal};

use super::whatif::print;

#[derive(clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Simulating a schedule")]
pub struct Arguments {
    /// Simulate a schedule of LogGOPSim (GOAL), which `plimsoll report DIR --export goal` writes
    #[arg(long, value_name = "FILE", conflicts_with_all = ["folder", "measure"], group = "source")]
    pub goal: Option<PathBuf>,
    /// The network's parameters: nanoseconds, and for S bytes
    #[arg(
        long,
        value_name = "L=..,o=..,g=..,G=..,O=..,S=..",
        requires = "goal",
        default_value = "L=2500,o=1500,g=1000,G=6,O=0,S=65535"
    )]
    loggops: Parameters,
    /// With --carried: ranks of each host, in order; without it all are on one
    #[arg(long, value_name = "N", requires_all = ["goal", "carried"], value_parser = clap::value_parser!(u32).range(1..))]
    pub per_host: Option<u32>,
}

pub fn read(file: &Path) -> Result<goal::Schedule> {
    let name = file.display().to_string();
    let text = std::fs::read(file)
        .map_err(|e| Fault::because(name.clone(), e, "write one with `plimsoll report DIR --export goal -o FILE`"))?;
    goal::read(&text).map_err(|fault| fault.within(name))
}

pub fn run(file: &Path, arguments: &Arguments, json: bool) -> Result<ExitCode> {
    let name = file.display().to_string();
    let schedule = read(file)?;
    let finished = simulate::run(&schedule, &arguments.loggops).map_err(|fault| fault.within(&name))?;
    let all = || json!({ "file": name, "total_ns": finished.total(), "ranks_ns": finished.ranks, "messages": finished.messages, "bytes": finished.sent });
    print(json, || page(&name, &schedule, &finished), all)?;
    Ok(ExitCode::SUCCESS)
}

fn page(name: &str, schedule: &goal::Schedule, finished: &Finished) -> String {
    let Finished { ranks, busy, messages, .. } = finished;
    let total = finished.total();
    let operations = count::of(schedule.operations() as u64, "operation");
    let first = ranks.iter().min().copied().unwrap_or(0);
    let share = busy.iter().sum::<u64>() as f64 / (busy.len().max(1) as u64 * total.max(1)) as f64;
    format!(
        "{name}: {}, {operations}, {}, simulated under LogGOPS\nEnds after {}; the first rank ended after {}; cpus are busy {:.0} % of it.\n",
        count::of(ranks.len() as u64, "rank"),
        count::of(*messages, "message"),
        nanoseconds(total as f64),
        nanoseconds(first as f64),
        100.0 * share
    )
}
