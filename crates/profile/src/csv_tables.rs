//! A profile as tables for other programs: one CSV file each, units in the header.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use machine::{Fault, Reading, Result};

use crate::printable::printable;
use crate::summary::{OnPath, Split, Summary};

type Rows = Vec<Vec<String>>;

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

fn lines(header: Vec<&'static str>, rows: Rows) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let header = header.into_iter().map(str::to_owned).collect();
    for record in std::iter::once(header).chain(rows) {
        let fields = record.iter().map(|field| printable(field));
        writer.write_record(fields).expect("rows are as long as the header, and memory takes them");
    }
    writer.into_inner().expect("memory takes all")
}

fn tables(summary: &Summary) -> Vec<(&'static str, Vec<&'static str>, Rows)> {
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

fn parts(split: &Split) -> [String; 4] {
    [field(&split.transfer), field(&split.wait), split.undivided.to_string(), field(&split.off_core)]
}

macro_rules! row {
    ($($cell:expr),* $(,)?) => { vec![$($cell.to_string()),*] };
}

fn ranks(summary: &Summary) -> (&'static str, Vec<&'static str>, Rows) {
    let header = vec![
        "world",
        "rank",
        "host",
        "pid",
        "state",
        "threads",
        "seconds",
        "thread_seconds",
        "startup_seconds",
        "shutdown_seconds",
        "calls",
        "mpi_seconds",
        "compute_seconds",
        "messages",
        "bytes",
        "softirq_seconds",
        "involuntary_switches",
        "stopped_seconds",
        "run_delay_seconds",
        "stolen_seconds",
        "compute_off_core_seconds",
        "transfer_seconds",
        "wait_seconds",
        "undivided_seconds",
        "off_core_seconds",
        "yielded_seconds",
        "on_core_seconds",
        "blocked_seconds",
        "sleep_seconds",
        "lock_seconds",
        "storage_seconds",
    ];
    let rows = summary.ranks.iter().map(|rank| {
        let state = serde_json::to_value(rank.state).ok().and_then(|state| Some(state.as_str()?.to_owned()));
        let mut row = row![
            rank.world,
            rank.rank,
            rank.host,
            rank.pid,
            state.unwrap_or_default(),
            rank.threads,
            rank.seconds,
            rank.thread_seconds,
            rank.startup,
            rank.shutdown,
            rank.calls,
            rank.mpi,
            rank.compute,
            rank.messages,
            rank.bytes,
            field(&rank.softirq),
            field(&rank.involuntary),
            field(&rank.stopped),
            field(&rank.run_delay),
            field(&rank.stolen),
            field(&rank.compute_off_core),
        ];
        row.extend(parts(&rank.split));
        let outside = &rank.outside;
        row.extend(row![
            field(&rank.yielded),
            field(&outside.on_core),
            field(&outside.blocked),
            field(&outside.sleep),
            field(&outside.lock),
            field(&outside.storage),
        ]);
        row
    });
    ("ranks", header, rows.collect())
}

fn functions(summary: &Summary) -> (&'static str, Vec<&'static str>, Rows) {
    let header = vec![
        "function",
        "class",
        "group_ranks",
        "counted",
        "ranks",
        "calls",
        "calls_share",
        "seconds",
        "time_share",
        "mean_seconds",
        "least_seconds",
        "most_seconds",
        "p50_seconds",
        "p99_seconds",
        "bytes",
        "transfer_seconds",
        "wait_seconds",
        "undivided_seconds",
        "off_core_seconds",
    ];
    let rows = summary.functions.iter().map(|f| {
        let mut row = row![
            f.name,
            f.class,
            f.group,
            f.counted,
            f.ranks,
            f.calls,
            f.calls_share,
            f.seconds,
            f.time_share,
            f.mean,
            f.least,
            f.most,
            f.p50,
            f.p99,
            f.bytes,
        ];
        row.extend(parts(&f.split));
        row
    });
    ("functions", header, rows.collect())
}

fn function_sizes(summary: &Summary) -> (&'static str, Vec<&'static str>, Rows) {
    let header =
        vec!["function", "group_ranks", "floor_bytes", "calls", "bytes", "seconds", "unhindered_seconds_per_call"];
    let rows = summary.functions.iter().flat_map(|f| {
        f.sizes.iter().map(|size| {
            row![f.name, f.group, size.floor, size.calls, size.bytes, size.seconds, field(&size.unhindered)]
        })
    });
    ("function-sizes", header, rows.collect())
}

fn sizes(summary: &Summary) -> (&'static str, Vec<&'static str>, Rows) {
    let header = vec!["floor_bytes", "messages", "bytes", "collective_calls", "collective_bytes"];
    let rows = summary.sizes.iter();
    let rows = rows.map(|size| row![size.floor, size.messages, size.bytes, size.collectives, size.collective_bytes]);
    ("sizes", header, rows.collect())
}

fn matrix(summary: &Summary) -> (&'static str, Vec<&'static str>, Rows) {
    let header = vec!["world", "from_rank", "to_rank", "messages", "bytes", "operations", "operation_bytes"];
    let rows = summary.matrices.iter().enumerate().flat_map(|(world, matrix)| {
        matrix.cells.iter().map(move |[from, to, messages, bytes, operations, operation_bytes]| {
            row![world, from, to, messages, bytes, operations, operation_bytes]
        })
    });
    ("matrix", header, rows.collect())
}

fn sites(summary: &Summary) -> (&'static str, Vec<&'static str>, Rows) {
    let header = vec![
        "function",
        "caller",
        "file",
        "line",
        "module",
        "offset",
        "ranks",
        "calls",
        "seconds",
        "time_share",
        "most_seconds",
        "bytes",
        "critical_calls",
        "critical_trips",
        "critical_seconds",
        "critical_compute_seconds",
        "note",
    ];
    let rows = summary.sites.iter().map(|site| {
        let names: Vec<&str> = site.frames.iter().filter_map(|frame| frame.name.as_deref()).collect();
        let first = site.frames.first();
        let critical = |value: fn(&OnPath) -> String| site.critical.as_ref().map_or_else(String::new, value);
        row![
            site.function,
            names.join(" < "),
            first.and_then(|frame| frame.file.clone()).unwrap_or_default(),
            first.and_then(|frame| frame.line).map_or_else(String::new, |line| line.to_string()),
            site.module,
            format!("{:#x}", site.offset),
            site.ranks,
            site.calls,
            site.seconds,
            site.time_share,
            site.most,
            site.bytes,
            critical(|of| of.calls.to_string()),
            critical(|of| of.trips.to_string()),
            critical(|of| of.seconds.to_string()),
            critical(|of| of.compute.to_string()),
            site.note.as_deref().unwrap_or_default(),
        ]
    });
    ("sites", header, rows.collect())
}

fn cores(summary: &Summary) -> (&'static str, Vec<&'static str>, Rows) {
    let header = vec![
        "host",
        "core",
        "busy_share",
        "net_rx_softirqs",
        "net_rx_seconds",
        "net_tx_softirqs",
        "net_tx_seconds",
        "interrupts",
        "ranks",
        "wait_share",
        "energy_joules",
    ];
    let rows = summary.cores.iter().map(|core| {
        let ranks: Vec<String> = core.ranks.iter().map(usize::to_string).collect();
        row![
            core.host,
            core.core,
            field(&core.busy),
            field(&core.softirq_rx),
            field(&core.softirq_rx_seconds),
            field(&core.softirq_tx),
            field(&core.softirq_tx_seconds),
            field(&core.interrupts),
            ranks.join(" "),
            field(&core.wait_share),
            field(&core.energy),
        ]
    });
    ("cores", header, rows.collect())
}
