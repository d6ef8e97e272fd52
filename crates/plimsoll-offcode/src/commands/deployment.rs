//! From a plan to running offcodes: each is `plimsoll NAME` and `plimsoll offcode NAME`.

use std::process::ExitCode;

use machine::Result;

use super::{migrate, plan, ps, run, set, stop, upgrade};

#[derive(clap::Subcommand)]
pub enum Command {
    Plan(plan::Arguments),
    Run(run::Arguments),
    Ps(ps::Arguments),
    Stop(stop::Arguments),
    Set(set::Arguments),
    Migrate(migrate::Arguments),
    Upgrade(upgrade::Arguments),
}

pub fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Plan(arguments) => plan::run(arguments),
        Command::Run(arguments) => run::run(arguments),
        Command::Ps(arguments) => ps::run(arguments),
        Command::Stop(arguments) => stop::run(arguments),
        Command::Set(arguments) => set::run(arguments),
        Command::Migrate(arguments) => migrate::run(arguments),
        Command::Upgrade(arguments) => upgrade::run(arguments),
    }
}
