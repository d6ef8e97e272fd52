//! `plimsoll whatif schedule`: a schedule, recorded or not, under LogGOPS, over the engine itself, or replayed.

use std::path::PathBuf;
use std::process::ExitCode;

use chart::number::nanoseconds;
use machine::costs::store;
use machine::{Costs, Fault, Result, Site, count};
use serde_json::json;
use simulate::engines::{self, Outcome, Placement, Settings};
use simulate::loggops::{Finished, Parameters};
use simulate::running::Running;
use whatif::goal;
use whatif::lever::Lever;

use super::levers::{Changes, Recording};
use super::outputs::Json;
use super::replay::{self, Request};
use crate::opened::{Opened, priced_schedule, read_schedule};

/// Simulates a schedule of LogGOPSim (GOAL), which `plimsoll report DIR --export goal` writes: under LogGOPS, over the engine
/// itself, or replayed by the costs of what carries it
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// File with the schedule
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The network's parameters: nanoseconds, and for S bytes
    #[arg(long, value_name = "L=..,o=..", default_value = "L=2500,o=1500,g=1000,G=6,O=0,S=65535")]
    loggops: Parameters,
    /// Run the schedule over plimsoll's own engine, at this placement of each host, under the costs of this machine: app, or
    /// core:1 for a core of its own
    #[arg(long, value_name = "SITE", conflicts_with_all = ["loggops", "carried"])]
    engine: Option<Site>,
    /// Replay it by this machine's costs of what carries the messages: app, core, or a carrier of the MPI
    #[arg(long, value_name = "NAME", conflicts_with = "loggops")]
    carried: Option<String>,
    /// With --engine or --carried: how many ranks a host has; without it all are on one
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    ranks_per_host: Option<u32>,
    /// With --engine: what carries messages between hosts: udp, afxdp or xdp
    #[arg(long, value_name = "NETWORK", requires = "engine", requires = "ranks_per_host", default_value = "udp")]
    network: String,
    /// With --engine: the part of its packets that gets lost: 0.01
    #[arg(long, value_name = "PART", requires = "engine", requires = "ranks_per_host", default_value_t = 0.0)]
    loss: f64,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    json: Json,
}

const EXAMPLES: &str = "Examples:
  plimsoll whatif schedule run.goal --loggops L=1000,o=200
  plimsoll whatif schedule run.goal --engine core:1 --ranks-per-host 8 --loss 0.01
  plimsoll whatif schedule run.goal --carried ucx --latency +1us";

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let Arguments { file, changes, json, .. } = arguments;
    let name = file.display().to_string();
    if let Some(named) = arguments.carried.as_deref() {
        return replayed(arguments, named);
    }
    if changes.lever() != Lever::default() {
        let next = "say by --carried what carries the messages";
        return Err(Fault::new(name, "LogGOPS has none of these levers", next));
    }
    let schedule = read_schedule(file)?;
    if let Some(site) = &arguments.engine {
        return over_engines(&name, &schedule, site, arguments, json).map_err(|fault| fault.within(&name));
    }
    if arguments.ranks_per_host.is_some() {
        let next = "name what carries the messages by --engine or --carried, or leave --ranks-per-host out";
        return Err(Fault::new(name, "LogGOPS has no hosts", next));
    }
    let finished = simulate::run(&schedule, &arguments.loggops).map_err(|fault| fault.within(&name))?;
    let all = || json!({ "file": name, "total_ns": finished.total(), "ranks_ns": finished.ranks, "messages": finished.messages, "bytes": finished.sent });
    json.print(|| page(&name, &schedule, &finished), all)?;
    Ok(ExitCode::SUCCESS)
}

/// Replays the schedule by the costs of what carries its messages.
fn replayed(arguments: &Arguments, named: &str) -> Result<ExitCode> {
    let known = store::live()?;
    priced_schedule(&known.costs, Some(named))?;
    let opened = Opened::schedule(&arguments.file, arguments.ranks_per_host)?;
    let recording = Recording::default();
    let (changes, json) = (&arguments.changes, &arguments.json);
    let request =
        Request { named: Some(named), carried: None, changes, at: &[], recording: &recording, best: None, json };
    replay::answer(&opened, &known, &request)
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

/// Counters of the engines, by their names in JSON.
pub fn counters(outcome: &Outcome) -> [(&'static str, u64); 5] {
    [
        ("packets", outcome.count(|counters| counters.packets_sent)),
        ("lost", outcome.lost),
        ("retransmitted", outcome.count(|counters| counters.retransmitted)),
        ("unexpected", outcome.unexpected),
        ("waits_for_credit", outcome.count(|counters| counters.credit_waits)),
    ]
}

/// [`counters`] in words.
pub fn counted(outcome: &Outcome) -> String {
    let [packets, lost, again, unexpected, waits] = counters(outcome).map(|(_, count)| count);
    format!(
        "{}, {} lost, {again} sent again; {unexpected} messages came before their receives; {waits} waits for credit.",
        count::of(packets, "packet"),
        count::grouped(lost),
    )
}

/// Places of all costs in their intervals: the middle, the least, the most.
const PLACES: [f64; 3] = [0.0, -1.0, 1.0];

fn over_engines(
    name: &str,
    schedule: &goal::Schedule,
    site: &Site,
    arguments: &Arguments,
    json: &Json,
) -> Result<ExitCode> {
    let placement = match site {
        Site::App => Placement::App,
        Site::Core(_) => Placement::Core,
        Site::Xdp(_) | Site::Tc(..) | Site::Agent(_) => {
            let cause = "the message engine runs at app or core:N only";
            return Err(Fault::new(format!("placement {site}"), cause, "choose app or core:1"));
        }
    };
    let known = store::live()?;
    let per_host = arguments.ranks_per_host.unwrap_or(schedule.ranks()).max(1);
    let run = |costs: &Costs, place: f64| {
        let mut settings = Settings::of(costs, placement, per_host, &arguments.network, place);
        settings.between.loss = arguments.loss;
        engines::simulate(&mut Running::of(schedule), &settings)
    };
    let outcomes = PLACES.iter().map(|place| run(&known.costs, *place)).collect::<Result<Vec<Outcome>>>()?;
    let totals: Vec<f64> = outcomes.iter().map(|outcome| outcome.total() as f64 / 1e3).collect();
    let ends = (totals.iter().copied().fold(f64::MAX, f64::min), totals.iter().copied().fold(0.0, f64::max));
    let Outcome { ranks, busy, engines, messages, .. } = &outcomes[0];
    let share =
        |busy: &[u64]| busy.iter().sum::<u64>() as f64 / (busy.len().max(1) as u64 * outcomes[0].total().max(1)) as f64;
    let all = || {
        let ns = |ps: &[u64]| ps.iter().map(|ps| *ps as f64 / 1e3).collect::<Vec<f64>>();
        let mut all = json!({
            "file": name, "placement": site.to_string(), "total_ns": totals[0], "total_low_ns": ends.0, "total_high_ns": ends.1,
            "ranks_ns": ns(ranks), "busy_ns": ns(busy), "engines_busy_ns": ns(engines), "messages": messages,
            "bytes": outcomes[0].received,
        });
        counters(&outcomes[0]).into_iter().for_each(|(name, count)| all[name] = count.into());
        all
    };
    let mut text = format!(
        "{name}: {} on {}, {}, over plimsoll's engine at {site}\n\
         Ends after {} ({} .. {} at the ends of the costs' intervals).\n\
         {}\n\
         Ranks' cores are busy {:.0} % of it.",
        count::of(ranks.len() as u64, "rank"),
        count::of(ranks.len().div_ceil(per_host as usize) as u64, "host"),
        count::of(*messages, "message"),
        nanoseconds(totals[0]),
        nanoseconds(ends.0),
        nanoseconds(ends.1),
        counted(&outcomes[0]),
        100.0 * share(busy)
    );
    if !engines.is_empty() {
        text += &format!(
            " The engines' cores are busy {:.0} %, the busiest {:.0} %.",
            100.0 * share(engines),
            100.0 * outcomes[0].load()
        );
    }
    if let Some(note) = known.note {
        text += &format!("\n{note}");
    }
    json.print(|| text + "\n", all)?;
    Ok(ExitCode::SUCCESS)
}
