use std::process::ExitCode;

use machine::Result;

/// Runs the other end of a bench, which starts it.
#[derive(clap::Args)]
pub struct Arguments {}

pub fn run(_arguments: Arguments) -> Result<ExitCode> {
    bench::peer_process::serve_parent().map(|well| if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
