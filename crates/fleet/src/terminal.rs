//! Sums of jobs in words.

use std::fmt::Write;

use crate::history::{History, Period, Share, Step};
use crate::summary::Lever;
use crate::totals::{Part, Saving, Totals};

/// Rows and versions of a program that a terminal shows, the last ones.
const ROWS: usize = 12;
const VERSIONS: usize = 5;
const STEPS: usize = 3;

/// Watts of a busy core, for energy.
pub type Watts = Option<f64>;

/// The answer first, then what it is made of.
pub fn render(of: &Totals, watts: Watts) -> String {
    let mut text = head(of.label, answer(of, watts));
    if of.jobs == 0 {
        return text;
    }
    table(&mut text, "programs by what the best lever would save", &of.programs);
    table(&mut text, &format!("by {}", of.by), &of.groups);
    text
}

fn head(label: Option<&str>, lines: Vec<String>) -> String {
    let label = label.map(str::to_owned);
    label.into_iter().chain(lines).fold(String::new(), |text, line| text + &line + "\n")
}

/// The sentences at the head of every form.
pub fn answer(of: &Totals, watts: Watts) -> Vec<String> {
    if of.jobs == 0 {
        let of = of.asked.program.as_ref().map_or(String::new(), |program| format!(" of {program}"));
        return vec![format!("No job{of} is in the store. Add summaries: plimsoll fleet add DIR")];
    }
    let months = of.months.as_ref().map_or(String::new(), |(first, last)| match first == last {
        true => format!(" in {first}"),
        false => format!(" from {first} to {last}"),
    });
    let mut lines = vec![format!(
        "{} jobs{months} held {} core hours, {} of them inside MPI.",
        of.jobs,
        hours(of.core_hours),
        percent(of.mpi)
    )];
    lines.extend(of.savings.iter().map(|saving| saved(of, saving, watts)));
    let untold = Lever::ALL.into_iter().filter(|lever| of.savings.iter().all(|saving| saving.lever != *lever));
    let is_told = !of.savings.is_empty();
    lines.extend(untold.filter(|_| is_told).map(|lever| format!("{}: no job tells.", capital(phrase(lever)))));
    for lost in &of.unjudged {
        lines.push(format!("Not judged: {} jobs of {} core hours, {}.", lost.jobs, hours(lost.core_hours), lost.why));
    }
    lines
}

fn saved(of: &Totals, saving: &Saving, watts: Watts) -> String {
    let (low, high) = saving.share;
    let energy = watts.map_or(String::new(), |watts| {
        let kwh = |share: f64| hours(share.max(0.0) * of.core_hours * watts / 1000.0);
        format!(", {} .. {} kWh", kwh(low), kwh(high))
    });
    let by = match saving.nine_tenths {
        _ if of.asked.program.is_some() => String::new(),
        0 => String::new(),
        1 => "; one program makes up nine tenths".into(),
        many => format!("; {many} programs make up nine tenths"),
    };
    let told = saving.judged / of.core_hours;
    let told = if told < 0.9995 { format!("; known for {} of them", percent(told)) } else { String::new() };
    format!(
        "{}: {} of the core hours ({} .. {}{energy}){by}{told}.",
        capital(phrase(saving.lever)),
        between(low, high),
        hours(low * of.core_hours),
        hours(high * of.core_hours)
    )
}

/// A program over time, in less than 30 lines.
pub fn history(of: &History, watts: Watts) -> String {
    let mut text = head(of.label, history_answer(of, watts));
    let period = period(of.by);
    _ = writeln!(
        text,
        "\n{period:10}  {:>7}  {:>10}  {:>6}  {:>7}  {:>24}",
        "jobs", "core hours", "nodes", "in MPI", "waiting"
    );
    for row in last(&of.rows, ROWS) {
        let (mpi, wait) = (row.mpi.map_or("-".into(), percent), row.wait.map_or("-".into(), share));
        let (core_hours, marks) = (hours(row.core_hours), marks(of, &row.name));
        let (name, jobs, nodes) = (&row.name, row.jobs, row.nodes);
        _ = writeln!(text, "{name:10}  {jobs:>7}  {core_hours:>10}  {nodes:>6.1}  {mpi:>7}  {wait:>24}{marks}");
    }
    _ = writeln!(text, "\nversion     {:>7}  {:>10}  first day   last day", "jobs", "core hours");
    for version in last(&of.versions, VERSIONS) {
        let (hash, core_hours) = (short_hash(version.hash.as_deref()), hours(version.core_hours));
        let (jobs, first, last) = (version.jobs, &version.first_day, &version.last_day);
        _ = writeln!(text, "{hash:10}  {jobs:>7}  {core_hours:>10}  {first}  {last}");
    }
    let (rows, versions) = (of.rows.len().saturating_sub(ROWS), of.versions.len().saturating_sub(VERSIONS));
    if rows + versions > 0 {
        _ = writeln!(text, "\nEarlier rows: {rows}. Earlier versions: {versions}. --html and --json have them.");
    }
    text
}

/// The sentences at the head of a program's history.
pub fn history_answer(of: &History, watts: Watts) -> Vec<String> {
    let sums = &of.sums;
    let waiting = of.wait.map_or(String::new(), |wait| format!(", {} waiting", percent(wait.middle)));
    let mut lines = vec![format!(
        "{}: {} jobs from {} to {} held {} core hours, {} of them inside MPI{waiting}.",
        of.program,
        sums.jobs,
        of.first_day,
        of.last_day,
        hours(sums.core_hours),
        percent(sums.mpi)
    )];
    lines.extend(last(&of.steps, STEPS).iter().map(step));
    // A clock is no place.
    let places = sums.savings.iter().filter(|saving| saving.lever != Lever::Clock);
    let best = places.max_by(|a, b| (a.share.0 + a.share.1).total_cmp(&(b.share.0 + b.share.1)));
    lines.extend(best.map(|saving| saved(sums, saving, watts)));
    let lost: u64 = sums.unjudged.iter().map(|lost| lost.jobs).sum();
    if lost > 0 {
        lines.push(format!("Not judged: {lost} jobs."));
    }
    lines
}

fn step(of: &Step) -> String {
    let (low, high) = of.of.change;
    let version =
        of.version.as_ref().map_or(String::new(), |hash| format!(", with version {}", short_hash(Some(hash))));
    format!(
        "From {} on{version}, it waits {} of its time, {} before ({:+.1} .. {:+.1} points; medians over users' days).",
        of.day,
        percent(of.of.after),
        percent(of.of.before),
        100.0 * low,
        100.0 * high
    )
}

/// What is written beside a row in which there is a step.
pub fn marks(of: &History, row: &str) -> String {
    let steps = of.steps.iter().filter(|step| step.row == row);
    steps.fold(String::new(), |text, step| {
        format!("{text}  step on {}: {:+.1} points", step.day, 100.0 * (step.of.after - step.of.before))
    })
}

pub fn period(of: Period) -> &'static str {
    match of {
        Period::Month => "month",
        Period::Week => "week",
    }
}

/// The first digits of a version's hash, which tell a program's versions apart.
pub fn short_hash(of: Option<&str>) -> String {
    of.map_or("unreadable".into(), |hash| hash.chars().take(8).collect())
}

pub fn share(of: Share) -> String {
    let interval = of.interval.map_or(String::new(), |(low, high)| format!(" ({})", between(low, high)));
    percent(of.middle) + &interval
}

fn last<T>(of: &[T], most: usize) -> &[T] {
    &of[of.len().saturating_sub(most)..]
}

pub fn phrase(lever: Lever) -> &'static str {
    match lever {
        Lever::Offload => "an adapter that does the work of messages would save",
        Lever::DedicatedCore => "a core of its own for the work of messages would save",
        Lever::Mapping => "other cores for the ranks would save",
        Lever::Clock => "clocks 10 % higher would save",
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

pub fn between(low: f64, high: f64) -> String {
    format!("{:.1} .. {:.1} %", 100.0 * low, 100.0 * high)
}

pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Hours, or other amounts, in three digits.
pub fn hours(amount: f64) -> String {
    match amount.abs() {
        1e6.. => format!("{:.2} M", amount / 1e6),
        1e3.. => format!("{:.1} k", amount / 1e3),
        10.0.. => format!("{amount:.0}"),
        _ => format!("{amount:.1}"),
    }
}

fn table(text: &mut String, title: &str, parts: &[Part]) {
    let wide = parts.iter().map(|part| part.name.chars().count()).max().unwrap_or(0).max(4);
    _ = writeln!(text, "\n{title}\n{:wide$}  {:>9}  {:>10}  {:>7}  best lever", "name", "jobs", "core hours", "in MPI");
    for part in parts {
        let best =
            part.best.map_or("not judged".into(), |(lever, (low, high))| format!("{lever}: {}", between(low, high)));
        let (name, hours, mpi) = (&part.name, hours(part.core_hours), percent(part.mpi));
        _ = writeln!(text, "{name:wide$}  {:>9}  {hours:>10}  {mpi:>7}  {best}", part.jobs);
    }
}
