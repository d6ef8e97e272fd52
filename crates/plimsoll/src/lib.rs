//! The `plimsoll` command: arguments and rendering, one file a subcommand.
//!
//! Offcodes have a program of their own, with the wasm compiler and TLS: `offcodes` starts it.
#![forbid(unsafe_code)]

mod bench_page;
mod capability_page;
mod claims_page;
mod commands;
mod critical;
mod guide;
mod machine_page;
mod machine_state;
mod map_page;
mod mappings_page;
mod offcodes;
mod opened;
mod power_page;
mod progress;
mod semantics_page;
mod spelling;
mod steering_page;
mod sweep_page;
mod whatif_page;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use machine::Result;

/// Finds where message processing should run on this machine, shows the evidence, and runs it there.
#[derive(Parser)]
#[command(name = "plimsoll", version = env!("PLIMSOLL_VERSION"), disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Study(commands::study::Arguments),
    Campaign(commands::campaign::Arguments),
    Whatif(Box<commands::whatif::Arguments>),
    Map(commands::map::Arguments),
    Try(Box<commands::r#try::Arguments>),
    Calibrate(commands::calibrate::Arguments),
    Machine(commands::machine::Arguments),
    Doctor(commands::doctor::Arguments),
    Lab(commands::lab::Arguments),
    Steer(commands::steer::Arguments),
    Clock(commands::clock::Arguments),
    Bench(commands::bench::Arguments),
    Serve(commands::serve::Arguments),
    Mpirun(commands::mpirun::Arguments),
    Engine(commands::engine::Arguments),
    Power(commands::power::Arguments),
    Profile(commands::profile::Arguments),
    Report(commands::report::Arguments),
    Ledger(commands::ledger::Arguments),
    Fleet(commands::fleet::Arguments),
    Tune(commands::tune::Arguments),
    Claims(commands::claims::Arguments),
    Top(commands::top::Arguments),
    Daemon(commands::daemon::Arguments),
    #[command(hide = true)]
    Peer(commands::peer::Arguments),
    #[command(hide = true)]
    ProfileSampler(commands::profile_sampler::Arguments),
    #[command(hide = true)]
    Seat(commands::seat::Arguments),
    #[command(hide = true)]
    HostAgent(commands::host_agent::Arguments),
    #[command(hide = true)]
    SteeringKeeper(commands::steering_keeper::Arguments),
    #[command(hide = true)]
    ClockKeeper(commands::clock_keeper::Arguments),
}

/// The commands of this program with their arguments, without those for offcodes.
pub fn command() -> clap::Command {
    Cli::command()
}

/// All commands that users see, with those for offcodes.
fn program() -> clap::Command {
    guide::told(offcodes::beside(command()))
}

/// `words` of a command line, the program's name first, in their full form: `help X` is `X --help`.
pub fn whole(words: Vec<OsString>) -> Vec<OsString> {
    spelling::whole(&command(), words)
}

/// The commands in the same group of `plimsoll --help` as this one.
pub fn related(name: &str) -> Vec<&'static str> {
    guide::related(name)
}

/// Runs the command that the arguments of this process name.
pub fn main() -> ExitCode {
    let mut program = program();
    let words = spelling::whole(&program, std::env::args_os().collect());
    let parsed = program.try_get_matches_from_mut(&words);
    let matches = parsed.unwrap_or_else(|error| spelling::meant(&program, &words, error).exit());
    if let Some(error) = spelling::misplaced(&program, &matches) {
        error.exit();
    }
    if matches.subcommand().is_none() {
        return match linux::output::page(&guide::first()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    match run(&matches, &words) {
        Ok(code) => code,
        Err(fault) => {
            eprintln!("{}", linux::output::under("plimsoll", &fault.to_string()));
            // A command that a signal ended has that signal's exit status, even if it failed.
            linux::signal::exit_status().map_or(ExitCode::FAILURE, ExitCode::from)
        }
    }
}

/// Runs the command of these words, the program's name first.
fn run_words(words: impl Iterator<Item = String>) -> Result<ExitCode> {
    let mut program = program();
    let words = spelling::whole(&program, words.map(OsString::from).collect());
    let matches = program.try_get_matches_from_mut(&words);
    let matches = matches.map_err(|e| machine::Fault::because("the next command", e, "report this as a defect"))?;
    run(&matches, &words)
}

/// Runs a parsed command; `matches` are those of `words`.
fn run(matches: &clap::ArgMatches, words: &[OsString]) -> Result<ExitCode> {
    if let Some((name, _)) = matches.subcommand()
        && offcodes::has(name)
    {
        return Err(offcodes::become_it(words));
    }
    let command = Cli::from_arg_matches(matches).unwrap_or_else(|error| error.exit()).command;
    // These run commands of the user's, and leave nothing of them behind.
    if matches!(
        command,
        Command::Study(_)
            | Command::Campaign(_)
            | Command::Whatif(_)
            | Command::Map(_)
            | Command::Try(_)
            | Command::Tune(_)
            | Command::Mpirun(_)
    ) {
        linux::orphans::adopt();
    }
    match command {
        Command::Study(arguments) => commands::study::run(arguments),
        Command::Campaign(arguments) => commands::campaign::run(arguments),
        Command::Whatif(arguments) => commands::whatif::run(*arguments),
        Command::Map(arguments) => commands::map::run(arguments),
        Command::Try(arguments) => commands::r#try::run(*arguments),
        Command::Tune(arguments) => commands::tune::run(arguments),
        Command::Calibrate(arguments) => commands::calibrate::run(arguments),
        Command::Machine(arguments) => commands::machine::run(arguments),
        Command::Doctor(arguments) => commands::doctor::run(arguments),
        Command::Lab(arguments) => commands::lab::run(arguments),
        Command::Steer(arguments) => commands::steer::run(arguments),
        Command::Clock(arguments) => commands::clock::run(arguments),
        Command::Bench(arguments) => commands::bench::run(arguments),
        Command::Serve(arguments) => commands::serve::run(arguments),
        Command::Mpirun(arguments) => commands::mpirun::run(arguments),
        Command::Engine(arguments) => commands::engine::run(arguments),
        Command::Power(arguments) => commands::power::run(arguments),
        Command::Profile(arguments) => commands::profile::run(arguments),
        Command::Report(arguments) => commands::report::run(arguments),
        Command::Ledger(arguments) => commands::ledger::run(arguments),
        Command::Fleet(arguments) => commands::fleet::run(arguments),
        Command::Claims(arguments) => commands::claims::run(arguments),
        Command::Top(arguments) => commands::top::run(arguments),
        Command::Daemon(arguments) => commands::daemon::run(arguments),
        Command::Peer(arguments) => commands::peer::run(arguments),
        Command::ProfileSampler(arguments) => commands::profile_sampler::run(arguments),
        Command::Seat(arguments) => commands::seat::run(arguments),
        Command::HostAgent(arguments) => commands::host_agent::run(arguments),
        Command::ClockKeeper(arguments) => commands::clock_keeper::run(arguments),
        Command::SteeringKeeper(arguments) => commands::steering_keeper::run(arguments),
    }
}
