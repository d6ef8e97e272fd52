//! `plimsoll ps`: what runs where, with what proves it.

use std::process::ExitCode;

use attach::control::{self, Report, Running};
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use machine::{Fault, Result};

use linux::output;

/// Lists the offcodes that run on this host, the site of each, and the counters that prove that it works there.
#[derive(clap::Args)]
pub struct Arguments {
    /// Show only the runtime of this process
    #[arg(long, value_name = "PID")]
    process: Option<u32>,
    /// Show what a map or a variable of a bpf body holds
    #[arg(long, value_name = "INSTANCE/NAME", conflicts_with = "json")]
    map: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let processes = match arguments.process {
        Some(process) => vec![process],
        None => control::processes()?,
    };
    if let Some(wanted) = &arguments.map {
        return map(&processes, wanted);
    }
    let mut reports = Vec::new();
    for process in processes {
        match control::status(process) {
            Ok(report) => reports.push(report),
            // One that ends or is another user's must not hide the others.
            Err(fault) if arguments.process.is_none() => eprintln!("plimsoll: {fault}"),
            Err(fault) => return Err(fault),
        }
    }
    let text = match arguments.json {
        true => {
            let json = serde_json::to_string_pretty(&reports);
            json.map_err(|e| Fault::because("report of the runtimes", e, "report this as a defect"))? + "\n"
        }
        false if reports.is_empty() => "no runtime is up; start one with `plimsoll run APP.toml`\n".into(),
        false => reports.iter().map(page).collect::<Vec<_>>().join("\n"),
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Of the first runtime that has the offcode.
fn map(processes: &[u32], wanted: &str) -> Result<ExitCode> {
    let Some((offcode, name)) = wanted.rsplit_once('/') else {
        return Err(Fault::new(format!("map {wanted}"), "it names no offcode", "write OFFCODE/NAME"));
    };
    let mut last =
        Fault::new(format!("offcode {offcode}"), "no runtime is up", "start one with `plimsoll run APP.toml`");
    for &process in processes {
        match control::map_of(process, offcode, name) {
            Ok((entries, more)) => {
                let mut text: String = entries.iter().map(|(key, value)| format!("{key}: {value}\n")).collect();
                if entries.is_empty() {
                    text += "nothing but zeros\n";
                }
                if more {
                    text += "there are more\n";
                }
                output::print(&text)?;
                return Ok(ExitCode::SUCCESS);
            }
            Err(fault) => last = fault,
        }
    }
    Err(last)
}

/// An instance, with its package where that has another name.
fn named(of: &Running) -> String {
    if of.instance == of.offcode { of.offcode.clone() } else { format!("{} ({})", of.instance, of.offcode) }
}

/// One runtime, as `ps` and `run` show it.
pub fn page(report: &Report) -> String {
    let seconds = report.running_ms as f64 / 1e3;
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(["OFFCODE", "SITE", "WHERE", "COUNTED"]);
    for line in &report.offcodes {
        let (whereabouts, counted) = match &line.evidence {
            Ok(evidence) => {
                let counters = evidence.counters.iter().map(|c| format!("{} {}", c.value, c.name));
                let each = evidence.timed.map(|timed| format!("{:.0} ns each", timed.each()));
                (evidence.whereabouts.clone(), counters.chain(each).collect::<Vec<_>>().join(", "))
            }
            Err(why) => (String::new(), why.clone()),
        };
        table.add_row([named(line), line.site.to_string(), whereabouts, counted]);
    }
    let rows: String = table.lines().map(|line| format!("  {}\n", line.trim_end())).collect();
    format!("process {}: {}, up for {seconds:.1} s\n{rows}", report.process, report.application)
}
