//! `plimsoll whatif`: what a program would take, a subcommand for each way to know it.

use std::process::ExitCode;

use machine::Result;

use super::{against, bank, delay, replay, schedule, simulate};

/// Predicts what a program would take under another placement, carrier, wire, mapping or clock, with an interval
#[derive(clap::Args)]
#[command(override_usage = USAGE, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(clap::Subcommand)]
enum Mode {
    Replay(replay::Arguments),
    Against(against::Arguments),
    Delay(delay::Arguments),
    Schedule(schedule::Arguments),
    Simulate(simulate::Arguments),
    #[command(hide = true)]
    Bank(bank::Arguments),
}

const USAGE: &str = "plimsoll whatif [OPTIONS] DIR\n       plimsoll whatif <COMMAND>";

const EXAMPLES: &str = "Examples:
  plimsoll profile --trace -o run -- mpirun -n 4 ./program
  plimsoll whatif run
  plimsoll whatif run --latency +1us --clock 0.8
  plimsoll whatif against run-over-tcp run --carried tcp
  plimsoll whatif delay send,receive -- mpirun -n 2 ./program
  plimsoll whatif schedule run.goal --loggops L=1000,o=200
  plimsoll whatif simulate lammps-a";

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.mode {
        Mode::Replay(arguments) => replay::run(&arguments),
        Mode::Against(arguments) => against::run(&arguments),
        Mode::Delay(arguments) => delay::run(arguments),
        Mode::Schedule(arguments) => schedule::run(&arguments),
        Mode::Simulate(arguments) => simulate::run(&arguments),
        Mode::Bank(arguments) => bank::run(&arguments),
    }
}
