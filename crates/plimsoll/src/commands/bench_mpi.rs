use std::path::PathBuf;
use std::process::ExitCode;

use bench::mpi::pattern::Task;
use bench::mpi::request::{self, Paths, Request};
use launch::installation::Choice;
use machine::{CoreId, Fault, Result};
use serde_json::json;

#[derive(clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Two ranks of an MPI program")]
pub struct Arguments {
    /// Measure MPI over plimsoll beside its other transports, per place of the ranks and placement of the engine, with each
    /// rank's CPU split into application, MPI and protocol
    #[arg(long, conflicts_with_all = ["stacks", "placement", "pattern", "sizes", "perturbation", "path", "receiver"])]
    pub mpi: bool,
    /// Only what the fabric is held to: ratios to the best peer, and whether they are met
    #[arg(long, requires = "mpi", conflicts_with = "tasks")]
    targets: bool,
    /// latency, bandwidth, rate (window of 64) and exchange (compute and swap), each with :SIZE or its usual ones
    #[arg(long, requires = "mpi", value_delimiter = ',', value_parser = tasks)]
    tasks: Vec<Tasks>,
    /// one, lab (two hosts, needs root) or both
    #[arg(long, requires = "mpi", default_value = "both", value_parser = paths)]
    hosts: Paths,
    /// The MPI: openmpi, mpich or the PREFIX of one
    #[arg(long, requires = "mpi", default_value = "openmpi", value_parser = library)]
    library: Choice,
}

#[derive(Clone)]
struct Tasks(Vec<Task>);

fn tasks(text: &str) -> Result<Tasks> {
    request::tasks(text).map(Tasks)
}

fn paths(text: &str) -> Result<Paths> {
    text.parse()
}

fn library(text: &str) -> Result<Choice> {
    text.parse()
}

pub fn run(
    arguments: Arguments,
    command: PathBuf,
    cores: Option<(CoreId, CoreId)>,
    protocol_core: Option<CoreId>,
    rounds: u32,
    json: bool,
) -> Result<ExitCode> {
    linux::signal::watch()?;
    let request = Request {
        mpi: arguments.library,
        paths: arguments.hosts,
        tasks: arguments.tasks.into_iter().flat_map(|tasks| tasks.0).collect(),
        targets: arguments.targets,
        cores,
        protocol_core,
        rounds,
        command,
    };
    let (findings, end) = request::run(&request, |starts| eprintln!("plimsoll: {starts} starts of mpirun"))?;
    if !findings.is_empty() {
        if json {
            let all = json!({ "findings": findings, "targets": findings.judged() });
            let text = serde_json::to_string_pretty(&all).map_err(|e| Fault::because("output", e, "report it"))?;
            crate::output::print(&format!("{text}\n"))?;
        } else {
            crate::output::print(&findings.page())?;
        }
    }
    match end {
        Err(fault) if linux::signal::interrupted() => {
            eprintln!("plimsoll: {fault}");
            Ok(ExitCode::from(super::INTERRUPTED))
        }
        other => other.map(|()| ExitCode::SUCCESS),
    }
}
