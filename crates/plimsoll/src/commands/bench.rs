use std::process::ExitCode;

use machine::Result;

/// Measures one stack at one placement.
#[derive(clap::Args)]
pub struct Arguments {}

pub fn run(_arguments: Arguments) -> Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
