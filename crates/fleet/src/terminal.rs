//! Sums of jobs in words.

use std::fmt::Write;

use crate::summary::Lever;
use crate::totals::{Part, Totals};

/// Watts of a busy core, for energy.
pub type Watts = Option<f64>;

/// The answer first, then what it is made of.
pub fn render(of: &Totals, watts: Watts) -> String {
    let mut text = String::new();
    let put = |text: &mut String, line: String| _ = writeln!(text, "{line}");
    for line in answer(of, watts) {
        put(&mut text, line);
    }
    if of.jobs == 0 {
        return text;
    }
    table(&mut text, "programs by what the best lever would save", &of.programs);
    table(&mut text, &format!("by {}", of.by), &of.groups);
    text
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
    for saving in &of.savings {
        let (low, high) = saving.share;
        let energy = watts.map_or(String::new(), |watts| {
            let kwh = |share: f64| hours(share.max(0.0) * of.core_hours * watts / 1000.0);
            format!(", {} .. {} kWh", kwh(low), kwh(high))
        });
        let by = match saving.nine_tenths {
            0 => String::new(),
            1 => "; one program makes up nine tenths".into(),
            many => format!("; {many} programs make up nine tenths"),
        };
        lines.push(format!(
            "{}: {} of the core hours ({} .. {}{energy}){by}.",
            capital(phrase(saving.lever)),
            between(low, high),
            hours(low * of.core_hours),
            hours(high * of.core_hours)
        ));
    }
    for lost in &of.unjudged {
        lines.push(format!("Not judged: {} jobs of {} core hours, {}.", lost.jobs, hours(lost.core_hours), lost.why));
    }
    lines
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
