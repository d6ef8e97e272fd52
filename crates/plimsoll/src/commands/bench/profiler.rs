//! `plimsoll bench profiler`: the overhead of profiling.

use std::process::ExitCode;

use bench::profiler::{self, Request};
use launch::installation::{Choice, Installation};
use machine::{Fault, Result};

use super::measuring::{Measuring, TwoCores, ended};

/// Measures what profiling adds to an MPI call and to a message of NetPIPE: without it, with tables, and with the timeline, in
/// turns
#[derive(clap::Args)]
pub struct Arguments {
    /// The MPIs: openmpi, mpich, or the PREFIX that one is installed in [default: those found in PATH]
    #[arg(long, value_name = "MPI,..", value_delimiter = ',')]
    libraries: Vec<Choice>,
    #[command(flatten)]
    cores: TwoCores,
    #[command(flatten)]
    measuring: Measuring,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let Arguments { libraries, cores, measuring } = arguments;
    let cores = cores.chosen()?;
    linux::signal::watch()?;
    let installations = if libraries.is_empty() {
        Installation::all_in_path()
    } else {
        libraries.iter().map(Installation::chosen).collect::<Result<_>>()?
    };
    if installations.is_empty() {
        return Err(Fault::new(
            "MPI",
            "none is in PATH",
            "install libopenmpi-dev or libmpich-dev, or name a prefix by --libraries",
        ));
    }
    let request = Request { installations, rounds: measuring.rounds, cores, command: machine::here::program()? };
    let findings = profiler::measure(&request, |start| eprintln!("plimsoll: {start}"))?;
    measuring.print(&findings, || Ok(profiler::page(&findings, linux::output::width())))?;
    Ok(ended(!linux::signal::interrupted()))
}
