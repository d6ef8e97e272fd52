mod leave;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use fleet::history::{self, History};
use fleet::store::Event;
use fleet::totals::{self, Asked, By, Totals};
use fleet::{Store, example, export, metrics, page, rows, spool, sweep, terminal};
use launch::slurm::Slurm;
use linux::output::{self, Destination};
use machine::here::now;
use machine::{Fault, Nanoseconds, Result};

use super::outputs::{self, Csv, Json};

/// Tells which of all jobs would gain, from what, and how many core hours that is
///
/// Every profiled job leaves a summary in a spool; `plimsoll fleet add DIR` takes them into one store. Intervals are of 95 %, and
/// treat all jobs of a program as one draw.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    act: Option<Act>,
    /// The store of jobs
    #[arg(long, value_name = "FILE", default_value = "/var/lib/plimsoll/fleet.db", global = true)]
    store: PathBuf,
    /// Show an example in place of a store: a year of made-up jobs of ten programs
    #[arg(long, conflicts_with = "store")]
    example: bool,
    /// The program of this file name over time: its use, waiting, versions and steps; with --per, sums of its jobs alone
    #[arg(long, value_name = "NAME")]
    program: Option<String>,
    /// What sums are shown for: each month, partition, program or group; month where neither this nor --program is given
    #[arg(long, value_name = "WORD")]
    per: Option<By>,
    /// Watts that a busy core takes; savings are then shown in kWh too
    #[arg(long, value_name = "W")]
    watts: Option<f64>,
    /// Write the sums as an HTML page to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print figures of all jobs by partition in the text format of Prometheus; or write them to FILE, whole or not at all, for
    /// node_exporter's textfile collector
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = Destination::STDOUT, conflicts_with_all = ["program", "per", "watts", "html", "csv", "json"])]
    metrics: Option<Destination>,
    #[command(flatten)]
    csv: Csv,
    #[command(flatten)]
    json: Json,
}

#[derive(clap::Subcommand)]
enum Act {
    /// Takes the summaries of a spool into the store
    ///
    /// A summary leaves the spool once the store has it. What is no summary, or another of a step that the store knows, is moved
    /// to DIR/aside. May be run at any time, also twice at once.
    Add {
        /// The spool
        #[arg(value_name = "DIR")]
        spool: PathBuf,
        /// Also remove the folders of steps that left no summary: those whose jobs Slurm does not know, and in which nothing was
        /// written for this time, which is a day at least
        #[arg(long, value_name = "TIME", value_parser = quiet)]
        sweep: Option<Nanoseconds>,
    },
    /// Writes all jobs of the store as Parquet, to DIR/day=YYYY-MM-DD/part-N.parquet
    ///
    /// A row is a job; a value that is not known is null. Shares are of the run's time.
    Export {
        /// A new folder
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    #[command(hide = true)]
    Leave(leave::Leave),
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    match &arguments.act {
        Some(Act::Add { spool: from, sweep: quiet }) => {
            let mut store = Store::open(&arguments.store)?;
            let added = spool::add(from, &mut store)?;
            output::print(&format!("{} new, {} known, {} kept aside\n", added.new, added.known, added.aside_in_all))?;
            for (name, why) in &added.aside {
                eprintln!("kept aside: {}: {why}", spool::shown(name));
            }
            if let Some(quiet) = quiet {
                sweep(from, &mut store, *quiet)?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        Some(Act::Export { folder }) => {
            let jobs = export::export(&asked(&arguments)?.0, folder)?;
            output::print(&format!("{jobs} jobs exported to {}\n", folder.display()))?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(Act::Leave(leave)) => return leave::run(leave).map(|()| ExitCode::SUCCESS),
        None => {}
    }
    let (store, from) = asked(&arguments)?;
    if let Some(to) = &arguments.metrics {
        let text = metrics::text(&store)?;
        match to {
            Destination::Stdout => output::print(&text)?,
            Destination::File(file) => output::replace(file, &text)?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let view = View::of(&store, arguments.program.clone(), arguments.per)?;
    let (csv_is_printed, json_is_printed) =
        (arguments.csv.csv == Some(Destination::Stdout), arguments.json.is_printed());
    if csv_is_printed && json_is_printed {
        let next = "name a file for the other, like --csv=rows.csv";
        return Err(Fault::new("standard output", "only one of --json and --csv can be written to it", next));
    }
    arguments.json.tell(|| view.json(), || Ok(()))?;
    arguments.csv.tell(|| Ok(view.csv()), || Ok(()))?;
    if !csv_is_printed && !json_is_printed {
        output::page(&view.terminal(arguments.watts))?;
    }
    if let Some(file) = &arguments.html {
        let text = view.page(arguments.watts, &from);
        std::fs::write(file, text)
            .map_err(|e| Fault::unwritable(file.display().to_string(), e, "name another file with --html"))?;
        if !csv_is_printed && !json_is_printed {
            output::print(&format!("page: {}\n", file.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn quiet(text: &str) -> Result<Nanoseconds> {
    Nanoseconds::within(text, Nanoseconds::of_seconds(86_400), Nanoseconds::of_seconds(100_000_000))
}

/// Removes what dead steps left.
fn sweep(from: &Path, store: &mut Store, quiet: Nanoseconds) -> Result<()> {
    let since = Nanoseconds(now().0.saturating_sub(quiet.0));
    let swept = sweep::sweep(from, since, || Slurm::find()?.jobs())?;
    store.note(Event::Swept, swept.removed)?;
    output::print(&format!("{} swept\n", swept.removed))?;
    for (name, why) in &swept.left {
        eprintln!("not swept: {}: {why}", spool::shown(name));
    }
    Ok(())
}

/// The store that is asked, and its name.
fn asked(arguments: &Arguments) -> Result<(Store, String)> {
    match arguments.example {
        true => Ok((example::store()?, "example".into())),
        false => Ok((Store::read(&arguments.store)?, arguments.store.display().to_string())),
    }
}

/// What is shown of a store.
enum View {
    Sums(Box<Totals>),
    History(Box<History>),
}

impl View {
    fn of(store: &Store, program: Option<String>, per: Option<By>) -> Result<View> {
        let program = match (program, per) {
            (Some(program), None) => program,
            (program, per) => {
                let sums = totals::totals(store, Asked { program }, per.unwrap_or(By::Month))?;
                return Ok(View::Sums(Box::new(sums)));
            }
        };
        let next = "name one of those that plimsoll fleet --per program shows";
        let none = || Fault::new(format!("program {program}"), "the store has no job of it", next);
        Ok(View::History(Box::new(history::history(store, &program)?.ok_or_else(none)?)))
    }

    fn terminal(&self, watts: terminal::Watts) -> String {
        match self {
            View::Sums(sums) => terminal::render(sums, watts),
            View::History(history) => terminal::history(history, watts),
        }
    }

    fn page(&self, watts: terminal::Watts, store: &str) -> String {
        match self {
            View::Sums(sums) => page::render(sums, watts, store),
            View::History(history) => page::history(history, watts, store),
        }
    }

    fn csv(&self) -> String {
        match self {
            View::Sums(sums) => rows::sums(sums),
            View::History(history) => rows::history(history),
        }
    }

    fn json(&self) -> Result<String> {
        match self {
            View::Sums(sums) => outputs::json(sums),
            View::History(history) => outputs::json(history),
        }
    }
}
