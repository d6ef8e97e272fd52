use std::process::ExitCode;

use machine::Result;

/// Finds where message processing should run.
#[derive(clap::Args)]
pub struct Arguments {}

pub fn run(_arguments: Arguments) -> Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
