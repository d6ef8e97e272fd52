mod leave;

use std::path::PathBuf;
use std::process::ExitCode;

use fleet::totals::{self, Asked, By};
use fleet::{Store, page, spool, terminal};
use linux::output;
use machine::{Fault, Result};

use super::outputs::{self, Json};

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
    /// Only jobs of the program of this file name
    #[arg(long, value_name = "NAME")]
    program: Option<String>,
    /// What sums are shown for: each month, partition, program or group
    #[arg(long, value_name = "WORD", default_value = "month")]
    per: By,
    /// Watts that a busy core takes; savings are then shown in kWh too
    #[arg(long, value_name = "W")]
    watts: Option<f64>,
    /// Write the sums as an HTML page to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
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
    },
    #[command(hide = true)]
    Leave(leave::Leave),
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.act {
        Some(Act::Add { spool: from }) => {
            let added = spool::add(&from, &mut Store::open(&arguments.store)?)?;
            output::print(&format!("{} new, {} known, {} kept aside\n", added.new, added.known, added.aside_in_all))?;
            for (name, why) in &added.aside {
                eprintln!("kept aside: {}: {why}", spool::shown(name));
            }
            return Ok(ExitCode::SUCCESS);
        }
        Some(Act::Leave(leave)) => return leave::run(leave).map(|()| ExitCode::SUCCESS),
        None => {}
    }
    let store = Store::read(&arguments.store)?;
    let sums = totals::totals(&store, Asked { program: arguments.program.clone() }, arguments.per)?;
    let page = || output::page(&terminal::render(&sums, arguments.watts));
    arguments.json.tell(|| outputs::json(&sums), page)?;
    if let Some(file) = &arguments.html {
        let text = page::render(&sums, arguments.watts, &arguments.store.display().to_string(), None);
        std::fs::write(file, text)
            .map_err(|e| Fault::unwritable(file.display().to_string(), e, "name another file with --html"))?;
        if !arguments.json.is_printed() {
            output::print(&format!("page: {}\n", file.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
