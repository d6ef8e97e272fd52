//! The analysis on a terminal, below the points' means.

use std::fmt::Write;

use chart::number::digits;

use super::trade::{Front, Knee};
use super::{Analysis, Change, Place};

/// Tables of the analysis; [`crate::campaign::terminal::show`] prints the means of points.
pub fn terminal(analysis: &Analysis) -> String {
    let mut text = String::new();
    for curve in &analysis.trades {
        let _ = writeln!(text, "\n{}, against {}", title(&curve.place, analysis), curve.reference);
        let head = ["clock", "performance lost", "watts saved", "energy for the same work", ""].map(String::from);
        let rows = curve.steps.iter().skip(1).map(|step| {
            [
                step.clock.clone(),
                change(step.lost),
                change(step.saved),
                change(step.energy),
                mark(step.knee, &step.front),
            ]
        });
        table(&mut text, std::iter::once(head).chain(rows).collect());
        if let Some(step) = curve.steps.first().filter(|step| step.knee == Knee::Here) {
            let _ =
                writeln!(text, "  no lower clock saves more watts than it loses performance: stay at {}", step.clock);
        }
    }
    for gain in &analysis.gains {
        let panel = if gain.panel.is_empty() { String::new() } else { format!(", {}", gain.panel) };
        let _ = writeln!(text, "\n{} over {}{panel}", gain.carrier, gain.baseline);
        let head = [scale_name(analysis), clock_name(analysis), "performance gained".into(), "watts saved".into()];
        let rows = gain.steps.iter().map(|step| {
            let word = |of: &Option<String>| of.clone().unwrap_or_else(|| "-".into());
            [word(&step.scale), word(&step.clock), change(step.performance), change(step.power)]
        });
        table(&mut text, std::iter::once(head).chain(rows).collect());
        for trend in &gain.trends {
            let at = trend.at.as_ref().map_or(String::new(), |at| format!(" at {at}"));
            let _ = writeln!(text, "  by {}{at}: {}", trend.by, change(trend.change));
        }
    }
    if let Some(spread) = &analysis.spread {
        let share = |part: usize| 100.0 * part as f64 / spread.points as f64;
        let _ = writeln!(
            text,
            "\nStandard deviation of {}: below 1 % of the mean at {:.0} % of {} points, above 2 % at {:.0} %, {} % at most.",
            analysis.roles.figures[analysis.roles.performance].0,
            share(spread.below_1),
            spread.points,
            share(spread.above_2),
            digits(spread.largest)
        );
    }
    let changes = analysis.trades.iter().flat_map(|curve| &curve.steps).flat_map(|step| [step.lost, step.saved]);
    let changes = changes.chain(analysis.gains.iter().flat_map(|gain| gain.steps.iter().map(|step| step.performance)));
    if changes.flatten().any(|change| change.rounds > 1) {
        let _ = writeln!(
            text,
            "\nIntervals hold for each comparison alone, at 95 %. '*' differs from 0 also when all {} share one error in 20.",
            analysis.comparisons
        );
    }
    for note in &analysis.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// A point in words.
pub(super) fn name(place: &Place, analysis: &Analysis) -> String {
    let roles = &analysis.roles;
    let of = |role: &Option<String>, value: &Option<String>| Some(format!("{} {}", role.as_ref()?, value.as_ref()?));
    let panel = (!place.panel.is_empty()).then(|| place.panel.clone());
    let words =
        [of(&roles.carrier, &place.carrier), panel, of(&roles.scale, &place.scale), of(&roles.clock, &place.clock)];
    let words: Vec<String> = words.into_iter().flatten().collect();
    if words.is_empty() { "all".to_owned() } else { words.join(", ") }
}

fn title(place: &Place, analysis: &Analysis) -> String {
    name(&Place { clock: None, ..place.clone() }, analysis)
}

fn scale_name(analysis: &Analysis) -> String {
    analysis.roles.scale.clone().unwrap_or_else(|| "scale".into())
}

fn clock_name(analysis: &Analysis) -> String {
    analysis.roles.clock.clone().unwrap_or_else(|| "clock".into())
}

/// `4.2 % (3.1 .. 5.3) *`.
pub(super) fn change(change: Option<Change>) -> String {
    let Some(Change { middle, low, high, sure, rounds }) = change else { return "-".to_owned() };
    // Adding 0.0 removes the sign of -0.0.
    let [middle, low, high] = [middle, low, high].map(|value| (10.0 * value).round() / 10.0 + 0.0);
    if rounds == 1 {
        return format!("{middle:.1} %, simulated");
    }
    format!("{middle:.1} % ({low:.1} .. {high:.1}){}", if sure { " *" } else { "" })
}

fn mark(knee: Knee, front: &Front) -> String {
    let knee = match knee {
        Knee::Here => Some("knee"),
        Knee::Perhaps => Some("or knee"),
        Knee::No => None,
    };
    let behind = (*front == Front::Behind).then_some("another is faster for fewer watts");
    knee.into_iter().chain(behind).collect::<Vec<_>>().join(", ")
}

/// Writes rows in columns as wide as their longest cell.
fn table<R: AsRef<[String]>>(text: &mut String, rows: Vec<R>) {
    let columns = rows.first().map_or(0, |row| row.as_ref().len());
    let width = |column: usize| rows.iter().map(|row| row.as_ref()[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let cells = row.as_ref().iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(text, "  {}", line.trim_end());
    }
}
