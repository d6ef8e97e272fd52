//! `plimsoll whatif simulate`: a program made by rule, or a schedule, on machines that a file describes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use chart::number::{digits, nanoseconds};
use machine::costs::how;
use machine::{Result, count};
use serde_json::{Value, json};
use simulate::cluster::power::Joules;
use simulate::cluster::profile::Place;
use simulate::cluster::{Busy, Cluster, Finished, Split};
use simulate::file::{Outcome, Simulation};

use super::outputs::Json;
use super::schedule::{counted, counters};
use super::shipped::Shipped;

/// Simulates what a file says: machines, link, protocol, mapping and program (docs/whatif.md); or a testbed of the papers
#[derive(clap::Args)]
pub struct Arguments {
    /// The file, or the name of an installed testbed
    #[arg(value_name = "FILE|NAME")]
    file: PathBuf,
    #[command(flatten)]
    json: Json,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let file = &testbed(&arguments.file)?;
    let simulation = Simulation::read(file)?;
    let program = simulation.program.clone();
    let (cluster, outcome) = simulation.run().map_err(|fault| fault.within(file.display()))?;
    arguments.json.print(|| page(&program, &cluster, &outcome), || all(&program, &cluster, &outcome))?;
    Ok(ExitCode::SUCCESS)
}

fn place(cluster: &Cluster) -> &'static str {
    if cluster.profile.place == Place::Engine { "a core of their host" } else { "their ranks" }
}

/// The testbed of a name, for a word that names no file.
pub fn testbed(file: &Path) -> Result<PathBuf> {
    TESTBEDS.file(file)
}

/// The papers' testbeds.
const TESTBEDS: Shipped = Shipped {
    folders: ["share/plimsoll/testbeds", "crates/simulate/testbeds"],
    noun: "testbed",
    page: "docs/whatif.md",
};

fn time(picoseconds: u64) -> String {
    nanoseconds(picoseconds as f64 / 1000.0)
}

fn share(part: u64, of: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / of.max(1) as f64)
}

fn seconds(finished: &Finished) -> f64 {
    finished.total() as f64 * 1e-12
}

/// The most ranks, cores and hosts with a line each: the first ones.
const MOST: usize = 16;

fn more(of: usize, noun: &str) -> String {
    if of > MOST { format!("  and {}; --json has all\n", count::of((of - MOST) as u64, noun)) } else { String::new() }
}

fn page(program: &str, cluster: &Cluster, outcome: &Outcome) -> String {
    let Outcome { finished, joules, engines } = outcome;
    let (total, seconds) = (finished.total(), seconds(finished));
    let mut text = format!(
        "{program}: {} on {}, {}; modelled\nEnds after {}; {}, {:.0} a second, {:.1} MB/s\n",
        count::of(finished.ranks.len() as u64, "rank"),
        count::of(cluster.hosts.len() as u64, "host"),
        cluster.profile.name,
        time(total),
        count::of(finished.messages, "message"),
        finished.messages as f64 / seconds,
        finished.sent as f64 / seconds / 1e6,
    );
    if let Some(engines) = engines {
        text += &format!("plimsoll's engines at {}: {}\n", place(cluster), counted(engines));
    }
    text += "\nRank   core            computing   sending   waiting   ends\n";
    for (rank, (split, seat)) in finished.splits.iter().zip(&cluster.seats).enumerate().take(MOST) {
        let host = &cluster.hosts[seat.host];
        let place = format!("{} {}", host.name, host.cores[seat.core].id);
        let Split { computing, sending, waiting } = *split;
        let end = finished.ranks[rank];
        text += &format!(
            "{rank:<6} {place:<15} {:>9} {:>9} {:>9}   {}\n",
            share(computing, end),
            share(sending, end),
            share(waiting, end),
            time(end)
        );
    }
    text += &more(finished.ranks.len(), "rank");
    text += "\nHost            core   computing  messages  protocol      idle\n";
    for (at, host) in cluster.hosts.iter().enumerate().take(MOST) {
        for (core, busy) in host.cores.iter().zip(&finished.cores[at]) {
            let Busy { computing, messages, protocol } = *busy;
            let idle = total.saturating_sub(busy.total());
            let [computing, messages, protocol, idle] =
                [computing, messages, protocol, idle].map(|of| share(of, total));
            text +=
                &format!("{:<15} {:<6} {computing:>9} {messages:>9} {protocol:>9} {idle:>9}\n", host.name, core.id.0);
        }
        if finished.devices[at] > 0 {
            text += &format!("{:<15} device {:>29}\n", host.name, share(finished.devices[at], total));
        }
    }
    text += &more(cluster.hosts.len(), "host");
    match joules {
        None => text += "\nNo joules: the file names no watts of its machines.\n",
        Some(joules) => {
            let sum = |of: fn(&Joules) -> f64| joules.iter().map(of).sum::<f64>();
            let all = sum(Joules::total);
            text += &format!(
                "\nEnergy, modelled: {all:.4} J, {:.1} W; static {:.4} J, computing {:.4} J, messages {:.4} J, protocol {:.4} J, spinning {:.4} J\n",
                all / seconds,
                sum(|of| of.fixed),
                sum(|of| of.computing),
                sum(|of| of.messages),
                sum(|of| of.protocol),
                sum(|of| of.spinning),
            );
        }
    }
    text += "\nConstants of the protocol\n";
    for constant in &cluster.profile.constants {
        let value = digits(constant.value.value().copied().unwrap_or(0.0));
        let (how, source) = (how(&constant.value), &constant.source);
        text += &format!("{:<18} {value:>10} {:<9} {how}: {source}\n", constant.name, constant.unit);
    }
    text
}

fn all(program: &str, cluster: &Cluster, outcome: &Outcome) -> Value {
    let Outcome { finished, joules, engines } = outcome;
    let seconds = seconds(finished);
    let rank = |(rank, split): (usize, &Split)| {
        let seat = cluster.seats[rank];
        let host = &cluster.hosts[seat.host];
        json!({ "rank": rank, "host": host.name, "core": host.cores[seat.core].id.0, "end_ps": finished.ranks[rank],
            "computing_ps": split.computing, "sending_ps": split.sending, "waiting_ps": split.waiting })
    };
    let host = |(at, host): (usize, &simulate::cluster::Host)| {
        let core = |(core, busy): (&simulate::cluster::Core, &Busy)| {
            json!({ "core": core.id.0, "clock_of_full": 1.0 / core.dilation, "computing_ps": busy.computing,
                "messages_ps": busy.messages, "protocol_ps": busy.protocol,
                "idle_ps": finished.total().saturating_sub(busy.total()) })
        };
        let energy = joules.as_ref().map(|joules| {
            let Joules { fixed, computing, messages, protocol, spinning } = joules[at];
            json!({ "modelled": { "total_j": joules[at].total(), "watts": joules[at].total() / seconds, "static_j": fixed,
                "computing_j": computing, "messages_j": messages, "protocol_j": protocol, "spinning_j": spinning } })
        });
        let cores: Vec<Value> = host.cores.iter().zip(&finished.cores[at]).map(core).collect();
        json!({ "host": host.name, "cores": cores, "device_ps": finished.devices[at], "energy": energy })
    };
    let constant = |of: &simulate::cluster::profile::Constant| json!({ "name": of.name, "value": of.value, "unit": of.unit, "source": of.source });
    json!({
        "program": program,
        "profile": cluster.profile.name,
        "total_ps": finished.total(),
        "messages": finished.messages,
        "bytes": finished.sent,
        "messages_a_second": finished.messages as f64 / seconds,
        "ranks": finished.splits.iter().enumerate().map(rank).collect::<Vec<_>>(),
        "engines": engines.as_ref().map(|engines| counters(engines).into_iter().collect::<BTreeMap<_, _>>()),
        "hosts": cluster.hosts.iter().enumerate().map(host).collect::<Vec<_>>(),
        "constants": cluster.profile.constants.iter().map(constant).collect::<Vec<_>>(),
    })
}
