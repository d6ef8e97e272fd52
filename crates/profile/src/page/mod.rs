//! The profile as one self-contained HTML page: no network, no font. Its script only sorts tables, zooms and reads values
//! out; without the script the page has the same contents.

mod cores;
mod functions;
mod heat;
mod matrix;
mod moments;
mod part;
mod plot;
mod ranks;
mod rows;
mod sizes;
mod tables;

use askama::Template;
use chart::page::{Page, Script};
use chart::{Section, clock, number};
use machine::{Nanoseconds, Reading, count};

use self::tables::Table;
use crate::summary::{State, Summary};
use crate::terminal::NOT_COUNTED;
use crate::verdict::{Answer, Hindrance, Judgement};
use crate::words;

const SCRIPT: &str = include_str!("../../templates/profile.js");

pub fn render(summary: &Summary) -> String {
    let job = &summary.job;
    let command = machine::shell::words(&job.command);
    let mut head_line = vec![ranks_on_hosts(summary)];
    head_line.extend(job.libraries.iter().map(|library| first_words(library)));
    if job.started > 0 {
        head_line.push(clock::date(Nanoseconds(job.started)));
    }
    if let Some(seconds) = job.seconds {
        head_line.push(format!("took {}", words::seconds(seconds)));
    }
    Page {
        title: &format!("Profile of {}", if command.is_empty() { "an MPI program" } else { &command }),
        command: &command,
        head_line,
        style: include_str!("../../templates/profile.css"),
        body: Body::of(summary).to_string(),
        script: Some(Script { text: SCRIPT, does: "sorts, zooms and reads out" }),
    }
    .render()
}

#[derive(Template)]
#[template(path = "profile.html")]
struct Body {
    sentence: String,
    hindrances: Vec<Hindrance>,
    program: Vec<String>,
    warnings: Vec<String>,
    judgements: Vec<JudgementRow>,
    tiles: Vec<Tile>,
    sections: Vec<Section>,
    tables: Vec<TableSection>,
    how: Vec<Fact>,
    absences: Vec<String>,
}

struct JudgementRow {
    choice: String,
    answer: &'static str,
    class: &'static str,
    gain: String,
    why: Vec<String>,
    next: Option<String>,
}

/// A figure of the whole run.
struct Tile {
    name: &'static str,
    value: String,
    note: String,
}

struct Fact {
    name: &'static str,
    value: String,
}

struct TableSection {
    title: &'static str,
    lead: String,
    /// Whether the table is folded until it is opened, as long tables are.
    folded: bool,
    table: Table,
}

impl Body {
    fn of(summary: &Summary) -> Body {
        let verdict = summary.verdict.as_ref();
        Body {
            sentence: verdict.map_or_else(|| where_time_went(summary), |verdict| verdict.sentence.clone()),
            hindrances: verdict.map_or_else(Vec::new, |verdict| verdict.hindrances.clone()),
            program: verdict.map_or_else(Vec::new, |verdict| verdict.program.clone()),
            warnings: warnings(summary),
            judgements: verdict.map_or_else(Vec::new, |verdict| verdict.judgements.iter().map(judgement).collect()),
            tiles: tiles(summary),
            sections: sections(summary),
            tables: table_sections(summary),
            how: how(summary),
            absences: tables::absences(summary),
        }
    }
}

/// A short name of a library: its first line up to a comma or tab, at most 60 characters. Libraries name themselves at
/// length, as `MPICH Version: 4.0.2 MPICH Release date: ...`.
fn first_words(library: &str) -> String {
    let line = library.lines().next().unwrap_or_default();
    let line = line.split([',', '\t']).next().unwrap_or_default().trim();
    line.chars().take(60).collect()
}

fn ranks_on_hosts(summary: &Summary) -> String {
    let job = &summary.job;
    let ranks = match job.ranks == job.expected {
        true => count::of(job.ranks as u64, "rank"),
        false => format!("{} of {}", job.ranks, count::of(job.expected as u64, "rank")),
    };
    match job.hosts.as_slice() {
        [] => ranks,
        [one] => format!("{ranks} on {}", one.name),
        many => format!("{ranks} on {}", count::of(many.len() as u64, "host")),
    }
}

/// The first sentence of a page without a verdict.
fn where_time_went(summary: &Summary) -> String {
    let totals = &summary.totals;
    if summary.ranks.is_empty() {
        return "No rank was recorded: this program made no MPI call that the profiler saw.".into();
    }
    if totals.thread_seconds <= 0.0 {
        return format!("{} were recorded, none of them for long enough to tell anything.", ranks_on_hosts(summary));
    }
    let share = |seconds: f64| words::percent(seconds / totals.thread_seconds);
    let [transfer, wait, ..] = ranks::divided(totals.mpi, &totals.split);
    let split = match (&totals.split.transfer, &totals.split.wait) {
        (Reading::Measured(_) | Reading::Modelled(_), Reading::Measured(_) | Reading::Modelled(_)) => {
            let how = if matches!(totals.split.wait, Reading::Modelled(_)) { " (modelled)" } else { "" };
            format!(": {} waiting, {} transferring{how}", share(wait), share(transfer))
        }
        _ => String::new(),
    };
    let them = count::either(summary.ranks.len() as u64, "The rank", "The ranks");
    format!("{them} spent {} of the time in MPI{split}.", words::percent(totals.mpi_share))
}

/// Reasons to doubt the figures: delays, failures of the command or of ranks, notes.
fn warnings(summary: &Summary) -> Vec<String> {
    let job = &summary.job;
    let mut warnings: Vec<String> = job.perturbed.iter().cloned().collect();
    if let Some(signal) = job.signal {
        warnings.push(format!("the command was ended by signal {signal}"));
    }
    if let Some(code) = job.exit_code.filter(|code| *code != 0) {
        warnings.push(format!("the command ended with exit code {code}"));
    }
    let count = |state| summary.ranks.iter().filter(|rank| rank.state == state).count();
    for (state, what) in [
        (State::Killed, "was killed: its figures end with the last moment noted"),
        (State::Aborted, "called MPI_Abort"),
        (State::Exited, "ended without MPI_Finalize"),
        (State::Running, "still ran when this was written"),
    ] {
        let ranks = count(state);
        if ranks > 0 {
            let of: Vec<u32> = summary.ranks.iter().filter(|r| r.state == state).map(|r| r.rank).take(512).collect();
            let name = count::either(ranks as u64, "rank", "ranks");
            let each = count::either(ranks as u64, "", "each ");
            warnings.push(format!("{name} {}: {each}{what}", words::runs(of)));
        }
    }
    warnings.extend(job.notes.iter().cloned());
    warnings
}

fn judgement(of: &Judgement) -> JudgementRow {
    let (answer, class) = match of.answer {
        Answer::Gains => ("gains", "gains"),
        Answer::DoesNot => ("does not gain", "does-not"),
        Answer::CannotTell => ("cannot tell", "untold"),
    };
    let name = of.choice.to_string();
    let mut letters = name.chars();
    let choice = letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect());
    let gain = of.gain_in_words();
    JudgementRow { choice, answer, class, gain, why: of.why.clone(), next: of.next.clone() }
}

fn tiles(summary: &Summary) -> Vec<Tile> {
    let totals = &summary.totals;
    if summary.ranks.is_empty() {
        return vec![];
    }
    let of_time = |seconds: f64| match totals.thread_seconds > 0.0 {
        true => words::percent(seconds / totals.thread_seconds),
        false => "no time".into(),
    };
    // Undivided time may be transfer or wait.
    let unsure = totals.split.undivided / totals.thread_seconds;
    let of_part = |seconds: f64| match unsure.is_finite() && unsure >= 0.05 {
        true => {
            let least = 100.0 * seconds / totals.thread_seconds;
            format!("{least:.0} to {:.0} %", least + 100.0 * unsure)
        }
        false => of_time(seconds),
    };
    let split = |reading: &Reading<f64>| match reading {
        Reading::Measured(value) => (of_part(*value), "measured".to_string()),
        Reading::Modelled(value) => (of_part(*value), "modelled".into()),
        missing => ("not known".into(), number::why_missing(missing).unwrap_or_default()),
    };
    let (wait, wait_how) = split(&totals.split.wait);
    let (transfer, transfer_how) = split(&totals.split.transfer);
    let rate = |of: f64| match totals.seconds > 0.0 {
        true => format!("{} a second", words::amount(of / totals.seconds)),
        false => String::new(),
    };
    let sizes = match sizes::median(&summary.sizes) {
        Some(floor) if floor > 0 => {
            format!("{}, half of them under {}", rate(totals.messages as f64), words::bytes(2.0 * floor as f64))
        }
        _ => rate(totals.messages as f64),
    };
    let tile = |name, value: String, note: String| Tile { name, value, note };
    vec![
        tile("time", words::seconds(totals.seconds), "MPI_Init to MPI_Finalize, longest rank".into()),
        tile("in MPI", words::percent(totals.mpi_share), "of the ranks' time".into()),
        tile("waiting", wait, format!("of the ranks' time, {wait_how}")),
        tile("transferring", transfer, format!("of the ranks' time, {transfer_how}")),
        tile(
            "MPI calls",
            words::amount(totals.calls as f64),
            format!("{} a second", words::amount(totals.calls_per_second)),
        ),
        tile("messages", words::amount(totals.messages as f64), sizes),
        tile(
            "bytes sent",
            words::bytes(totals.bytes as f64),
            match totals.seconds > 0.0 {
                true => format!("{} a second", words::bytes(totals.bytes as f64 / totals.seconds)),
                false => String::new(),
            },
        ),
    ]
}

fn sections(summary: &Summary) -> Vec<Section> {
    let section = |id: &str, title: &str, lead: &str, figures| {
        let (id, title, lead) = (id.into(), title.into(), lead.into());
        Section { id, title, lead, figures }
    };
    let mut who = matrix::figures(summary);
    who.extend(sizes::figures(summary));
    let mut sections = vec![
        section(
            "time",
            "Where the time went",
            "One column a rank. Point at anything for its figures.",
            ranks::figures(summary),
        ),
        section("calls", "Which calls take it", "", functions::figures(summary)),
        section("messages", "Who sends what to whom", "", who),
        section("network", "The network's work on the cores", "", cores::figures(summary)),
        section("moments", "Over time", "", moments::figures(summary)),
    ];
    sections.retain(|section| !section.figures.is_empty());
    sections
}

/// The critical path in words, with the source of its message costs.
fn critical(summary: &Summary) -> String {
    let Some(path) = &summary.critical else { return String::new() };
    let share = |part: f64| words::percent(if path.seconds > 0.0 { part / path.seconds } else { 0.0 });
    let mut said = format!(
        " The critical path, of what was waited for, took {}: {} of it outside of MPI",
        words::seconds(path.seconds),
        share(path.compute)
    );
    if path.elsewhere > 0.0 {
        said += &format!(", {} in calls of which it is not known where they were made", share(path.elsewhere));
    }
    said += &match &path.costs {
        Some(way) => format!(". Messages cost what {way} was measured to cost."),
        None => {
            ". What messages cost was not measured: what they take counts as time of the call that waits for them. \
                 plimsoll calibrate measures it."
                .to_owned()
        }
    };
    said
}

fn table_sections(summary: &Summary) -> Vec<TableSection> {
    let mut sections = Vec::new();
    let mut add = |title, lead: &str, folded, table: Table| {
        if !table.rows.is_empty() {
            sections.push(TableSection { title, lead: lead.into(), folded, table });
        }
    };
    add(
        "Where in the source",
        &format!("Calls of MPI by the place that makes them, merged over ranks.{}", critical(summary)),
        false,
        tables::sites(summary),
    );
    let uncounted = summary.functions.iter().any(|function| !function.counted);
    let lead = match uncounted {
        true => {
            "An m marks what is modelled. MPI_Init and MPI_Finalize are listed, but are no part of any share or total."
        }
        false => "An m marks what is modelled.",
    };
    add("Every MPI call", lead, false, tables::functions(summary));
    add("Phases", "Between calls of MPI_Pcontrol, as the first rank made them.", false, tables::phases(summary));
    if !summary.power.is_empty() {
        add("Power", tables::POWER, false, tables::power(summary));
    }
    add("Every rank", "An m marks what is modelled, not measured.", summary.ranks.len() > 16, tables::ranks(summary));
    add("Every core", "An m marks what is modelled, not measured.", summary.cores.len() > 16, tables::cores(summary));
    sections
}

fn how(summary: &Summary) -> Vec<Fact> {
    let job = &summary.job;
    let totals = &summary.totals;
    let mut how = Vec::new();
    let mut add = |name, value: String| how.push(Fact { name, value });
    if !job.command.is_empty() {
        add("Command", machine::shell::words(&job.command));
    }
    for library in &job.libraries {
        add("MPI library", library.trim().to_string());
    }
    for host in job.hosts.iter().take(64) {
        let cores = number::reading(&host.cores, |cores| count::of((*cores).into(), "core"));
        add("Host", format!("{}: {}, {cores}", host.name, count::of(host.ranks as u64, "rank")));
    }
    if job.hosts.len() > 64 {
        add("Host", format!("{} more", job.hosts.len() - 64));
    }
    let how_divided = ranks::how_divided(summary);
    add("Transfer and wait", how_divided.trim_start_matches("Transfer and wait: ").into());
    add(
        "Cost of recording",
        match totals.recording.value() {
            None => number::why_missing(&totals.recording).unwrap_or_default(),
            Some(each) if totals.thread_seconds > 0.0 => format!(
                "{} a call, {} of the ranks' time",
                words::seconds(*each),
                words::percent(each * totals.calls as f64 / totals.thread_seconds)
            ),
            Some(each) => format!("{} a call", words::seconds(*each)),
        },
    );
    add("Not counted", NOT_COUNTED.into());
    add(
        "Complete",
        match job.complete {
            true => "every rank is there and finalized, and nothing of it was dropped".into(),
            false => "no: see the notes at the top".into(),
        },
    );
    how
}
