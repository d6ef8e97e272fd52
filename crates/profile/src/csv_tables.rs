//! A profile as tables for other programs: one CSV file each, units in the header.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use machine::{Fault, Reading, Result};

use crate::printable::printable;
use crate::summary::{OnPath, SiteSummary, Summary};

/// Name of the file, its columns, its rows.
type Table = (&'static str, Vec<&'static str>, Vec<Vec<String>>);

/// Writes the tables to `folder`, which is made where it is missing; returns the files. A value that is not there is an
/// empty field; `plimsoll report DIR --json` says why.
///
/// # Errors
/// The folder or a file cannot be written.
pub fn write(summary: &Summary, folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |path: &Path, error: io::Error| {
        Fault::unwritable(path.display().to_string(), error, "name a folder that you may write to with --csv")
    };
    fs::create_dir_all(folder).map_err(|e| failed(folder, e))?;
    let mut files = Vec::new();
    for (name, header, rows) in tables(summary) {
        let path = folder.join(format!("{name}.csv"));
        let mut file = fs::File::create(&path).map_err(|e| failed(&path, e))?;
        file.write_all(&lines(header, rows)).map_err(|e| failed(&path, e))?;
        files.push(path);
    }
    Ok(files)
}

fn lines(header: Vec<&'static str>, rows: Vec<Vec<String>>) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let header = header.into_iter().map(str::to_owned).collect();
    for record in std::iter::once(header).chain(rows) {
        let fields = record.iter().map(|field| printable(field));
        writer.write_record(fields).expect("rows are as long as the header, and memory takes them");
    }
    writer.into_inner().expect("memory takes all")
}

fn tables(summary: &Summary) -> Vec<Table> {
    vec![
        ranks(summary),
        functions(summary),
        function_sizes(summary),
        sizes(summary),
        matrix(summary),
        sites(summary),
        cores(summary),
    ]
}

/// All digits, and an empty field for what is not there.
fn field<T: ToString>(reading: &Reading<T>) -> String {
    reading.value().map_or_else(String::new, ToString::to_string)
}

/// A table of a row for each of `$all`, its columns with their cells.
macro_rules! table {
    ($name:literal, $all:expr, |$of:pat_param| $(let $let:ident = $value:expr;)* { $($column:literal: $cell:expr,)* }) => {
        ($name, vec![$($column),*], $all.map(|$of| { $(let $let = $value;)* vec![$($cell.to_string()),*] }).collect())
    };
}

fn ranks(summary: &Summary) -> Table {
    table!("ranks", summary.ranks.iter(), |rank|
        let state = serde_json::to_value(rank.state).unwrap_or_default();
    {
        "world": rank.world,
        "rank": rank.rank,
        "host": rank.host,
        "pid": rank.pid,
        "state": state.as_str().unwrap_or_default(),
        "threads": rank.threads,
        "seconds": rank.seconds,
        "thread_seconds": rank.thread_seconds,
        "startup_seconds": rank.startup,
        "shutdown_seconds": rank.shutdown,
        "calls": rank.calls,
        "mpi_seconds": rank.mpi,
        "compute_seconds": rank.compute,
        "messages": rank.messages,
        "bytes": rank.bytes,
        "softirq_seconds": field(&rank.softirq),
        "involuntary_switches": field(&rank.involuntary),
        "stopped_seconds": field(&rank.stopped),
        "run_delay_seconds": field(&rank.run_delay),
        "stolen_seconds": field(&rank.stolen),
        "compute_off_core_seconds": field(&rank.compute_off_core),
        "transfer_seconds": field(&rank.split.transfer),
        "wait_seconds": field(&rank.split.wait),
        "undivided_seconds": rank.split.undivided,
        "off_core_seconds": field(&rank.split.off_core),
        "yielded_seconds": field(&rank.yielded),
        "on_core_seconds": field(&rank.outside.on_core),
        "blocked_seconds": field(&rank.outside.blocked),
        "sleep_seconds": field(&rank.outside.sleep),
        "lock_seconds": field(&rank.outside.lock),
        "storage_seconds": field(&rank.outside.storage),
    })
}

fn functions(summary: &Summary) -> Table {
    table!("functions", summary.functions.iter(), |f| {
        "function": f.name,
        "class": f.class,
        "group_ranks": f.group,
        "counted": f.counted,
        "ranks": f.ranks,
        "calls": f.calls,
        "calls_share": f.calls_share,
        "seconds": f.seconds,
        "time_share": f.time_share,
        "mean_seconds": f.mean,
        "least_seconds": f.least,
        "most_seconds": f.most,
        "p50_seconds": f.p50,
        "p99_seconds": f.p99,
        "bytes": f.bytes,
        "transfer_seconds": field(&f.split.transfer),
        "wait_seconds": field(&f.split.wait),
        "undivided_seconds": f.split.undivided,
        "off_core_seconds": field(&f.split.off_core),
    })
}

fn function_sizes(summary: &Summary) -> Table {
    table!("function-sizes", summary.functions.iter().flat_map(|f| f.sizes.iter().map(move |size| (f, size))), |(f, size)| {
        "function": f.name,
        "group_ranks": f.group,
        "floor_bytes": size.floor,
        "calls": size.calls,
        "bytes": size.bytes,
        "seconds": size.seconds,
        "unhindered_seconds_per_call": field(&size.unhindered),
    })
}

fn sizes(summary: &Summary) -> Table {
    table!("sizes", summary.sizes.iter(), |size| {
        "floor_bytes": size.floor,
        "messages": size.messages,
        "bytes": size.bytes,
        "collective_calls": size.collectives,
        "collective_bytes": size.collective_bytes,
    })
}

fn matrix(summary: &Summary) -> Table {
    let cells = summary.matrices.iter().enumerate();
    let cells = cells.flat_map(|(world, matrix)| matrix.cells.iter().map(move |cell| (world, cell)));
    table!("matrix", cells, |(world, [from, to, messages, bytes, operations, operation_bytes])| {
        "world": world,
        "from_rank": from,
        "to_rank": to,
        "messages": messages,
        "bytes": bytes,
        "operations": operations,
        "operation_bytes": operation_bytes,
    })
}

fn sites(summary: &Summary) -> Table {
    table!("sites", summary.sites.iter(), |site|
        let names = site.frames.iter().filter_map(|frame| frame.name.as_deref()).collect::<Vec<_>>();
        let first = site.frames.first();
    {
        "function": site.function,
        "caller": names.join(" < "),
        "file": first.and_then(|frame| frame.file.clone()).unwrap_or_default(),
        "line": first.and_then(|frame| frame.line).map_or_else(String::new, |line| line.to_string()),
        "module": site.module,
        "offset": format!("{:#x}", site.offset),
        "ranks": site.ranks,
        "calls": site.calls,
        "seconds": site.seconds,
        "time_share": site.time_share,
        "most_seconds": site.most,
        "bytes": site.bytes,
        "critical_calls": critical(site, |of| of.calls.to_string()),
        "critical_trips": critical(site, |of| of.trips.to_string()),
        "critical_seconds": critical(site, |of| of.seconds.to_string()),
        "critical_compute_seconds": critical(site, |of| of.compute.to_string()),
        "note": site.note.as_deref().unwrap_or_default(),
    })
}

fn critical(site: &SiteSummary, value: fn(&OnPath) -> String) -> String {
    site.critical.as_ref().map_or_else(String::new, value)
}

fn cores(summary: &Summary) -> Table {
    table!("cores", summary.cores.iter(), |core|
        let ranks = core.ranks.iter().map(usize::to_string).collect::<Vec<_>>();
    {
        "host": core.host,
        "core": core.core,
        "busy_share": field(&core.busy),
        "net_rx_softirqs": field(&core.softirq_rx),
        "net_rx_seconds": field(&core.softirq_rx_seconds),
        "net_tx_softirqs": field(&core.softirq_tx),
        "net_tx_seconds": field(&core.softirq_tx_seconds),
        "interrupts": field(&core.interrupts),
        "ranks": ranks.join(" "),
        "wait_share": field(&core.wait_share),
        "energy_joules": field(&core.energy),
    })
}
