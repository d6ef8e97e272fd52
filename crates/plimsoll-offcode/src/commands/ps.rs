//! `plimsoll ps`: what runs where, with what proves it, and what its channels carried and lost.

use std::process::ExitCode;

use attach::control::{self, Found, Report, Running};
use attach::watched::Carried;
use machine::text::Table;
use machine::{Fault, Nanoseconds, Result, count, figure};

use linux::output::{self, Destination};

mod metrics;
mod trace;

/// Lists the offcodes that run on this host, the site of each, the counters that prove that it works there, and what its
/// channels carried and lost.
///
/// LOST says where: at the end that writes, whose buffers were full; at a reader that was lapped; at a driver hook; at what
/// may wait for an agent; in a move.
#[derive(clap::Args)]
pub struct Arguments {
    /// Show only the runtime of this process
    #[arg(long, value_name = "PID")]
    process: Option<u32>,
    /// Show what a map of an offcode holds, or a variable of a bpf body
    #[arg(long, value_name = "INSTANCE/NAME", conflicts_with = "json")]
    entries: Option<String>,
    /// Print JSON, or write it to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = Destination::STDOUT)]
    json: Option<Destination>,
    /// Print all figures in the text format of Prometheus; or write them to FILE, whole or not at all, for node_exporter's
    /// textfile collector
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = Destination::STDOUT, conflicts_with_all = ["json", "entries"])]
    metrics: Option<Destination>,
    /// Print the calls that an offcode gets, as they come, until Ctrl-C
    #[arg(long, value_name = "INSTANCE", conflicts_with_all = ["json", "entries", "metrics"])]
    calls: Option<String>,
    /// Time after which --calls ends
    #[arg(long = "for", value_name = "TIME", requires = "calls")]
    time: Option<Nanoseconds>,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let found = match arguments.process {
        Some(process) => Found { own: vec![process], ..Found::default() },
        None => control::find()?,
    };
    if found.busy > 0 {
        eprintln!("plimsoll: {}", no_room(found.busy));
    }
    if let Some(wanted) = &arguments.entries {
        return map(&found.own, wanted);
    }
    if let Some(wanted) = &arguments.calls {
        return trace::follow(&found.own, wanted, arguments.time.map(Nanoseconds::duration));
    }
    let mut reports = Vec::new();
    for process in found.own {
        match control::look_at(process) {
            Ok(report) => reports.push(report),
            // A runtime that ends must not hide the others.
            Err(fault) if arguments.process.is_none() => eprintln!("plimsoll: {fault}"),
            Err(fault) => return Err(fault),
        }
    }
    if let Some(to) = &arguments.metrics {
        let text = metrics::text(&reports);
        match to {
            Destination::Stdout => output::print(&text)?,
            Destination::File(file) => output::replace(file, &text)?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    // Other users' runtimes are left out of the metrics: their answers could spoil the whole file.
    for (user, processes) in &found.others {
        for said in control::look_at_all(*user, processes) {
            match said {
                Ok(report) => {
                    let application = format!("{} (user {user})", report.application);
                    reports.push(Report { application, ..report });
                }
                Err(fault) => eprintln!("plimsoll: {fault}"),
            }
        }
    }
    if let Some(to) = &arguments.json {
        let json = serde_json::to_string_pretty(&reports);
        let json = json.map_err(|e| Fault::because("report of the runtimes", e, "report this as a defect"))?;
        to.write(&(json + "\n"))?;
    }
    let text = match reports.is_empty() {
        _ if arguments.json == Some(Destination::Stdout) => return Ok(ExitCode::SUCCESS),
        true if found.busy > 0 => String::new(),
        true => "no runtime is up; start one with `plimsoll run APP.toml`\n".into(),
        false => reports.iter().map(|report| page(report) + &channels(report)).collect::<Vec<_>>().join("\n"),
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The fault of runtimes that serve as many callers as they may.
pub(super) fn no_room(runtimes: usize) -> Fault {
    let next = "run it again; if this stays, a process is stopped, or others keep its connections: `ss -xp | grep plimsoll/run` \
                shows who";
    let subject = count::of(runtimes as u64, "runtime");
    Fault::new(subject, "no room for one more caller, so that nobody can ask what runs there", next)
}

/// Prints a map of the first runtime that has the offcode.
fn map(processes: &[u32], wanted: &str) -> Result<ExitCode> {
    let Some((offcode, name)) = wanted.rsplit_once('/') else {
        return Err(Fault::new(format!("map {wanted}"), "it names no offcode", "write INSTANCE/NAME"));
    };
    let (_, (entries, more)) = of_first(processes, offcode, |process| control::map_of(process, offcode, name))?;
    let mut text: String = entries.iter().map(|(key, value)| format!("{key}: {value}\n")).collect();
    if entries.is_empty() {
        text += "nothing, or nothing but zeros\n";
    }
    if more {
        text += "there are more\n";
    }
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The answer of the first runtime that has the offcode, and its process.
fn of_first<R>(processes: &[u32], offcode: &str, ask: impl Fn(u32) -> Result<R>) -> Result<(u32, R)> {
    let mut last =
        Fault::new(format!("offcode {offcode}"), "no runtime is up", "start one with `plimsoll run APP.toml`");
    for &process in processes {
        match ask(process) {
            Ok(answer) => return Ok((process, answer)),
            Err(fault) => last = fault,
        }
    }
    Err(last)
}

/// An instance's name, with its package's where that differs.
fn named(of: &Running) -> String {
    if of.instance == of.offcode { of.offcode.clone() } else { format!("{} ({})", of.instance, of.offcode) }
}

/// The report of one runtime, as `ps` and `run` show it.
pub fn page(report: &Report) -> String {
    let seconds = report.running_ms as f64 / 1e3;
    let mut table = Table::new(["OFFCODE", "SITE", "WHERE", "COUNTED"]);
    for line in &report.offcodes {
        let (whereabouts, counted) = match &line.evidence {
            Ok(evidence) => {
                let counters = evidence.counters.iter().map(|c| format!("{} {}", c.value, c.name));
                let each = evidence.timed.map(|timed| figure::nanoseconds(timed.each()) + " each");
                (evidence.whereabouts.clone(), counters.chain(each).collect::<Vec<_>>().join(", "))
            }
            Err(why) => (String::new(), why.clone()),
        };
        table.row([named(line), line.site.to_string(), whereabouts, counted]);
    }
    format!("process {}: {}, up for {seconds:.1} s\n{}", report.process, report.application, indented(&table))
}

fn indented(table: &Table) -> String {
    table.text(output::width() - 2).lines().map(|line| format!("  {line}\n")).collect()
}

/// The table of one runtime's channels.
fn channels(report: &Report) -> String {
    let header = ["OFFCODE", "CHANNEL", "PEER", "WRITTEN", "READ", "FULL", "REFUSED", "LOST"];
    let mut table = Table::new(header);
    let count = |count: Option<u64>| count.map_or("-".into(), |count| count.to_string());
    let mut unknown = String::new();
    for line in &report.offcodes {
        let rows = match &line.channels {
            Ok(rows) => rows.as_slice(),
            Err(why) => {
                unknown += &format!("  {}: its channels are not known: {why}\n", line.instance);
                continue;
            }
        };
        for row in rows {
            let channel = if row.channel.is_empty() { "out of band" } else { row.channel.as_str() };
            let peer = row.peer.clone().unwrap_or_else(|| "-".into());
            let counts = [row.written, row.read, row.full, row.refused].map(count);
            let names = [line.instance.clone(), channel.to_owned(), peer];
            table.row(names.into_iter().chain(counts).chain([lost(row)]));
        }
    }
    if table.is_empty() { unknown } else { indented(&table) + &unknown }
}

/// Messages that were lost, and those that may be yet.
fn lost(row: &Carried) -> String {
    let lost = row.lost.iter().map(|(at, count)| format!("{count} {}", at.place()));
    let waiting = (row.waiting > 0).then(|| format!("{} wait for room", row.waiting));
    let all: Vec<String> = lost.chain(waiting).collect();
    if all.is_empty() { "0".into() } else { all.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_that_has_no_room_is_told_with_the_next_step() {
        let said = no_room(2).to_string();
        assert!(said.starts_with("2 runtimes: no room") && said.contains("Next: run it again"), "{said}");
    }
}
