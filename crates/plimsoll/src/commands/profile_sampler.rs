use std::path::PathBuf;
use std::process::{Command, ExitCode};

use launch::profiled;
use machine::Result;

/// Samples the cores of this host for a profile, until its ranks have ended. The first rank of a host starts it.
#[derive(clap::Args)]
pub struct Arguments {
    /// Set once the process has detached from the rank that started it
    #[arg(long)]
    alone: bool,
    /// The folder of the profile
    folder: PathBuf,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    if !arguments.alone
        && let Ok(plimsoll) = std::env::current_exe()
    {
        profiled::leave(Command::new(plimsoll).args(["profile-sampler", "--alone"]).arg(&arguments.folder));
    }
    profiled::sample(&arguments.folder)?;
    Ok(ExitCode::SUCCESS)
}
