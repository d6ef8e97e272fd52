use std::process::ExitCode;

use launch::seats;
use machine::Result;

/// Says which rank this process is, on which host, and on which cores it may run. Launch lines are verified by it.
#[derive(clap::Args)]
pub struct Arguments {}

pub fn run(_arguments: Arguments) -> Result<ExitCode> {
    linux::output::print(&seats::of_this_process()?)?;
    Ok(ExitCode::SUCCESS)
}
