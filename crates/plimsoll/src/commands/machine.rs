use std::path::PathBuf;
use std::process::ExitCode;

use machine::source::write_archive;
use machine::{Machine, Result, Source, count};

use super::capability;
use super::outputs::{self, Json};
use crate::machine_page;
use linux::output;

/// Describes this host: sites, ports, controls and sensors; what ranks can have of each core
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    json: Json,
    /// Archive every file that was read; DIR must be new or empty, and `--root DIR` reads the archive.
    #[arg(long, value_name = "DIR")]
    capture: Option<PathBuf>,
    /// Describe the machine archived in DIR, or the copy of /sys and /proc under it, instead of this host.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum What {
    Capability(capability::Arguments),
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    if let Some(What::Capability(arguments)) = &arguments.what {
        return capability::run(arguments);
    }
    let source = match &arguments.root {
        Some(directory) => Source::open(directory)?,
        None => Source::live(),
    };
    let machine = Machine::read(&source)?;
    if let Some(directory) = &arguments.capture {
        let archive = source.captured();
        let file = write_archive(&archive, directory)?;
        eprintln!("captured {} to {}", count::of(archive.len() as u64, "answer"), file.display());
    }
    let page = || match &arguments.capture {
        Some(_) => Ok(()),
        None => output::print(&machine_page::page(&machine, output::width())),
    };
    arguments.json.tell(|| outputs::json(&machine), page)?;
    Ok(ExitCode::SUCCESS)
}
