//! `plimsoll bench --mapping`: paper 002 on this machine.

use std::path::PathBuf;
use std::process::ExitCode;

use bench::mapping::{self, Request};
use launch::installation::{Family, Installation};
use linux::output;
use machine::{CoreId, Fault, Result};

#[derive(clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Which core, for two ranks")]
pub struct Arguments {
    /// Measure two ranks on two hosts of a lab under three mappings, in turns: both on the cores of their hosts' receive
    /// work, both off them, one on and one off. Stream, ping-pong, and an exchange between computing (paper 002)
    #[arg(
        long,
        conflicts_with_all = ["stacks", "placement", "pattern", "sizes", "perturbation", "path", "receiver", "protocol_core", "mpi", "semantics", "profiler"]
    )]
    pub mapping: bool,
    /// What rank 0 of the exchange computes more than rank 1, of that: a list
    #[arg(long, requires = "mapping", value_delimiter = ',', default_value = "0,0.3", value_parser = share)]
    imbalance: Vec<f64>,
}

fn share(text: &str) -> Result<f64> {
    let number = text.trim().parse::<f64>().ok().filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| {
        Fault::new(format!("imbalance '{text}'"), "it is no number from 0 to 100", "write 0.3 for 30 % more")
    })
}

pub fn run(
    arguments: Arguments,
    command: PathBuf,
    cores: (CoreId, CoreId),
    rounds: u32,
    json: bool,
) -> Result<ExitCode> {
    linux::signal::watch()?;
    let installation = Installation::in_path(Family::OpenMpi)?;
    let request = Request { installation, rounds, cores, imbalances: arguments.imbalance, command };
    let findings = mapping::measure(&request, |start| eprintln!("plimsoll: {start}"))?;
    let page = if json {
        let text = serde_json::to_string_pretty(&findings).map_err(|e| Fault::because("output", e, "report it"))?;
        format!("{text}\n")
    } else {
        mapping::page(&findings, output::width())
    };
    match json {
        true => output::print(&page)?,
        false => output::page(&page)?,
    }
    if linux::signal::interrupted() {
        eprintln!("plimsoll: a signal ended it before all rounds were measured");
    }
    Ok(super::exit_code())
}
