use std::path::PathBuf;
use std::process::ExitCode;

use doctor::Programs;
use linux::output;
use machine::{Fault, Result, Source};

/// Says what of this machine can be used, and what each missing thing costs.
///
/// Tries what leaves no trace: a lab of two hosts, the BPF programs, a copy between processes. Reads the rest. The exit
/// status is 0 whatever is missing.
#[derive(clap::Args)]
pub struct Arguments {
    /// Print JSON instead of a page
    #[arg(long)]
    json: bool,
    /// Judge the machine that `plimsoll machine --capture DIR` archived in DIR; an archive holds no programs
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let checkup = match &arguments.root {
        Some(directory) => doctor::examine(&Source::open(directory)?, None)?,
        None => doctor::examine(&Source::live(), Some(&Programs::of_this_process()?))?,
    };
    let text = match arguments.json {
        true => {
            let json = serde_json::to_string_pretty(&checkup);
            json.map_err(|error| Fault::because("checkup", error, "report this as a defect"))? + "\n"
        }
        false => checkup.page(output::width()),
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
