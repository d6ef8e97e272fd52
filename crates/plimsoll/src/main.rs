//! The `plimsoll` command.
#![forbid(unsafe_code)]

mod bench_page;
mod commands;
mod machine_page;
mod output;
mod progress;
mod semantics_page;
mod sweep_page;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Finds where message processing should run on this machine, shows the evidence, and runs it there.
#[derive(Parser)]
#[command(version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Machine(commands::machine::Arguments),
    Lab(commands::lab::Arguments),
    Bench(commands::bench::Arguments),
    Mpirun(commands::mpirun::Arguments),
    Profile(commands::profile::Arguments),
    Serve(commands::serve::Arguments),
    Engine(commands::engine::Arguments),
    Study(commands::study::Arguments),
    Report(commands::report::Arguments),
    Top(commands::top::Arguments),
    Traffic(commands::traffic::Arguments),
    Odf(commands::odf::Arguments),
    Plan(commands::plan::Arguments),
    Agent(commands::agent::Arguments),
    Run(commands::run::Arguments),
    Ps(commands::ps::Arguments),
    Stop(commands::stop::Arguments),
    #[command(hide = true)]
    Peer(commands::peer::Arguments),
    #[command(hide = true)]
    ProfileSampler(commands::profile_sampler::Arguments),
    #[command(hide = true)]
    LabAgent(commands::lab_agent::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Machine(arguments) => commands::machine::run(arguments),
        Command::Lab(arguments) => commands::lab::run(arguments),
        Command::Bench(arguments) => commands::bench::run(arguments),
        Command::Serve(arguments) => commands::serve::run(arguments),
        Command::Engine(arguments) => commands::engine::run(arguments),
        Command::Odf(arguments) => commands::odf::run(arguments),
        Command::Plan(arguments) => commands::plan::run(arguments),
        Command::Agent(arguments) => commands::agent::run(arguments),
        Command::Study(arguments) => commands::study::run(arguments),
        Command::Traffic(arguments) => commands::traffic::run(arguments),
        Command::Report(arguments) => commands::report::run(arguments),
        Command::Top(arguments) => commands::top::run(arguments),
        Command::Run(arguments) => commands::run::run(arguments),
        Command::Ps(arguments) => commands::ps::run(arguments),
        Command::Stop(arguments) => commands::stop::run(arguments),
        Command::Mpirun(arguments) => commands::mpirun::run(arguments),
        Command::Profile(arguments) => commands::profile::run(arguments),
        Command::ProfileSampler(arguments) => commands::profile_sampler::run(arguments),
        Command::LabAgent(arguments) => commands::lab_agent::run(arguments),
        Command::Peer(arguments) => commands::peer::run(arguments),
    };
    match outcome {
        Ok(code) => code,
        Err(fault) => {
            eprintln!("plimsoll: {fault}");
            ExitCode::FAILURE
        }
    }
}
