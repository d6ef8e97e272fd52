//! Commands of plimsoll, started in a folder without the variables of a batch job.

use std::path::Path;
use std::process::{Command, Output, Stdio};

pub fn command(subcommand: &str, place: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.arg(subcommand).args(arguments).current_dir(place).stdin(Stdio::null());
    for batch in ["SLURM_JOB_ID", "PBS_JOBID"] {
        command.env_remove(batch);
    }
    command
}

/// The exit status, -1 for a signal, and both outputs.
pub fn ended(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}
