use std::process::ExitCode;

use launch::seats;
use machine::Result;

/// Says which rank this process is, on which host, and on which cores it may run. Launch lines are verified by it.
#[derive(clap::Args)]
pub struct Arguments {
    /// The launcher is srun, which has names of its own for hosts
    #[arg(long)]
    slurm: bool,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    linux::output::print(&seats::of_this_process(arguments.slurm)?)?;
    Ok(ExitCode::SUCCESS)
}
