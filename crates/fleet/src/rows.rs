//! The rows of a view as CSV; units are in the names of the columns.

use crate::history::{History, Share};
use crate::terminal::period;
use crate::totals::{Part, Totals};

/// The rows by which sums are grouped.
pub fn sums(of: &Totals) -> String {
    let head = ["jobs", "core_hours", "mpi_percent", "best_lever", "saves_least_core_hours", "saves_most_core_hours"];
    let row = |part: &Part| {
        let best = part.best.map_or([const { String::new() }; 3], |(lever, (low, high))| {
            [lever.to_string(), number(low * part.core_hours), number(high * part.core_hours)]
        });
        let sums = [part.name.clone(), part.jobs.to_string(), number(part.core_hours), number(100.0 * part.mpi)];
        sums.into_iter().chain(best).collect()
    };
    text([of.by.name()].into_iter().chain(head), of.groups.iter().map(row))
}

/// The months or weeks of a program.
pub fn history(of: &History) -> String {
    let head = ["jobs", "core_hours", "nodes_of_a_job", "mpi_percent"];
    let wait = ["wait_percent", "wait_least_percent", "wait_most_percent", "step_day", "step_points"];
    let percent = |share: Option<f64>| share.map_or(String::new(), |share| number(100.0 * share));
    let rows = of.rows.iter().map(|row| {
        let (low, high) = row.wait.and_then(|wait| wait.interval).unzip();
        // Of several steps in a row, the last.
        let step = of.steps.iter().rfind(|step| step.row == row.name);
        let sums =
            [row.name.clone(), row.jobs.to_string(), number(row.core_hours), number(row.nodes), percent(row.mpi)];
        let waits = [percent(row.wait.map(|Share { middle, .. }| middle)), percent(low), percent(high)];
        let step = [
            step.map_or(String::new(), |step| step.day.clone()),
            percent(step.map(|step| step.of.after - step.of.before)),
        ];
        sums.into_iter().chain(waits).chain(step).collect()
    });
    text([period(of.by)].into_iter().chain(head).chain(wait), rows)
}

/// More digits than anything here is known to.
fn number(value: f64) -> String {
    format!("{value:.6}")
}

fn text<'a>(head: impl Iterator<Item = &'a str>, rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(head).expect("memory takes it");
    rows.for_each(|row| writer.write_record(row).expect("all rows have the head's columns"));
    String::from_utf8(writer.into_inner().expect("memory takes it")).expect("it was made of text")
}
