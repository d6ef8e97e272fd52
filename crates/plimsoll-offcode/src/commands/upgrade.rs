//! `plimsoll upgrade`: another version of a running offcode in its place.

use std::path::PathBuf;
use std::process::ExitCode;

use attach::control;
use machine::Result;

use super::migrate::page;
use super::stop::runtime_of;
use linux::output;

/// Puts the version of an offcode that a depot has in the place of the one that runs, with its state and its channels
///
/// Refused where its interfaces or its peers are not those that others rely on, or where it does not restore the state.
#[derive(clap::Args)]
pub struct Arguments {
    /// An instance's name, or a package's name or GUID of which there is one
    #[arg(value_name = "INSTANCE")]
    offcode: String,
    /// Folder of packages that holds the other version
    #[arg(long, value_name = "DIR")]
    depot: PathBuf,
    /// Process of the runtime; needed only where several runtimes run
    #[arg(long, value_name = "PID")]
    process: Option<u32>,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    // The runtime has a working directory of its own.
    let depot = std::path::absolute(&arguments.depot).unwrap_or(arguments.depot);
    let moved = control::upgrade_at(runtime_of(arguments.process)?, &arguments.offcode, &depot)?;
    output::print(&page(&moved))?;
    Ok(ExitCode::SUCCESS)
}
