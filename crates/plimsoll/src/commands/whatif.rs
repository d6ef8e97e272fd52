//! `plimsoll whatif`: what a program would take, a subcommand for each way to know it.

use std::process::ExitCode;

use experiment::ledger::{Kind, Prediction, Subject};
use linux::output;
use machine::Result;
use machine::costs::Interval;
use serde_json::Value;

use super::outputs::{self, Json};
use super::{against, delay, replay, schedule, simulate};

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
    }
}

/// To standard output, as text or as JSON.
pub fn print(to: &Json, terminal: impl FnOnce() -> String, json: impl FnOnce() -> Value) -> Result<()> {
    to.tell(|| outputs::json(&json()), || output::page(&terminal()))
}

/// What is noted where the costs that were measured contradict a recording.
pub const CONTRADICTED: &str = "calls were over sooner than the costs say: plimsoll calibrate, and profile again";

/// Beyond this, start and end of a job over what is replayed tell more of its time than the replay does.
pub const MOST_OUTSIDE: f64 = 4.0;

/// The time of a whole job over today's, where what is replayed takes `time` of today's. `outside`: the time of its start and end
/// over that, which may become so much of itself, at least and at most.
pub fn of_job(time: &Interval, outside: f64, becomes: (f64, f64)) -> Interval {
    let of_job = |time: f64, factor: f64| (time + outside * factor) / (1.0 + outside);
    Interval { low: of_job(time.low, becomes.0), middle: of_job(time.middle, 1.0), high: of_job(time.high, becomes.1) }
}

/// What the ledger keeps of a command that is expected to take `expected` of the time of `now`.
pub fn expectation(folder: &str, command: &str, now: &str, expected: Interval) -> Prediction {
    Prediction {
        id: 0,
        made: machine::here::now(),
        kind: Kind::WhatIf,
        subject: subject(now),
        quantity: over(command, now),
        expected,
        because: format!("a replay of {folder} under the costs of the machine"),
        choice: None,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// The run that commands are held against, as the ledger names it.
pub fn subject(now: &str) -> Subject {
    Subject { words: now.to_owned(), digest: String::new() }
}

/// How the ledger names the time of a command over that of another; `plimsoll try` looks for it.
pub fn over(command: &str, now: &str) -> String {
    format!("time of `{command}` over `{now}`")
}
