//! A trial with all its runs, for programs (JSON, CSV) and for a text (Markdown).

use machine::costs::Interval;
use machine::{Nanoseconds, Probe};
use rounds::clocks::Clocks;
use rounds::contrast::Verdict;
use rounds::estimate::Estimate;
use serde::Serialize;

use super::conditions::Conditions;
use super::design::letter;
use super::judgement::{Judgement, Standing};
use super::spread::Spread;
use super::store::Trial;
use super::words::{self, Figures};
use super::{Run, Runs};
use crate::designs::Designed;

/// File format of an exported trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The trial, its arms and their runs.
    Json,
    /// A row for each run.
    Csv,
    /// A table of the arms and one of the runs.
    Markdown,
}

/// The trial in `format`.
pub fn render(format: Format, trial: &Trial, runs: &Runs, judgement: &Judgement) -> String {
    match format {
        Format::Json => json(trial, runs, judgement),
        Format::Csv => csv(trial, runs),
        Format::Markdown => markdown(trial, runs, judgement),
    }
}

/// All runs with their arms, by time of start.
fn in_order(runs: &Runs) -> Vec<(usize, &Run)> {
    let mut all: Vec<(usize, &Run)> =
        runs.done.iter().enumerate().flat_map(|(arm, done)| done.iter().map(move |run| (arm, run))).collect();
    all.sort_by_key(|(_, run)| run.started);
    all
}

fn seconds(time: Nanoseconds) -> f64 {
    time.0 as f64 / 1e9
}

/// CPU time in user space.
fn user(run: &Run) -> Option<Nanoseconds> {
    Some(Nanoseconds(run.cpu?.0.saturating_sub(run.system?.0)))
}

fn picoseconds(probe: Option<Probe>) -> Option<u64> {
    probe.map(|probe| probe.half_round_trip_ps)
}

#[derive(Serialize)]
struct Exported<'a> {
    trial: i64,
    design_hash: String,
    seed: u64,
    started_ns: u64,
    finished_ns: Option<u64>,
    spent_seconds: f64,
    metric: String,
    more_is_better: bool,
    margin: f64,
    warmup: u32,
    folder: &'a str,
    conditions: &'a Conditions,
    answer: String,
    /// The arm to run, where it is not the first.
    chosen: Option<char>,
    arms: Vec<ExportedArm<'a>>,
    runs: Vec<ExportedRun<'a>>,
}

#[derive(Serialize)]
struct ExportedArm<'a> {
    arm: char,
    name: &'a str,
    line: &'a str,
    command: &'a [String],
    variables: &'a [(String, String)],
    says: &'static str,
    answer: String,
    rounds_compared: usize,
    /// Performance over the first arm's: above 1 is better.
    over_first: Option<Interval>,
    mean: Option<f64>,
    standard_deviation: Option<f64>,
    minimum: Option<f64>,
    maximum: Option<f64>,
    median: Option<f64>,
    failures: &'a [String],
}

#[derive(Serialize)]
struct ExportedRun<'a> {
    index: usize,
    arm: char,
    /// From 0; null for a warm-up run.
    round: Option<u32>,
    place: u32,
    started_ns: u64,
    seconds: f64,
    value: f64,
    exit_status: Option<u8>,
    user_seconds: Option<f64>,
    system_seconds: Option<f64>,
    cpu_seconds: Option<f64>,
    probe_before_ps: Option<u64>,
    probe_after_ps: Option<u64>,
    clocks_before_hz: &'a Clocks,
    clocks_after_hz: &'a Clocks,
}

fn says(arm: usize, standing: &Standing) -> &'static str {
    match standing.says {
        _ if standing.left_out.is_some() => "left-out",
        _ if arm == 0 => "first",
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Either => "either",
        Verdict::CannotTell => "cannot-tell",
    }
}

fn json(trial: &Trial, runs: &Runs, judgement: &Judgement) -> String {
    let design = &trial.design;
    let interval = |of: Estimate| of.exp().interval();
    let arms = design.arms.iter().zip(&judgement.arms).enumerate().map(|(arm, (of, standing))| {
        let spread = standing.spread;
        let figure = |of: fn(Spread) -> f64| spread.map(of);
        ExportedArm {
            arm: letter(arm),
            name: &of.name,
            line: &of.line,
            command: &of.command,
            variables: &of.variables,
            says: says(arm, standing),
            answer: words::answer(design, judgement, arm),
            rounds_compared: standing.rounds,
            over_first: standing.told().map(interval),
            mean: figure(|spread| spread.mean),
            standard_deviation: spread.and_then(|spread| spread.deviation),
            minimum: figure(|spread| spread.least),
            maximum: figure(|spread| spread.most),
            median: figure(|spread| spread.median),
            failures: &runs.failed[arm],
        }
    });
    let every = in_order(runs).into_iter().enumerate().map(|(index, (arm, run))| ExportedRun {
        index,
        arm: letter(arm),
        round: run.round,
        place: run.place,
        started_ns: run.started.0,
        seconds: seconds(run.elapsed),
        value: run.value,
        exit_status: run.status,
        user_seconds: user(run).map(seconds),
        system_seconds: run.system.map(seconds),
        cpu_seconds: run.cpu.map(seconds),
        probe_before_ps: picoseconds(run.probes[0]),
        probe_after_ps: picoseconds(run.probes[1]),
        clocks_before_hz: &run.clocks[0],
        clocks_after_hz: &run.clocks[1],
    });
    let exported = Exported {
        trial: trial.id,
        design_hash: design.hash(),
        seed: trial.seed,
        started_ns: trial.started.0,
        finished_ns: trial.finished.map(|finished| finished.0),
        spent_seconds: seconds(runs.spent),
        metric: design.merit.name(),
        more_is_better: design.merit.more_is_better,
        margin: design.margin,
        warmup: design.warmup,
        folder: &design.folder,
        conditions: &design.conditions,
        answer: words::verdict(design, judgement),
        chosen: words::chosen(judgement).map(letter),
        arms: arms.collect(),
        runs: every.collect(),
    };
    serde_json::to_string_pretty(&exported).expect("own types always serialize") + "\n"
}

const COLUMNS: [&str; 16] = [
    "index",
    "arm",
    "name",
    "round",
    "place",
    "started_ns",
    "seconds",
    "value",
    "exit_status",
    "user_seconds",
    "system_seconds",
    "cpu_seconds",
    "probe_before_ps",
    "probe_after_ps",
    "clocks_before_hz",
    "clocks_after_hz",
];

fn csv(trial: &Trial, runs: &Runs) -> String {
    const WHOLE: &str = "memory takes every row";
    let mut text = Vec::<u8>::new();
    let mut writer = csv::Writer::from_writer(&mut text);
    writer.write_record(COLUMNS).expect(WHOLE);
    for (index, (arm, run)) in in_order(runs).into_iter().enumerate() {
        let time = |time: Option<Nanoseconds>| time.map_or(String::new(), |time| seconds(time).to_string());
        let whole = |number: Option<u64>| number.map_or(String::new(), |number| number.to_string());
        let clocks = |clocks: &Clocks| {
            clocks.iter().map(|(core, clock)| format!("{}:{}", core.0, clock.0)).collect::<Vec<_>>().join(" ")
        };
        let row = [
            index.to_string(),
            letter(arm).to_string(),
            trial.design.arms[arm].name.clone(),
            whole(run.round.map(u64::from)),
            run.place.to_string(),
            run.started.0.to_string(),
            seconds(run.elapsed).to_string(),
            run.value.to_string(),
            whole(run.status.map(u64::from)),
            time(user(run)),
            time(run.system),
            time(run.cpu),
            whole(picoseconds(run.probes[0])),
            whole(picoseconds(run.probes[1])),
            clocks(&run.clocks[0]),
            clocks(&run.clocks[1]),
        ];
        writer.write_record(row).expect(WHOLE);
    }
    writer.flush().expect(WHOLE);
    drop(writer);
    String::from_utf8_lossy(&text).into_owned()
}

fn markdown(trial: &Trial, runs: &Runs, judgement: &Judgement) -> String {
    let design = &trial.design;
    let mut text = format!("{}\n\n", cell(&words::verdict(design, judgement)));
    text += &format!("| Arm | Command | {}: mean | Min | Max | Median | Over A |\n", cell(&design.merit.name()));
    text += "|---|---|---:|---:|---:|---:|---|\n";
    for (arm, of) in design.arms.iter().enumerate() {
        let Figures { mean, least, most, median } = Figures::of(design, judgement.arms[arm].spread.as_ref());
        let (line, answer) = (cell(&of.line), cell(&words::answer(design, judgement, arm)));
        text += &format!("| {} | {line} | {mean} | {least} | {most} | {median} | {answer} |\n", letter(arm));
    }
    text += "\n| Run | Arm | Round | Wall [s] | Value | Exit status | User [s] | System [s] |\n";
    text += "|---:|---|---:|---:|---:|---:|---:|---:|\n";
    for (index, (arm, run)) in in_order(runs).into_iter().enumerate() {
        let round = run.round.map_or("warm-up".to_owned(), |round| (round + 1).to_string());
        let time = |time: Option<Nanoseconds>| time.map_or(String::new(), |time| seconds(time).to_string());
        let status = run.status.map_or(String::new(), |status| status.to_string());
        text += &format!(
            "| {index} | {} | {round} | {} | {} | {status} | {} | {} |\n",
            letter(arm),
            seconds(run.elapsed),
            run.value,
            time(user(run)),
            time(run.system)
        );
    }
    text
}

/// Text escaped for one cell of a table.
fn cell(text: &str) -> String {
    let mut cell = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' => cell.push(' '),
            '\\' | '|' | '`' | '*' | '_' | '<' | '>' | '[' | ']' => cell.extend(['\\', c]),
            c => cell.push(c),
        }
    }
    cell
}
