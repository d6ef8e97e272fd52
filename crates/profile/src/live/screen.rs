//! A look as lines of text: on a terminal as many as fit, in a file all of them.

use machine::{Nanoseconds, count};

use super::{CoreNow, FunctionNow, JobState, Look, RankNow, RankState};
use crate::printable::printable;
use crate::summary::Stall;
use crate::words;

machine::named! {
    /// Sort key of the ranks.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Sort {
        Rank = "rank",
        Wait = "wait",
        Mpi = "MPI",
        Calls = "calls/s",
        Bytes = "bytes/s",
        /// Who is in one call for longest.
        Since = "time in a call",
    }
}

impl Sort {
    pub fn next(self) -> Sort {
        let place = Sort::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Sort::ALL[(place + 1) % Sort::ALL.len()]
    }
}

/// Rows and columns of a terminal, and the position in the list.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub columns: usize,
    /// `None`: as many as there are.
    pub rows: Option<usize>,
    pub sort: Sort,
    /// Ranks above the first one shown.
    pub scroll: usize,
    pub colour: bool,
}

/// Functions and cores of one look, where there is room.
const FUNCTIONS: usize = 12;
const CORES: usize = 32;

const BOLD: &str = "\x1b[1m";
const QUIET: &str = "\x1b[2m";
const WARN: &str = "\x1b[1;33m";
const PLAIN: &str = "\x1b[0m";

/// A table's columns: head, and whether the column is numeric.
type Heads = [(&'static str, bool)];

/// Lines without their ends; none is wider than the window.
pub fn lines(look: &Look, window: Window) -> Vec<String> {
    let mut out = Vec::new();
    let styled = |style: &str, line: String| match window.colour {
        true if !style.is_empty() => format!("{style}{}{PLAIN}", cut(&line, window.columns)),
        _ => cut(&line, window.columns),
    };
    out.push(styled(BOLD, title(look)));
    out.push(styled("", totals(look)));
    for note in look.notes.iter().take(3) {
        out.push(styled(WARN, note.clone()));
    }
    out.push(String::new());

    let functions = table(&FUNCTION_HEADS, look.functions.iter().take(FUNCTIONS).map(function).collect());
    let mut cores: Vec<&CoreNow> = look.cores.iter().collect();
    if cores.len() > CORES {
        cores.sort_by(|a, b| b.softirqs.unwrap_or(0.0).total_cmp(&a.softirqs.unwrap_or(0.0)));
        cores.truncate(CORES);
        cores.sort_by(|a, b| (&a.host, a.core).cmp(&(&b.host, b.core)));
    }
    let hosts = look.ranks.iter().any(|rank| Some(&rank.host) != look.ranks.first().map(|first| &first.host));
    let cores = table(&CORE_HEADS, cores.into_iter().map(|c| core(look, c, hosts)).collect());
    let worlds = look.ranks.iter().any(|rank| rank.world > 0);
    let order = sorted(look, window.sort);
    let row = |place: &usize| (rank(&look.ranks[*place], worlds), style(&look.ranks[*place]));
    let (rows, styles): (Vec<_>, Vec<_>) = order.iter().map(row).unzip();
    let ranks = table(&RANK_HEADS, rows);

    // Ranks take the rows that the other tables leave, and at least half of the room.
    let room = window.rows.map(|rows| rows.saturating_sub(out.len() + 1));
    let (ranks_room, mut others) = match room {
        None => (ranks.len(), usize::MAX),
        Some(room) => {
            let wanted = section(&functions) + section(&cores);
            let ranks_room = ranks.len().min(room.saturating_sub(wanted).max(room / 2));
            (ranks_room, room - ranks_room)
        }
    };
    let shown = ranks_room.saturating_sub(1).max(1);
    let scroll = window.scroll.min(order.len().saturating_sub(shown));
    if order.is_empty() {
        out.push("no rank has called MPI yet".into());
    } else {
        out.push(styled(QUIET, ranks[0].clone()));
        for place in scroll..(scroll + shown).min(order.len()) {
            out.push(styled(styles[place], ranks[place + 1].clone()));
        }
    }
    for part in [cores, functions] {
        if part.len() > 1 && others > 2 {
            let fits = part.len().min(others - 1);
            out.push(String::new());
            out.push(styled(QUIET, part[0].clone()));
            out.extend(part[1..fits].iter().map(|line| styled("", line.clone())));
            others = others.saturating_sub(fits + 1);
        }
    }
    if let Some(rows) = window.rows {
        out.truncate(rows.saturating_sub(1));
        let more = match order.len() > shown {
            true => format!(" · ranks {} to {} of {}", scroll + 1, (scroll + shown).min(order.len()), order.len()),
            false => String::new(),
        };
        out.push(styled(QUIET, format!("q quit · s sorted by {} · arrows scroll{more}", window.sort.name())));
    }
    out
}

/// Lines of a table with the empty one above it.
fn section(table: &[String]) -> usize {
    if table.len() > 1 { table.len() + 1 } else { 0 }
}

fn title(look: &Look) -> String {
    let job = &look.job;
    let hosts: std::collections::BTreeSet<_> = look.ranks.iter().map(|rank| &rank.host).collect();
    let on = match hosts.len() {
        0 => String::new(),
        1 => format!(" on {}", look.ranks[0].host),
        n => format!(" on {n} hosts"),
    };
    let state = match &job.state {
        JobState::Running => "running".to_string(),
        JobState::Orphaned => "plimsoll profile was killed, or its profile removed; its ranks may go on".into(),
        JobState::Ended { signal: Some(signal), .. } => format!("ended by signal {signal}; this is its last state"),
        JobState::Ended { exit_code: Some(0), .. } => "ended; this is its last state".into(),
        JobState::Ended { exit_code: Some(code), .. } => format!("ended with exit code {code}; this is its last state"),
        JobState::Ended { .. } => "ended; this is its last state".into(),
    };
    let since = chart::clock::date(Nanoseconds(job.started));
    let ranks = count::of(look.ranks.len() as u64, "rank");
    format!("{} · {ranks}{on} · started {since} · {state}", machine::shell::words(&job.command))
}

fn totals(look: &Look) -> String {
    let Some(seconds) = look.seconds else { return "the next look tells rates".into() };
    let sum = |of: fn(&RankNow) -> Option<f64>| look.ranks.iter().filter_map(of).sum::<f64>();
    let mean = |of: fn(&RankNow) -> Option<f64>| {
        let known: Vec<f64> = look.ranks.iter().filter_map(of).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    let mut parts = vec![format!("last {}", words::seconds(seconds))];
    parts.extend(mean(|rank| rank.mpi).map(|share| format!("in MPI {}", words::percent(share))));
    parts.extend(mean(|rank| rank.wait).map(|share| format!("waiting {} (modelled)", words::percent(share))));
    let blocked = mean(|rank| rank.blocked).filter(|share| *share >= 0.005);
    parts.extend(blocked.map(|share| format!("blocked outside MPI {}", words::percent(share))));
    parts.push(format!("{} calls/s", words::amount(sum(|rank| rank.calls))));
    parts.push(format!("{} messages/s", words::amount(sum(|rank| rank.messages))));
    parts.push(format!("{}/s", words::bytes(sum(|rank| rank.bytes))));
    parts.join(" · ")
}

const RANK_HEADS: [(&str, bool); 12] = [
    ("RANK", true),
    ("HOST", false),
    ("PID", true),
    ("CORE", true),
    ("STATE", false),
    ("MPI", true),
    ("WAIT", true),
    ("BLOCKED", true),
    ("CALLS/S", true),
    ("MESSAGES/S", true),
    ("BYTES/S", true),
    ("TAKEN OFF/S", true),
];

const CORE_HEADS: [(&str, bool); 5] =
    [("CORE", false), ("SOFTIRQ", true), ("SOFTIRQS/S", true), ("BUSY", true), ("RANKS", false)];

const FUNCTION_HEADS: [(&str, bool); 4] = [("CALL", false), ("CALLS/S", true), ("OF MPI TIME", true), ("WAIT", true)];

/// An unknown value.
const UNKNOWN: &str = "-";

fn known(value: Option<f64>, write: fn(f64) -> String) -> String {
    value.map_or(UNKNOWN.into(), write)
}

fn rank(rank: &RankNow, worlds: bool) -> Vec<String> {
    let number = match (rank.rank, worlds) {
        (None, _) => UNKNOWN.into(),
        (Some(number), false) => number.to_string(),
        (Some(number), true) => format!("{}:{number}", rank.world),
    };
    let state = match &rank.state {
        RankState::Starting => "starting".into(),
        RankState::Computing => rank.stall.map_or("computing", Stall::words).into(),
        // Too short to read on a screen.
        RankState::Inside { function, seconds: Some(seconds) } if *seconds < 0.05 => format!("in {function}"),
        RankState::Inside { function, seconds: Some(seconds) } => {
            format!("in {function} for {}", words::seconds(*seconds))
        }
        RankState::Inside { function, seconds: None } => format!("in {function}"),
        RankState::Finalized => "finalized".into(),
        RankState::Exited => "exited".into(),
        RankState::Aborted => "aborted".into(),
        RankState::Killed => "killed".into(),
    };
    let state = if rank.threads > 1 { format!("{state} ({} threads)", rank.threads) } else { state };
    vec![
        number,
        rank.host.clone(),
        rank.pid.to_string(),
        rank.core.map_or(UNKNOWN.into(), |core| core.to_string()),
        state,
        known(rank.mpi, words::percent),
        known(rank.wait, words::percent),
        known(rank.blocked, words::percent),
        known(rank.calls, words::amount),
        known(rank.messages, words::amount),
        known(rank.bytes, words::bytes),
        known(rank.involuntary, words::amount),
    ]
}

/// Highlights ranks that hang or were killed.
fn style(rank: &RankNow) -> &'static str {
    match &rank.state {
        RankState::Inside { seconds: Some(seconds), .. } if *seconds >= 1.0 => WARN,
        RankState::Aborted | RankState::Killed => WARN,
        RankState::Finalized | RankState::Exited => QUIET,
        _ => "",
    }
}

fn core(look: &Look, core: &CoreNow, hosts: bool) -> Vec<String> {
    let ranks = words::runs(core.ranks.iter().filter_map(|place| look.ranks.get(*place)?.rank));
    let name = if hosts { format!("{}:{}", core.host, core.core) } else { core.core.to_string() };
    vec![
        name,
        known(core.softirq, words::percent),
        known(core.softirqs, words::amount),
        known(core.busy, words::percent),
        ranks,
    ]
}

fn function(function: &FunctionNow) -> Vec<String> {
    let name = match function.group {
        0 => function.name.clone(),
        group => format!("{}, {}", function.name, count::of(group.into(), "rank")),
    };
    vec![name, words::amount(function.calls), words::percent(function.share), known(function.wait, words::percent)]
}

fn sorted(look: &Look, sort: Sort) -> Vec<usize> {
    let mut order: Vec<usize> = (0..look.ranks.len()).collect();
    let by = |of: fn(&RankNow) -> f64| move |a: &usize, b: &usize| of(&look.ranks[*b]).total_cmp(&of(&look.ranks[*a]));
    match sort {
        Sort::Rank => {}
        Sort::Wait => order.sort_by(by(|rank| rank.wait.unwrap_or(-1.0))),
        Sort::Mpi => order.sort_by(by(|rank| rank.mpi.unwrap_or(-1.0))),
        Sort::Calls => order.sort_by(by(|rank| rank.calls.unwrap_or(-1.0))),
        Sort::Bytes => order.sort_by(by(|rank| rank.bytes.unwrap_or(-1.0))),
        Sort::Since => order.sort_by(by(|rank| match rank.state {
            RankState::Inside { seconds, .. } => seconds.unwrap_or(0.0),
            _ => -1.0,
        })),
    }
    order
}

/// The head, then a line a row; columns are as wide as their widest cell.
fn table(heads: &Heads, rows: Vec<Vec<String>>) -> Vec<String> {
    let head: Vec<String> = heads.iter().map(|(name, _)| (*name).to_string()).collect();
    let all: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| all.iter().filter_map(|row| row.get(column)).map(|c| c.chars().count()).max();
    let widths: Vec<usize> = (0..heads.len()).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(heads).zip(&widths).map(|((cell, (_, number)), width)| match number {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    all.iter().map(line).collect()
}

/// Cuts a line to the width of the window and removes control characters.
fn cut(line: &str, columns: usize) -> String {
    let line = printable(line);
    match line.chars().count() > columns && columns > 0 {
        false => line,
        true => line.chars().take(columns - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::JobNow;

    fn look(ranks: usize) -> Look {
        let rank = |i: usize| RankNow {
            rank: Some(i as u32),
            world: 0,
            host: "node-1".into(),
            pid: 100 + i as u32,
            threads: 1,
            state: match i % 4 {
                0 => RankState::Computing,
                1 => RankState::Inside { function: "MPI_Wait".into(), seconds: Some(3.2) },
                2 => RankState::Inside { function: "MPI_Allreduce".into(), seconds: Some(1e-5) },
                _ => RankState::Killed,
            },
            calls: Some(9600.0 + i as f64),
            mpi: Some(0.4),
            wait: (i != 2).then(|| i as f64 / ranks as f64),
            pause: None,
            blocked: (i % 8 == 4).then_some(0.55),
            stall: (i % 8 == 4).then_some(Stall::Sleep),
            messages: Some(1500.0),
            bytes: Some(5e7),
            partners: vec![],
            core: Some(i as u32 / 2),
            involuntary: None,
        };
        let core = |i: usize| CoreNow {
            host: "node-1".into(),
            core: i as u32,
            softirq: Some(0.12),
            softirqs: Some(7000.0),
            busy: Some(0.97),
            ranks: vec![2 * i, 2 * i + 1],
        };
        let function =
            |name: &str, group| FunctionNow { name: name.into(), group, calls: 4e3, share: 0.5, wait: Some(0.7) };
        Look {
            job: JobNow {
                command: vec!["mpirun".into(), "./halo\x1b[2J".into()],
                folder: "p".into(),
                state: JobState::Running,
                started: 0,
            },
            seconds: Some(1.0),
            ranks: (0..ranks).map(rank).collect(),
            cores: (0..ranks / 2).map(core).collect(),
            functions: vec![function("MPI_Wait", 0), function("MPI_Allreduce", 8)],
            notes: vec![],
        }
    }

    fn window(columns: usize, rows: Option<usize>) -> Window {
        Window { columns, rows, sort: Sort::Rank, scroll: 0, colour: false }
    }

    #[test]
    fn a_file_has_every_rank_and_says_who_hangs() {
        let text = lines(&look(8), window(200, None)).join("\n");
        for said in [
            "asleep outside MPI",
            "55.0 %",
            "BLOCKED",
            "rank",
            "in MPI_Wait for 3.2 s",
            "killed",
            "MPI_Allreduce, 8 ranks",
            "waiting",
            "6-7",
            "9.6 k",
        ] {
            assert!(text.contains(said), "{said} in\n{text}");
        }
        assert!(!text.contains('\x1b') && !text.contains("q quit"), "{text}");
        assert_eq!(text.matches("node-1").count(), 1 + 8, "{text}");
    }

    #[test]
    fn any_window_holds_it() {
        for ranks in [0, 1, 8, 3000] {
            let look = look(ranks);
            for (columns, rows) in [(10, 3), (40, 8), (80, 24), (200, 60), (1, 1)] {
                for scroll in [0, 5, 100_000] {
                    let lines = lines(&look, Window { scroll, ..window(columns, Some(rows)) });
                    assert!(lines.len() <= rows, "{ranks} ranks at {columns} x {rows}: {} lines", lines.len());
                    assert!(lines.iter().all(|line| line.chars().count() <= columns), "{lines:#?}");
                }
            }
        }
        let last = lines(&look(3000), Window { scroll: 100_000, ..window(120, Some(24)) }).join("\n");
        assert!(last.contains("\n2999 ") && last.contains("of 3000"), "{last}");
    }

    #[test]
    fn sorting_brings_the_most_to_the_top() {
        let text = lines(&look(8), Window { sort: Sort::Wait, ..window(200, None) });
        let at = |pid: &str| text.iter().position(|line| line.contains(pid)).unwrap();
        assert!(at(" 107 ") < at(" 106 ") && at(" 100 ") < at(" 102 "), "who is not known is last: {text:#?}");
        let mut sort = Sort::Rank;
        for _ in 0..Sort::ALL.len() {
            sort = sort.next();
        }
        assert_eq!(sort, Sort::Rank);
    }
}
