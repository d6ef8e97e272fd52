use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use launch::agent::{self, Entrance};
use machine::{Fault, Result};

/// Starts a command on another host, of a lab or of the batch system's job: plimsoll gives it to launchers in place of ssh.
#[derive(clap::Args)]
pub struct Arguments {
    /// A host of a lab: ADDRESS=DOOR; with none, hosts are nodes of the job around this process
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
