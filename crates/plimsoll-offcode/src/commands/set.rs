//! `plimsoll set`: an attribute of a running offcode.

use std::process::ExitCode;

use attach::control;
use machine::{Fault, Result};

use super::stop::runtime_of;
use linux::output;

/// Sets an attribute of a running offcode, and prints what it was before.
#[derive(clap::Args)]
pub struct Arguments {
    /// An instance's name, or a package's name or GUID of which there is one
    #[arg(value_name = "INSTANCE")]
    offcode: String,
    /// Attribute and its new value
    #[arg(value_name = "NAME=VALUE")]
    attribute: String,
    /// Process of the runtime; needed only where several runtimes run
    #[arg(long, value_name = "PID")]
    process: Option<u32>,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let Arguments { offcode, attribute, process } = arguments;
    let Some((name, value)) = attribute.split_once('=') else {
        let cause = "it is not of the form NAME=VALUE";
        return Err(Fault::new(format!("attribute '{attribute}'"), cause, "write it like OBSOLETE_TIME=60000"));
    };
    let before = control::set_at(runtime_of(process)?, &offcode, name, value)?;
    let before = before.map_or_else(|| "it was not set before".to_owned(), |before| format!("it was {before}"));
    output::print(&format!("{offcode}: {name} is {value}; {before}\n"))?;
    Ok(ExitCode::SUCCESS)
}
