use std::process::ExitCode;

use machine::Result;

/// The other end of a bench, started by it.
#[derive(clap::Args)]
pub struct Arguments {}

pub fn run(_arguments: Arguments) -> Result<ExitCode> {
    bench::peer_process::serve_parent().map(|well| if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
