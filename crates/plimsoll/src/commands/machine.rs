use std::process::ExitCode;

use machine::Result;

/// Describes this host: sites, ports, controls and sensors.
#[derive(clap::Args)]
pub struct Arguments {}

pub fn run(_arguments: Arguments) -> Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
