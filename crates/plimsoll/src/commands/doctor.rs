use std::path::PathBuf;
use std::process::ExitCode;

use doctor::Programs;
use linux::output;
use machine::{Result, Source};

use super::outputs::{self, Json};

/// Says what of this machine can be used, and what each missing thing costs.
///
/// Tries what leaves no trace: a lab of two hosts, the BPF programs, a copy between processes. Reads the rest. The exit
/// status is 0 whatever is missing.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    json: Json,
    /// Judge the machine that `plimsoll machine --capture DIR` archived in DIR; an archive holds no programs
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let checkup = match &arguments.root {
        Some(directory) => doctor::examine(&Source::open(directory)?, None)?,
        None => doctor::examine(&Source::live(), Some(&Programs::of_this_process()?))?,
    };
    arguments.json.tell(|| outputs::json(&checkup), || output::print(&checkup.page(output::width())))?;
    Ok(ExitCode::SUCCESS)
}
