//! `plimsoll bench --profiler`: what profiling a program costs it.

use std::path::PathBuf;
use std::process::ExitCode;

use bench::profiler::{self, Request};
use launch::installation::{Choice, Installation};
use linux::output;
use machine::{CoreId, Fault, Result};

#[derive(clap::Args)]
#[group(skip)]
#[command(next_help_heading = "What the profiler costs")]
pub struct Arguments {
    /// Measure what profiling adds to an MPI call and to a message of NetPIPE: without it, with tables, and with the
    /// timeline, in turns
    #[arg(
        long,
        conflicts_with_all = ["stacks", "placement", "pattern", "sizes", "perturbation", "path", "receiver", "protocol_core", "mpi", "semantics"]
    )]
    pub profiler: bool,
    /// The MPIs: openmpi, mpich, or the PREFIX that one is installed in [default: those found in PATH]
    #[arg(long, requires = "profiler", value_delimiter = ',', value_parser = library)]
    libraries: Vec<Choice>,
}

fn library(text: &str) -> Result<Choice> {
    text.parse()
}

pub fn run(
    arguments: Arguments,
    command: PathBuf,
    cores: (CoreId, CoreId),
    rounds: u32,
    json: bool,
) -> Result<ExitCode> {
    linux::signal::watch()?;
    let installations = if arguments.libraries.is_empty() {
        Installation::all_in_path()
    } else {
        arguments.libraries.iter().map(Installation::chosen).collect::<Result<_>>()?
    };
    if installations.is_empty() {
        return Err(Fault::new(
            "MPI",
            "none is in PATH",
            "install libopenmpi-dev or libmpich-dev, or name a prefix by --libraries",
        ));
    }
    let request = Request { installations, rounds, cores, command };
    let findings = profiler::measure(&request, |start| eprintln!("plimsoll: {start}"))?;
    let page = if json {
        let text = serde_json::to_string_pretty(&findings).map_err(|e| Fault::because("output", e, "report it"))?;
        format!("{text}\n")
    } else {
        profiler::page(&findings, output::width())
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
