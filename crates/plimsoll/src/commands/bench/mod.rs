//! `plimsoll bench`: one measurement a subcommand.

mod congestion;
mod cores;
mod daemon;
mod dilate;
mod mapping;
mod measuring;
mod mpi;
mod profiler;
mod semantics;
mod sweep;

use std::process::ExitCode;

use machine::Result;

/// Measures message paths, MPI's messages, semantics, and what the profiler, a mapping or slower protocol work costs, and what
/// the daemon gains
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Sweep(sweep::Arguments),
    Mpi(mpi::Arguments),
    Semantics(semantics::Arguments),
    Congestion(congestion::Arguments),
    Profiler(profiler::Arguments),
    Mapping(mapping::Arguments),
    Daemon(daemon::Arguments),
    Dilate(dilate::Arguments),
    Cores(cores::Arguments),
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.what {
        What::Sweep(arguments) => sweep::run(arguments),
        What::Mpi(arguments) => mpi::run(arguments),
        What::Semantics(arguments) => semantics::run(arguments),
        What::Congestion(arguments) => congestion::run(arguments),
        What::Profiler(arguments) => profiler::run(arguments),
        What::Mapping(arguments) => mapping::run(arguments),
        What::Daemon(arguments) => daemon::run(arguments),
        What::Dilate(arguments) => dilate::run(arguments),
        What::Cores(arguments) => cores::run(arguments),
    }
}
