use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use launch::agent::{self, Entrance};
use machine::{Fault, Result};

/// Starts a command on a host of the lab: `plimsoll mpirun --lab` gives it to launchers in place of ssh.
#[derive(clap::Args)]
pub struct Arguments {
    /// A host: ADDRESS=DOOR
    #[arg(long = "entrance")]
    entrances: Vec<Entrance>,
    /// Arguments as ssh takes them: [OPTIONS] HOST COMMAND...
    #[arg(last = true)]
    arguments: Vec<OsString>,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let error = agent::command(&arguments.entrances, &arguments.arguments)?.exec();
    Err(Fault::because("sh", error, "install a POSIX shell"))
}
