use std::path::PathBuf;
use std::process::ExitCode;

use machine::source::write_archive;
use machine::{Fault, Machine, Result, Source, count};

use super::capability;
use crate::machine_page;
use linux::output;

/// Describes this host: sites, ports, controls and sensors; what ranks can have of each core
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
    /// Print JSON instead of a page.
    #[arg(long)]
    json: bool,
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
    let mut text = match arguments.json {
        true => json(&machine)?,
        false => machine_page::page(&machine, output::width()),
    };
    if let Some(directory) = &arguments.capture {
        let archive = source.captured();
        let file = write_archive(&archive, directory)?;
        eprintln!("captured {} to {}", count::of(archive.len() as u64, "answer"), file.display());
        if !arguments.json {
            text.clear();
        }
    }
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// `of`, as its reader's programs take it.
pub fn json(of: &impl serde::Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(of);
    Ok(text.map_err(|error| Fault::because("machine description", error, "report this as a defect"))? + "\n")
}
