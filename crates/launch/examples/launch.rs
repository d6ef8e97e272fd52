//! Starts an MPI program over the engine and prints each rank's report: `launch RANKS [--lab] PROGRAM ARGUMENTS...`.
//!
//! The provider (`cargo build -p fabric`) must lie beside this example. On a lab, the launcher starts its daemons by this
//! example, as by the command `plimsoll`.

use std::env;
use std::ffi::OsString;
use std::process::{Command, ExitCode};

use launch::agent;
use launch::installation::Choice;
use launch::session::{self, Request, Target};
use machine::{Fault, Result, Site};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let outcome = match arguments.first() {
        Some(first) if first == "host-agent" => host_agent(&arguments[1..]),
        _ => run(arguments),
    };
    outcome.unwrap_or_else(|fault| {
        eprintln!("launch: {fault}");
        ExitCode::FAILURE
    })
}

fn run(mut arguments: Vec<OsString>) -> Result<ExitCode> {
    let usage =
        || Fault::new("arguments", "no ranks or no program", "write: launch RANKS [--lab] PROGRAM ARGUMENTS...");
    let text = |argument: &OsString| argument.to_str().map(str::to_owned);
    let ranks = arguments.first().and_then(text).and_then(|n| n.parse().ok()).ok_or_else(usage)?;
    let lab = arguments.get(1).is_some_and(|flag| flag == "--lab");
    let mut rest = arguments.drain(if lab { 2 } else { 1 }..);
    let request = Request {
        ranks,
        placement: Site::App,
        carrier: None,
        prove: false,
        seats: None,
        network: None,
        semantics: launch::engine::Semantics::Matched,
        dilation: machine::Dilation::NONE,
        account: false,
        mpi: Choice::OfProgram,
        lab,
        oversubscribe: false,
        quiet: false,
        report: None,
        options: env::var("MPIRUN_ARGS")
            .map_or(Vec::new(), |text| text.split_whitespace().map(str::to_owned).collect()),
        variables: Vec::new(),
        program: rest.next().ok_or_else(usage)?,
        arguments: rest.collect(),
        command: env::current_exe().map_err(|e| Fault::because("this program", e, "run it from a file"))?,
    };
    let target = Target::of(&request)?;
    Ok(ExitCode::from(session::run(&request, target)?.code))
}

fn host_agent(arguments: &[OsString]) -> Result<ExitCode> {
    let mut entrances = Vec::new();
    let mut rest = arguments;
    while let [flag, value, after @ ..] = rest
        && flag == "--entrance"
    {
        entrances.push(value.to_string_lossy().parse()?);
        rest = after;
    }
    let mut command: Command = agent::command(&entrances, rest)?;
    let status = command.status().map_err(|e| Fault::because("sh", e, "install a POSIX shell"))?;
    Ok(ExitCode::from(status.code().unwrap_or(1) as u8))
}
