use std::process::ExitCode;

use machine::{CoreId, Result};

/// Runs the engine of placement core:N for all ranks of this user on this host; ends with the last of them.
///
/// Seldom called by hand: `plimsoll mpirun --placement core:N` starts it, and so does a rank that finds none.
#[derive(clap::Args)]
pub struct Arguments {
    /// Core that the engine works on.
    #[arg(long, value_name = "CORE")]
    core: CoreId,

    /// Return once the engine runs, and leave it in the background.
    #[arg(long)]
    detach: bool,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let core = arguments.core;
    if arguments.detach {
        endpoint::node::detach(core)?
    } else {
        endpoint::node::serve(core)?
    }
    Ok(ExitCode::SUCCESS)
}
