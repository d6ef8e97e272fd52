//! The tables of the page. The page's script sorts them by the cells' `sort`; without the script they keep the order of
//! the summary.

use chart::{Scale, Svg, number};
use machine::{Reading, count};

use super::cores::{name, ranks as ranks_on};
use crate::report::{self, Column, Value};
use crate::summary::{CoreSummary, FunctionSummary, PhaseSummary, RankSummary, SiteSummary, State, Summary};
use crate::words;

/// Greatest number of rows of a table; the page has the number of rows left out.
const ROWS: usize = 1024;
/// Greatest number of call sites; the JSON has all.
const SITES: usize = 100;

const FUNCTIONS: ([Column<FunctionSummary>; 6], [Column<FunctionSummary>; 6]) = {
    use report::functions::*;
    // Columns before and after the drawing of durations.
    ([Column { name: "group", ..GROUP }, RANKS, CALLS, OF_CALLS, TIME, OF_MPI], [WAIT, LEAST, P50, P99, MOST, BYTES])
};
const OF_SITES: [Column<SiteSummary>; 6] = {
    use report::sites::*;
    [RANKS, CALLS, TIME, OF_MPI, MOST, BYTES]
};
const RANKS: [Column<RankSummary>; 13] = {
    use report::ranks::*;
    [TIME, COMPUTE, TRANSFER, WAIT, WAIT_SHARE, STOPPED, NO_CORE, STOLEN, CALLS, MESSAGES, BYTES, SOFTIRQ, TAKEN_OFF]
};
const CORES: [Column<CoreSummary>; 8] = {
    use report::cores::*;
    [BUSY, RX, RX_TIME, TX, TX_TIME, INTERRUPTS, WAIT, ENERGY]
};

pub struct Head {
    pub name: String,
    /// The meaning of the column, where its name is not enough.
    pub title: &'static str,
    pub number: bool,
}

#[derive(Default)]
pub struct Cell {
    pub text: String,
    /// A note in smaller type, below the text.
    pub note: String,
    pub title: String,
    /// The key that the cell is sorted by.
    pub sort: String,
    pub class: &'static str,
    /// Whether the cell's column holds numbers.
    pub number: bool,
    /// A drawing as SVG, already escaped.
    pub drawing: String,
}

pub struct Table {
    pub id: &'static str,
    pub label: String,
    pub heads: Vec<Head>,
    /// The first cell of a row names it.
    pub rows: Vec<Vec<Cell>>,
    pub left_out: Option<String>,
}

impl Table {
    fn new(id: &'static str, label: &str, heads: Vec<Head>, rows: impl Iterator<Item = Vec<Cell>>) -> Table {
        let numbered = |mut row: Vec<Cell>| {
            row.iter_mut().zip(&heads).for_each(|(cell, head)| cell.number = head.number);
            row
        };
        let rows = rows.map(numbered).collect();
        Table { id, label: label.into(), heads, rows, left_out: None }
    }
}

fn word(name: &str) -> Head {
    Head { name: name.into(), title: "", number: false }
}

fn head(name: &str, title: &'static str) -> Head {
    let mut letters = name.chars();
    Head { name: letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect(), title, number: true }
}

fn heads<R>(columns: &[Column<R>]) -> impl Iterator<Item = Head> {
    columns.iter().map(|column| head(column.name, column.title))
}

fn cells<R>(columns: &[Column<R>], of: &R) -> impl Iterator<Item = Cell> {
    columns.iter().map(move |column| cell(column, of))
}

fn cell<R>(column: &Column<R>, of: &R) -> Cell {
    match (column.cell)(of) {
        Value::Nothing | Value::Group(0) => Cell::default(),
        Value::Text(of) => text(of),
        Value::Whole(of) => count(of),
        Value::Group(ranks) => count(ranks.into()),
        Value::Bytes(of) => value(of as f64, words::bytes),
        Value::Number(unit, of) => value(of, |of| words::quantity(unit, of)),
        Value::Read(unit, of) => reading(&of, |of| words::quantity(unit, of)),
        Value::Uncounted(_) => Cell { text: "not counted".into(), class: "missing", ..Cell::default() },
    }
}

fn text(text: impl Into<String>) -> Cell {
    let text = text.into();
    Cell { sort: text.clone(), text, ..Cell::default() }
}

fn value(value: f64, write: impl Fn(f64) -> String) -> Cell {
    Cell { text: write(value), sort: format!("{value:e}"), ..Cell::default() }
}

fn count(value: u64) -> Cell {
    Cell { text: count::grouped(value), sort: value.to_string(), ..Cell::default() }
}

fn reading(of: &Reading<f64>, write: impl Fn(f64) -> String) -> Cell {
    let (text, title) = words::cell(of, |value| write(*value));
    let class = match of {
        Reading::Measured(_) => "",
        Reading::Modelled(_) => "modelled",
        _ => "missing",
    };
    // An empty key is last in both directions.
    let sort = of.value().map(|value| format!("{value:e}")).unwrap_or_default();
    Cell { text, sort, title: title.unwrap_or_default(), class, ..Cell::default() }
}

fn left_out(all: usize, shown: usize, what: &str, why: &str) -> Option<String> {
    (all > shown)
        .then(|| format!("{} more {what} are left out{why}; plimsoll report DIR --json has them all.", all - shown))
}

pub fn functions(summary: &Summary) -> Table {
    let (before, behind) = &FUNCTIONS;
    let mut all = vec![word("Function")];
    all.extend(heads(before));
    all.push(Head { title: "calls by duration, both on log scales", ..word("How long") });
    all.extend(heads(behind));
    let row = |(i, f): (usize, &FunctionSummary)| {
        let mut row = vec![Cell { note: f.class.clone(), ..text(f.name.clone()) }];
        row.extend(cells(before, f));
        row.push(Cell { drawing: durations(i, f).unwrap_or_default(), ..Cell::default() });
        row.extend(cells(behind, f));
        row
    };
    Table {
        left_out: left_out(summary.functions.len(), ROWS, "functions", " that take less time"),
        ..Table::new("functions", "MPI calls", all, summary.functions.iter().take(ROWS).enumerate().map(row))
    }
}

/// A drawing of calls by duration for a cell of a table.
fn durations(nth: usize, f: &FunctionSummary) -> Option<String> {
    let known: Vec<_> = f.times.iter().filter(|t| t.calls > 0).collect();
    let (first, last) = (known.first()?.floor.max(1e-9), known.last()?.floor.max(1e-9));
    let most = known.iter().map(|t| t.calls).max()? as f64;
    let frame = chart::Frame { name: "times", width: 120.0, height: 26.0 };
    let ends = [first, last * 1.25].into_iter();
    let x = chart::Placed::over(Scale::Log10, ends, (0.0, frame.width))?;
    let said = format!(
        "from {} to {}, most often about {}",
        words::seconds(f.least),
        words::seconds(f.most),
        words::seconds(known.iter().max_by_key(|t| t.calls)?.floor)
    );
    let mut svg = Svg::new(frame, &format!("times-{nth}"), "Calls by duration", &said);
    for time in known {
        let left = x.at(time.floor.max(1e-9));
        let wide = (x.at(time.floor.max(1e-9) * 1.25) - left).max(1.0);
        // A single call among millions is visible.
        let high = ((time.calls as f64 + 1.0).ln() / (most + 1.0).ln() * 24.0).max(1.5);
        let title = format!("{} of about {}", count::of(time.calls, "call"), words::seconds(time.floor));
        svg.rectangle("fill s1", (left, 26.0 - high), wide, high, &title);
    }
    Some(svg.finish())
}

pub fn sites(summary: &Summary) -> Table {
    use report::sites::{ON_PATH, TRIPS};
    let mut all = vec![word("Call site"), word("Call")];
    all.extend(heads(&OF_SITES));
    let is_walked = summary.sites.iter().any(|site| site.critical.is_some());
    if is_walked {
        all.extend(heads(&[ON_PATH, TRIPS]));
    }
    let rows = summary.sites.iter().take(SITES).map(|site| {
        let module = site.module.rsplit('/').next().unwrap_or(&site.module);
        let address = format!("{module}+0x{:x}", site.offset);
        let frames: Vec<String> = site.frames.iter().map(words::place).filter(|place| !place.is_empty()).collect();
        let full: Vec<String> = site
            .frames
            .iter()
            .filter_map(|frame| Some(format!("{}:{}", frame.file.as_ref()?, frame.line.unwrap_or(0))))
            .collect();
        let named = frames.first().cloned().unwrap_or_else(|| address.clone());
        let mut note: Vec<String> = frames.iter().skip(1).map(|frame| format!("in {frame}")).collect();
        if !frames.is_empty() {
            note.push(address);
        }
        note.extend(site.note.clone());
        let name = Cell {
            note: note.join(" · "),
            title: if full.is_empty() { site.module.clone() } else { full.join("\n") },
            class: "code",
            ..text(named)
        };
        let mut row = vec![name, text(site.function.clone())];
        row.extend(cells(&OF_SITES, site));
        if is_walked {
            let of = site.critical.clone().unwrap_or_default();
            let title =
                format!("{} of its calls, {} before them", count::grouped(of.calls), words::seconds(of.compute));
            row.extend([Cell { title, ..cell(&ON_PATH, site) }, cell(&TRIPS, site)]);
        }
        row
    });
    Table {
        left_out: left_out(summary.sites.len(), SITES, "call sites", " that take less time"),
        ..Table::new("sites", "Call sites", all, rows)
    }
}

fn why(state: State) -> &'static str {
    match state {
        State::Finalized => "",
        State::Exited => "it ended in order, without MPI_Finalize",
        State::Aborted => "it called MPI_Abort",
        State::Killed => "a signal ended it, or its host",
        State::Running => "what stands here is what it had done when it was last seen",
    }
}

pub fn ranks(summary: &Summary) -> Table {
    use report::ranks::BLOCKED;
    let mut all = vec![word("Rank"), word("Host and core"), word("State")];
    all.extend(heads(&RANKS));
    let stalls = summary.ranks.iter().any(RankSummary::stalls);
    if stalls {
        all.extend(heads(&[BLOCKED]));
    }
    let rows = summary.ranks.iter().enumerate().take(ROWS).map(|(place, rank)| {
        let cores = match rank.cores.value() {
            Some(cores) => format!("core {}", words::runs(cores.iter().copied())),
            None => number::why_missing(&rank.cores).unwrap_or_default(),
        };
        let why = why(rank.state);
        let inside = rank
            .inside
            .as_ref()
            .map_or(String::new(), |inside| format!("in {} for {}", inside.function, words::seconds(inside.seconds)));
        let threads = if rank.threads > 1 { count::of(rank.threads.into(), "thread") } else { String::new() };
        let mut row = vec![
            Cell { note: threads, sort: place.to_string(), ..text(words::rank(summary, place)) },
            Cell { note: cores, title: format!("process {}: {}", rank.pid, rank.program), ..text(rank.host.clone()) },
            Cell {
                note: inside,
                title: why.into(),
                class: if why.is_empty() { "" } else { "warn" },
                ..text(rank.state.name())
            },
        ];
        row.extend(cells(&RANKS, rank));
        if stalls {
            let stall = rank.outside.stall().filter(|_| rank.stalls());
            let what = stall.map_or(String::new(), |(_, stall)| stall.words().into());
            row.push(Cell { note: what, ..cell(&BLOCKED, rank) });
        }
        row
    });
    Table { left_out: left_out(summary.ranks.len(), ROWS, "ranks", ""), ..Table::new("ranks", "Ranks", all, rows) }
}

pub fn cores(summary: &Summary) -> Table {
    let mut all = vec![word("Core"), word("Ranks")];
    all.extend(heads(&CORES));
    let is_told = !summary.capability.is_empty();
    if is_told {
        all.push(head("taken", "share of the time that others than the ranks had it"));
    }
    let row = |(place, core): (usize, &CoreSummary)| {
        let mut row =
            vec![Cell { sort: place.to_string(), ..text(name(summary, core)) }, text(ranks_on(summary, core))];
        row.extend(cells(&CORES, core));
        if is_told {
            let of_core = |of: &&machine::CoreCapability| of.host == core.host && of.core.0 == core.core;
            let taken = summary.capability.iter().find(of_core).map(|of| of.taken.clone());
            row.push(reading(&taken.unwrap_or_else(|| Reading::absent("it was not looked at")), words::percent));
        }
        row
    };
    Table {
        left_out: left_out(summary.cores.len(), ROWS, "cores", ""),
        ..Table::new("cores", "Cores", all, summary.cores.iter().enumerate().take(ROWS).map(row))
    }
}

pub fn phases(summary: &Summary) -> Table {
    let all = [word("Phase")].into_iter().chain(heads(report::phases::ALL)).collect();
    let row = |phase: &PhaseSummary| {
        let world = if summary.job.worlds > 1 { format!("world {}", phase.world) } else { String::new() };
        let level = text(format!("level {}", phase.level));
        let level = Cell { note: world, sort: phase.level.to_string(), ..level };
        [level].into_iter().chain(cells(report::phases::ALL, phase)).collect()
    };
    Table {
        left_out: left_out(summary.phases.len(), ROWS, "phases", ""),
        ..Table::new("phases", "Phases", all, summary.phases.iter().take(ROWS).map(row))
    }
}

/// The text above the table of power.
pub const POWER: &str = "What sensors told, of the time that their samples cover; gaps are in the JSON with their cause. \
    A sensor within another has its energy in that one's too.";

pub fn power(summary: &Summary) -> Table {
    let all = [word("Sensor"), word("Time")].into_iter().chain(heads(report::power::ALL)).collect();
    let rows = summary.power.iter().flat_map(|sensor| {
        sensor.spans.iter().map(move |span| {
            let phase = span.phase.and_then(|place| summary.phases.get(place));
            let what = phase.map_or_else(|| span.what.clone(), |phase| format!("phase, level {}", phase.level));
            let within = sensor.within.as_ref().map_or_else(String::new, |within| format!(", within {within}"));
            let note = format!("{}, {}{within}", sensor.host, sensor.covers);
            let lead = [Cell { note, ..text(sensor.sensor.clone()) }, text(what)];
            lead.into_iter().chain(cells(report::power::ALL, span)).collect()
        })
    });
    let times = summary.power.iter().map(|sensor| sensor.spans.len()).sum();
    Table { left_out: left_out(times, ROWS, "times", ""), ..Table::new("power", "Power", all, rows.take(ROWS)) }
}

/// Reasons of all missing readings, each once.
pub fn absences(summary: &Summary) -> Vec<String> {
    let mut absences = chart::Absences::default();
    let mut add = |what: &str, why: Option<String>| {
        if let Some(why) = why {
            absences.add(what, why);
        }
    };
    for rank in &summary.ranks {
        add("cores of ranks", number::why_missing(&rank.cores));
        missing(&RANKS, rank).for_each(|(what, why)| add(what, why));
    }
    for core in &summary.cores {
        missing(&CORES, core).for_each(|(what, why)| add(what, why));
    }
    for sensor in &summary.power {
        add(&format!("idle floor of {}", sensor.sensor), number::why_missing(&sensor.floor));
        for span in &sensor.spans {
            add(&format!("energy by {}", sensor.sensor), number::why_missing(&span.joules));
        }
    }
    for host in &summary.job.hosts {
        add("cores of hosts", number::why_missing(&host.cores));
    }
    add("what recording costs", number::why_missing(&summary.totals.recording));
    absences.lines()
}

/// Each column that may be missing, with the reason where its reading is missing.
fn missing<R>(columns: &[Column<R>], of: &R) -> impl Iterator<Item = (&'static str, Option<String>)> {
    columns.iter().filter(|column| !column.missing.is_empty()).map(move |column| match (column.cell)(of) {
        Value::Read(_, of) => (column.missing, number::why_missing(&of)),
        _ => (column.missing, None),
    })
}
