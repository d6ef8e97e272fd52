use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use machine::costs::store::{self, Known};
use machine::{Fault, Result, count, shell};
use profile::export::{goal, perfetto};
use profile::page;
use profile::printable::{json, printable};
use profile::profile::Profile;
use profile::summary::Summary;
use profile::terminal::{self, Screen, paper};
use profile::verdict::Evidence;
use record::worlds;
use timeline::Timeline;
use whatif::graph::Graph;

use linux::output;

use super::map::{Asked, Judged, Mapped};
use super::outputs::Json;
use super::top;
use crate::critical;

/// Shows what `plimsoll profile` recorded of an MPI program, also while it runs.
///
/// Prints tables of ranks, functions, call sites, sizes, peers and cores; docs/profile-json.md says what the figures
/// mean. Writes the same and more, with charts, to one HTML file that needs no other: DIR/report.html.
#[derive(clap::Args)]
pub struct Arguments {
    /// Folder of a profile; with --paper there may be several
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,
    #[command(flatten)]
    json: Json,
    /// Write each table to a CSV file in the folder DIR
    #[arg(long, value_name = "DIR", require_equals = true, conflicts_with_all = ["json", "paper"])]
    csv: Option<PathBuf>,
    /// Write the HTML report here, and not to DIR/report.html
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "csv", "paper", "export"])]
    html: Option<PathBuf>,
    /// Print Tables I and II of Dosanjh, Grant, Bridges and Brightwell, 'Re-evaluating Network Onload vs. Offload'
    /// (section IV.B.2), for these programs, and the figures in its text
    #[arg(long, conflicts_with = "json")]
    paper: bool,
    /// Write the timeline for another program: for ui.perfetto.dev, or as the schedule that LogGOPSim simulates
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["json", "csv", "paper"])]
    export: Option<Export>,
    /// The MPI_COMM_WORLD whose schedule is written, where the profile has several: the N-th that began, counted from 0
    #[arg(long, value_name = "N", requires = "export", default_value_t = 0)]
    world: usize,
    /// Write the export to this file instead of standard output
    #[arg(short, long, value_name = "FILE", requires = "export")]
    output: Option<PathBuf>,
    /// Number of call sites to show; also the most functions and ranks
    #[arg(long, value_name = "N", default_value_t = 12)]
    call_sites: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Export {
    /// Chrome's trace events: every call, messages as arrows, softirqs by core
    Perfetto,
    /// LogGOPSim's GOAL, collective operations as messages
    Goal,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    if let Some(format) = arguments.export {
        let [folder] = &arguments.folders[..] else {
            return Err(Fault::new("several profiles", "one is exported at a time", "name one folder"));
        };
        return export(folder, format, arguments.world, arguments.output.as_deref());
    }
    let mut summaries = Vec::new();
    for folder in &arguments.folders {
        let profile = Profile::open(folder)?;
        let profile = profile.seen_from(&top::here());
        if profile.ranks.is_empty() {
            let why = match &profile.notes[..] {
                [] => "no rank left tables".into(),
                [first] => format!("there are no tables to show: {first}"),
                [first, rest @ ..] => {
                    let more = count::either(rest.len() as u64, "note", "notes");
                    format!("there are no tables to show: {first} ({} more {more})", rest.len())
                }
            };
            let next = "see that the program calls MPI, is linked dynamically, and ran under plimsoll profile";
            return Err(Fault::new(folder.display().to_string(), printable(&why), next));
        }
        summaries.push(judged(&profile, folder)?);
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
    arguments.json.tell(|| Ok(json(summary)? + "\n"), || shown(summary, &arguments))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the tables, and writes the page.
fn shown(summary: &Summary, arguments: &Arguments) -> Result<()> {
    let colour = output::colour(&std::io::stdout());
    let screen = Screen { width: output::width(), colour, sites: arguments.call_sites };
    output::print(&terminal::render(summary, screen))?;
    let page = page::render(summary);
    let asked = arguments.html.is_some();
    let file = arguments.html.clone().unwrap_or_else(|| arguments.folders[0].join("report.html"));
    match std::fs::write(&file, page) {
        Ok(()) => output::print(&format!("\nReport: {}\n", shell::path(&file)))?,
        Err(e) => {
            let fault =
                Fault::unwritable(file.display().to_string(), e, "name a file that can be written with --html FILE");
            // A reader of a profile may lack the right to write there; the tables are shown all the same.
            if asked {
                return Err(fault);
            }
            eprintln!("plimsoll: {fault}");
        }
    }
    Ok(())
}

/// The summary, by the costs of the host of rank 0, with the critical path if there is a timeline.
fn judged(profile: &Profile, folder: &Path) -> Result<Summary> {
    let Some(rank) = profile.ranks.first() else { return Ok(Summary::of(profile)) };
    let known = store::of_host(&rank.host())?;
    let mut summary = Summary::judged(profile, &known.costs);
    summary.job.notes.extend(known.unseen.iter().cloned());
    let Some(timeline) = &profile.timeline else { return Ok(summary) };
    let replayed = Graph::of(timeline, 0).and_then(|graph| {
        critical::put(&mut summary, timeline, &graph, &known.costs)?;
        mapped(&mut summary, folder, &graph, &known);
        Ok(())
    });
    if let Err(fault) = replayed {
        summary.job.notes.push(format!("the critical path is left out: {fault}"));
    }
    Ok(summary)
}

/// Judges other mappings as `plimsoll map` does; the judgement by the tables stays where a replay lacks what it needs.
fn mapped(summary: &mut Summary, folder: &Path, graph: &Graph, known: &Known) {
    let of = Mapped { folder: &folder.display().to_string(), graph, summary, world: 0 };
    let Ok(judged) = Judged::of(&of, known, &Asked::default()) else { return };
    let judgement = judged.page().judgement(folder);
    let evidence = Evidence::of(summary);
    summary.verdict = summary.verdict.take().map(|verdict| verdict.with(&evidence, judgement));
}

/// Writes an export; omissions are reported on standard error.
fn export(folder: &Path, format: Export, world: usize, output: Option<&Path>) -> Result<ExitCode> {
    if output.is_none() {
        output::not_to_a_terminal("an export", "--output FILE")?;
    }
    let Some(timeline) = Timeline::open(folder)? else {
        let next = "profile the program again with --trace";
        return Err(Fault::new(folder.display().to_string(), "no timeline was recorded", next));
    };
    worlds::check_world(&timeline.worlds, world).map_err(|fault| fault.within(folder.display()))?;
    let place = output.map_or_else(|| "standard output".into(), |path| path.display().to_string());
    let said = |error: io::Error| Fault::unwritable(place.clone(), error, "name another file with --output");
    let to: Box<dyn Write> = match output {
        Some(path) => Box::new(File::create(path).map_err(said)?),
        None => Box::new(io::stdout().lock()),
    };
    let mut to = BufWriter::with_capacity(1 << 20, to);
    let written = match format {
        Export::Perfetto => {
            let summary = Summary::of(&Profile::open(folder)?);
            let series = summary.series.as_ref().map(|series| (series, summary.job.started));
            perfetto(&timeline, series, &mut to).map(|_| timeline.notes.clone())
        }
        Export::Goal => goal(&timeline, world, &mut to).map(|done| done.notes),
    };
    match written.and_then(|notes| to.flush().map(|()| notes)) {
        Ok(notes) => notes.iter().for_each(|note| eprintln!("note: {}", printable(note))),
        // A reader such as `head` that closes the pipe has enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe && output.is_none() => {}
        Err(error) => return Err(said(error)),
    }
    Ok(ExitCode::SUCCESS)
}
