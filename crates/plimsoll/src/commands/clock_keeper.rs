use std::path::PathBuf;
use std::process::ExitCode;

use machine::Result;

/// Waits for the end of a `plimsoll clock` that started it, and restores what that left.
#[derive(clap::Args)]
pub struct Arguments {
    /// The journal of what was changed, which is open as standard output
    journal: PathBuf,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    linux::clock_setting::keep(&arguments.journal)?;
    Ok(ExitCode::SUCCESS)
}
