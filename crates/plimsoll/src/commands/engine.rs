use std::process::ExitCode;

use machine::{CoreId, Result};

/// The engine of placement core:N for all ranks of this user on this host; ends with the last of them.
///
/// `plimsoll mpirun --placement core:N` starts it, as do ranks that find none.
#[derive(clap::Args)]
pub struct Arguments {
    /// The core that it works on.
    #[arg(long, value_name = "N")]
    core: u32,

    /// Return once it runs, and leave it in the background.
    #[arg(long)]
    detach: bool,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let core = CoreId(arguments.core);
    if arguments.detach {
        endpoint::node::detach(core)?
    } else {
        endpoint::node::serve(core)?
    }
    Ok(ExitCode::SUCCESS)
}
