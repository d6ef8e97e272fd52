use std::process::ExitCode;

use machine::{Fault, Result};

/// Measures what channels and calls of bodies cost, for plimsoll calibrate, and prints it as JSON.
#[derive(clap::Args)]
pub struct Arguments {}

pub fn run(_: Arguments) -> Result<ExitCode> {
    let text = serde_json::to_string(&runtime::costs::measure()?);
    linux::output::print(&text.map_err(|e| Fault::because("costs", e, "report it"))?)?;
    Ok(ExitCode::SUCCESS)
}
