//! The commands that deal with offcodes: arguments and rendering, one file a subcommand.
#![forbid(unsafe_code)]

mod commands;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Places offcodes, runs them, and shows what proves where each works.
#[derive(Parser)]
#[command(name = "plimsoll", bin_name = "plimsoll", version = env!("PLIMSOLL_VERSION"), disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Deployment(commands::deployment::Command),
    Odf(commands::odf::Arguments),
    Offcode(commands::offcode::Arguments),
    Agent(commands::agent::Arguments),
    Traffic(commands::traffic::Arguments),
    #[command(hide = true)]
    Costs(commands::costs::Arguments),
}

/// The commands of this program, with their arguments.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the command that the arguments of this process name.
pub fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Deployment(command) => commands::deployment::run(command),
        Command::Odf(arguments) => commands::odf::run(arguments),
        Command::Offcode(arguments) => commands::offcode::run(arguments),
        Command::Agent(arguments) => commands::agent::run(arguments),
        Command::Traffic(arguments) => commands::traffic::run(arguments),
        Command::Costs(arguments) => commands::costs::run(arguments),
    };
    match outcome {
        Ok(code) => code,
        Err(fault) => {
            eprintln!("{}", linux::output::under("plimsoll", &fault.to_string()));
            // A command that a signal cut short ends as by the signal, whatever else failed.
            linux::signal::exit_status().map_or(ExitCode::FAILURE, ExitCode::from)
        }
    }
}
