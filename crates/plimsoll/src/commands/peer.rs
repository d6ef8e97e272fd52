use std::process::ExitCode;

use machine::Result;

/// The other end of a bench, started by it.
#[derive(clap::Args)]
pub struct Arguments {}

pub fn run(_arguments: Arguments) -> Result<ExitCode> {
    // Faults reach the reader through the control connection.
    Ok(match bench::peer_process::serve_parent() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}
