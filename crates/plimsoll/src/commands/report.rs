use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use machine::{Fault, Result};
use profile::profile::Profile;
use profile::summary::Summary;
use profile::terminal::{self, Screen, paper};

use crate::output;

/// Shows what `plimsoll profile` recorded of an MPI program, also while it runs.
///
/// Tables of ranks, functions, call sites, sizes, peers and cores; docs/profile-json.md says what the figures mean.
#[derive(clap::Args)]
pub struct Arguments {
    /// Folder of a profile; with --paper there may be several
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,
    /// Print all figures as JSON
    #[arg(long, conflicts_with_all = ["csv", "paper"])]
    json: bool,
    /// Write each table to a CSV file in this folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "paper")]
    csv: Option<PathBuf>,
    /// Print Tables I and II of paper 000 (section IV.B.2) of these programs, and the figures in its text
    #[arg(long)]
    paper: bool,
    /// Show so many call sites, and at most so many functions and ranks
    #[arg(long, value_name = "N", default_value_t = 12)]
    sites: usize,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let mut summaries = Vec::new();
    for folder in &arguments.folders {
        let profile = Profile::open(folder)?;
        if profile.ranks.is_empty() {
            let why = match &profile.notes[..] {
                [] => "no rank left tables".into(),
                [first, rest @ ..] => format!("there are no tables to show: {first} ({} more notes)", rest.len()),
            };
            let next = "see that the program calls MPI, is linked dynamically, and ran under plimsoll profile";
            return Err(Fault::new(folder.display().to_string(), why, next));
        }
        summaries.push(Summary::of(&profile));
    }
    if arguments.paper {
        output::print(&paper::render(&summaries))?;
        return Ok(ExitCode::SUCCESS);
    }
    let [summary] = &summaries[..] else {
        return Err(Fault::new("several profiles", "only --paper shows them beside each other", "name one folder"));
    };
    if let Some(folder) = &arguments.csv {
        for file in profile::csv_tables::write(summary, folder)? {
            output::print(&format!("{}\n", file.display()))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.json {
        let json = serde_json::to_string_pretty(summary);
        output::print(&(json.map_err(|e| Fault::because("the summary", e, "report this as a defect"))? + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let screen = Screen { width: columns.unwrap_or(120_usize).clamp(60, 200), colour, sites: arguments.sites };
    output::print(&terminal::render(summary, screen))?;
    Ok(ExitCode::SUCCESS)
}
