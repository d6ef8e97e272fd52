use std::path::PathBuf;
use std::process::ExitCode;

use machine::quota::Watch;
use machine::source::write_archive;
use machine::{Fault, Machine, Result, Source, count};

use super::capability;
use crate::{capability_page, machine_page};
use linux::output;

/// Describes this host: sites, ports, controls and sensors; what ranks can have of each core
#[derive(clap::Args)]
pub struct Arguments {
    /// Print JSON instead of a page.
    #[arg(long)]
    json: bool,
    /// Archive every file that was read; DIR must be new or empty, and `--root DIR` reads the archive.
    #[arg(long, value_name = "DIR")]
    capture: Option<PathBuf>,
    /// Describe the machine archived in DIR, or the copy of /sys and /proc under it, instead of this host.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Say what share of each core ranks can have; inside a batch system's job, of all its nodes.
    #[arg(long, conflicts_with = "capture")]
    capability: bool,
    #[command(flatten)]
    looks: capability::Looks,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    if arguments.capability {
        return tell_capability(&arguments);
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

fn tell_capability(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(root) = &arguments.root {
        let cause = "what takes time of a core is seen while it does, and an archive is of one moment";
        return Err(Fault::new(format!("--root {}", root.display()), cause, "leave --root out, or --capability"));
    }
    let watch = Watch::begin(&Source::live(), linux::affinity::allowed()?.len());
    let map = arguments.looks.map()?;
    output::print(&match arguments.json {
        true => json(&map)?,
        false => capability_page::page(&map, arguments.looks.seconds, output::width()),
    })?;
    if let Some(note) = watch.note(&Source::live()) {
        eprintln!("plimsoll: {note}");
    }
    Ok(super::exit_code())
}

fn json(of: &impl serde::Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(of);
    Ok(text.map_err(|error| Fault::because("machine description", error, "report this as a defect"))? + "\n")
}
