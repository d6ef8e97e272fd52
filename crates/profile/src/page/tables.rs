//! The tables of the page. The page's script sorts them by what a cell's `sort` says; without it they keep the order of
//! the summary.

use chart::{Scale, Svg, number};
use machine::{Reading, count};

use super::{cores, words};
use crate::summary::{FunctionSummary, RankSummary, State, Summary};

/// Rows of one table; beyond, the page says how many are left out.
const ROWS: usize = 1024;
/// Call sites: who looks for one beyond these wants the JSON.
const SITES: usize = 100;

pub struct Head {
    pub name: &'static str,
    /// What the column is, where its name does not say it all.
    pub title: &'static str,
    pub number: bool,
}

#[derive(Default)]
pub struct Cell {
    pub text: String,
    /// Smaller, below.
    pub note: String,
    pub title: String,
    /// What it is sorted by.
    pub sort: String,
    pub class: &'static str,
    /// Of a column of numbers.
    pub number: bool,
    /// SVG, escaped.
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

fn head(name: &'static str, title: &'static str) -> Head {
    Head { name, title, number: true }
}

fn word(name: &'static str) -> Head {
    Head { name, title: "", number: false }
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
    // What is not known comes last, whichever way a table is sorted.
    let sort = of.value().map(|value| format!("{value:e}")).unwrap_or_default();
    Cell { text, sort, title: title.unwrap_or_default(), class, ..Cell::default() }
}

fn left_out(all: usize, shown: usize, what: &str, why: &str) -> Option<String> {
    (all > shown)
        .then(|| format!("{} more {what} are left out{why}; plimsoll report DIR --json has them all.", all - shown))
}

pub fn functions(summary: &Summary) -> Table {
    let heads = vec![
        word("Call"),
        head("Group", "ranks: size of the communicator of a collective call"),
        head("Ranks", "that called it"),
        head("Calls", ""),
        head("% calls", "share of all calls"),
        head("Time", "of all ranks together"),
        head("% MPI", "share of the time in MPI"),
        Head { name: "How long", title: "calls by duration, both on log scales", number: false },
        head("Wait", "beyond what the call takes when nobody is late"),
        head("Least", "of one call"),
        head("Median", "of one call, to about a tenth"),
        head("99 %", "so many calls are shorter"),
        head("Most", "of one call"),
        head("Bytes", "of its calls together"),
    ];
    let row = |(i, f): (usize, &FunctionSummary)| {
        let uncounted = Cell { text: "not counted".into(), class: "missing", ..Cell::default() };
        let share = |share: f64| match f.counted {
            true => value(share, words::percent),
            false => Cell { text: uncounted.text.clone(), class: uncounted.class, ..Cell::default() },
        };
        vec![
            Cell { note: f.class.clone(), ..text(f.name.clone()) },
            if f.group == 0 { Cell::default() } else { count(f.group.into()) },
            count(f.ranks as u64),
            count(f.calls),
            share(f.calls_share),
            value(f.seconds, words::seconds),
            share(f.time_share),
            Cell { drawing: durations(i, f).unwrap_or_default(), ..Cell::default() },
            reading(&f.split.wait, words::seconds),
            value(f.least, words::seconds),
            value(f.p50, words::seconds),
            value(f.p99, words::seconds),
            value(f.most, words::seconds),
            value(f.bytes as f64, words::bytes),
        ]
    };
    Table {
        left_out: left_out(summary.functions.len(), ROWS, "functions", " that take less time"),
        ..Table::new("functions", "MPI calls", heads, summary.functions.iter().take(ROWS).enumerate().map(row))
    }
}

/// Calls by duration, small enough for a cell of a table.
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
        // A single call among millions still shows.
        let high = ((time.calls as f64 + 1.0).ln() / (most + 1.0).ln() * 24.0).max(1.5);
        let title = format!("{} of about {}", count::of(time.calls, "call"), words::seconds(time.floor));
        svg.rectangle("fill s1", (left, 26.0 - high), wide, high, &title);
    }
    Some(svg.finish())
}

pub fn sites(summary: &Summary) -> Table {
    let mut heads = vec![
        word("Call site"),
        word("Calls"),
        head("Ranks", "that came by"),
        head("Times", ""),
        head("Time", "of all ranks together"),
        head("% MPI", "share of the time in MPI"),
        head("Most", "of one call"),
        head("Bytes", "of its calls together"),
    ];
    let is_walked = summary.sites.iter().any(|site| site.critical.is_some());
    if is_walked {
        heads.extend([
            head(
                "On the path",
                "share of the critical path, in its calls and while messages that it sends are on their way",
            ),
            head("Trips", "messages on the critical path that it sends: 1 ns more latency costs so many ns"),
        ]);
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
        let mut row = vec![
            name,
            text(site.function.clone()),
            count(site.ranks as u64),
            count(site.calls),
            value(site.seconds, words::seconds),
            value(site.time_share, words::percent),
            value(site.most, words::seconds),
            value(site.bytes as f64, words::bytes),
        ];
        if is_walked {
            let of = site.critical.clone().unwrap_or_default();
            let calls =
                format!("{} of its calls, {} before them", count::grouped(of.calls), words::seconds(of.compute));
            row.push(Cell { title: calls, ..value(of.share, words::percent) });
            row.push(count(of.trips));
        }
        row
    });
    Table {
        left_out: left_out(summary.sites.len(), SITES, "call sites", " that take less time"),
        ..Table::new("sites", "Call sites", heads, rows)
    }
}

fn state(of: State) -> (&'static str, &'static str) {
    match of {
        State::Finalized => ("finalized", ""),
        State::Exited => ("exited", "it ended in order, without MPI_Finalize"),
        State::Aborted => ("aborted", "it called MPI_Abort"),
        State::Killed => ("killed", "a signal ended it, or its host"),
        State::Running => ("running", "what stands here is what it had done when it was last seen"),
    }
}

pub fn ranks(summary: &Summary) -> Table {
    let mut heads = vec![
        word("Rank"),
        word("Host and core"),
        word("State"),
        head("Time", "between MPI_Init's return and MPI_Finalize's call"),
        head("Compute", "outside MPI and, as far as is known, on a core"),
        head("Transfer", "what its calls take when nobody is late"),
        head("Wait", "in MPI beyond that"),
        head("Wait share", "of its time"),
        head("Stopped", "by a signal or a debugger"),
        head("No core", "runnable while others had its core"),
        head("Stolen", "by a hypervisor from its cores while it was there"),
        head("Calls", ""),
        head("Messages", "begun to other ranks"),
        head("Bytes", "of those"),
        head("Softirq time", "network softirqs on its cores while it ran"),
        head("Taken off", "involuntary switches"),
    ];
    let stalls = summary.ranks.iter().any(RankSummary::stalls);
    if stalls {
        heads.push(head("Blocked", "outside MPI: asleep, or waiting for a lock, storage or another process"));
    }
    let rows = summary.ranks.iter().enumerate().take(ROWS).map(|(place, rank)| {
        let cores = match rank.cores.value() {
            Some(cores) => format!("core {}", words::runs(cores.iter().copied())),
            None => number::why_missing(&rank.cores).unwrap_or_default(),
        };
        let (state, why) = state(rank.state);
        let inside = rank
            .inside
            .as_ref()
            .map_or(String::new(), |inside| format!("in {} for {}", inside.function, words::seconds(inside.seconds)));
        let threads = if rank.threads > 1 { count::of(rank.threads.into(), "thread") } else { String::new() };
        let wait = rank.split.wait.clone().map(|wait| match rank.thread_seconds > 0.0 {
            true => wait / rank.thread_seconds,
            false => 0.0,
        });
        let mut row = vec![
            Cell { note: threads, sort: place.to_string(), ..text(words::rank(summary, place)) },
            Cell { note: cores, title: format!("process {}: {}", rank.pid, rank.program), ..text(rank.host.clone()) },
            Cell { note: inside, title: why.into(), class: if why.is_empty() { "" } else { "warn" }, ..text(state) },
            value(rank.seconds, words::seconds),
            value(rank.computing(), words::seconds),
            reading(&rank.split.transfer, words::seconds),
            reading(&rank.split.wait, words::seconds),
            reading(&wait, words::percent),
            reading(&rank.stopped, words::seconds),
            reading(&rank.run_delay, words::seconds),
            reading(&rank.stolen, words::seconds),
            count(rank.calls),
            count(rank.messages),
            value(rank.bytes as f64, words::bytes),
            reading(&rank.softirq, words::seconds),
            reading(&rank.involuntary.clone().map(|n| n as f64), |n| count::grouped(n as u64)),
        ];
        if stalls {
            let stall = rank.outside.stall().filter(|_| rank.stalls());
            let what = stall.map_or(String::new(), |(_, stall)| stall.words().into());
            row.push(Cell { note: what, ..reading(&rank.outside.blocked, words::seconds) });
        }
        row
    });
    Table { left_out: left_out(summary.ranks.len(), ROWS, "ranks", ""), ..Table::new("ranks", "Ranks", heads, rows) }
}

pub fn cores(summary: &Summary) -> Table {
    let mut heads = vec![
        word("Core"),
        word("Ranks"),
        head("Busy", "share of the time that it was not idle"),
        head("NET_RX", "receiving network softirqs"),
        head("NET_RX time", ""),
        head("NET_TX", "sending network softirqs"),
        head("NET_TX time", ""),
        head("Interrupts", ""),
        head("Wait", "of its ranks, share of their time"),
        head("Energy", "of its package while the job ran"),
    ];
    let is_told = !summary.capability.is_empty();
    if is_told {
        heads.push(head("Taken", "share of the time that others than the ranks had it"));
    }
    let joules = |joules: f64| number::scaled(joules, &[(1.0, "J"), (1e3, "kJ"), (1e6, "MJ")]);
    let row = |(place, core): (usize, &crate::summary::CoreSummary)| {
        let mut row = vec![
            Cell { sort: place.to_string(), ..text(cores::name(summary, core)) },
            text(cores::ranks(summary, core)),
            reading(&core.busy, words::percent),
            reading(&core.softirq_rx, words::amount),
            reading(&core.softirq_rx_seconds, words::seconds),
            reading(&core.softirq_tx, words::amount),
            reading(&core.softirq_tx_seconds, words::seconds),
            reading(&core.interrupts, words::amount),
            reading(&core.wait_share, words::percent),
            reading(&core.energy, joules),
        ];
        if is_told {
            let of_core = |of: &&machine::CoreCapability| of.host == core.host && of.core.0 == core.core;
            let taken = summary.capability.iter().find(of_core).map(|of| of.taken.clone());
            row.push(reading(&taken.unwrap_or_else(|| Reading::absent("it was not looked at")), words::percent));
        }
        row
    };
    Table {
        left_out: left_out(summary.cores.len(), ROWS, "cores", ""),
        ..Table::new("cores", "Cores", heads, summary.cores.iter().enumerate().take(ROWS).map(row))
    }
}

pub fn phases(summary: &Summary) -> Table {
    let heads = vec![word("Phase"), head("From", "since the start"), head("To", "since the start"), head("Length", "")];
    let row = |phase: &crate::summary::PhaseSummary| {
        let world = if summary.job.worlds > 1 { format!("world {}", phase.world) } else { String::new() };
        vec![
            Cell { note: world, sort: phase.level.to_string(), ..text(format!("level {}", phase.level)) },
            value(phase.from, words::seconds),
            value(phase.to, words::seconds),
            value(phase.to - phase.from, words::seconds),
        ]
    };
    Table {
        left_out: left_out(summary.phases.len(), ROWS, "phases", ""),
        ..Table::new("phases", "Phases", heads, summary.phases.iter().take(ROWS).map(row))
    }
}

/// What stands above the table of power.
pub const POWER: &str = "What sensors told, of the time that their samples cover; gaps are in the JSON with their cause. \
    A sensor within another has its energy in that one's too.";

pub fn power(summary: &Summary) -> Table {
    let heads = vec![
        word("Sensor"),
        word("Time"),
        head("Energy", "of the covered time"),
        head("Error", "how far that may be off"),
        head("Mean power", ""),
        head("Above floor", "energy above the lowest second of the recording"),
        head("Covered", "share of the time that samples tell of"),
    ];
    let joules = |joules: f64| machine::Joules(joules).to_string();
    let rows = summary.power.iter().flat_map(|sensor| {
        sensor.spans.iter().map(move |span| {
            let phase = span.phase.and_then(|place| summary.phases.get(place));
            let what = phase.map_or_else(|| span.what.clone(), |phase| format!("phase, level {}", phase.level));
            let within = sensor.within.as_ref().map_or_else(String::new, |within| format!(", within {within}"));
            vec![
                Cell { note: format!("{}, {}{within}", sensor.host, sensor.covers), ..text(sensor.sensor.clone()) },
                text(what),
                reading(&span.joules, joules),
                reading(&span.error, joules),
                reading(&span.watts, |watts| machine::Watts(watts).to_string()),
                reading(&span.above, joules),
                value(span.coverage, words::percent),
            ]
        })
    });
    let all = summary.power.iter().map(|sensor| sensor.spans.len()).sum();
    Table { left_out: left_out(all, ROWS, "times", ""), ..Table::new("power", "Power", heads, rows.take(ROWS)) }
}

/// The reasons of all readings that are not there, each once.
pub fn absences(summary: &Summary) -> Vec<String> {
    let mut absences = chart::Absences::default();
    let mut add = |what: &str, why: Option<String>| {
        if let Some(why) = why {
            absences.add(what, why);
        }
    };
    for rank in &summary.ranks {
        add("cores of ranks", number::why_missing(&rank.cores));
        add("softirq time of ranks", number::why_missing(&rank.softirq));
        add("involuntary switches of ranks", number::why_missing(&rank.involuntary));
        add("time that ranks were stopped", number::why_missing(&rank.stopped));
        add("time that ranks were runnable without a core", number::why_missing(&rank.run_delay));
        add("time stolen from ranks", number::why_missing(&rank.stolen));
        add("transfer of ranks", number::why_missing(&rank.split.transfer));
        add("wait of ranks", number::why_missing(&rank.split.wait));
    }
    for core in &summary.cores {
        let readings = [
            ("busy share of cores", &core.busy),
            ("NET_RX of cores", &core.softirq_rx),
            ("NET_RX time of cores", &core.softirq_rx_seconds),
            ("NET_TX of cores", &core.softirq_tx),
            ("NET_TX time of cores", &core.softirq_tx_seconds),
            ("interrupts of cores", &core.interrupts),
            ("wait of a core's ranks", &core.wait_share),
            ("energy", &core.energy),
        ];
        readings.into_iter().for_each(|(what, reading)| add(what, number::why_missing(reading)));
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
