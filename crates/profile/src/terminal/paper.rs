//! Tables I and II of paper 000 (section IV.B.2) for the profiled programs, a column for each program.

use machine::count::grouped;

use crate::printable::printable;
use crate::summary::Summary;

/// The rows of Table I and of Table II.
const CALLS: [&str; 5] = ["Allreduce", "Irecv", "Isend", "Wait", "Waitall"];
const TIME: [&str; 4] = ["Allreduce", "Irecv", "Isend", "Wait"];

type Share = fn(&crate::summary::FunctionSummary) -> f64;

pub fn render(programs: &[Summary]) -> String {
    let names: Vec<String> = programs.iter().map(name).collect();
    let mut page = String::new();
    for (program, name) in programs.iter().zip(&names) {
        let totals = &program.totals;
        page += &format!(
            "{name} spent {:.0}% of its runtime in MPI. It called MPI {} times over its runtime, which ran for {:.2} seconds.\n\
             This equates out to {:.1} MPI calls per second.\n\n",
            100.0 * totals.mpi_share,
            grouped(totals.calls),
            totals.seconds,
            totals.calls_per_second
        );
    }
    page += &table(programs, &names, &CALLS, |function| function.calls_share);
    page += "TABLE I: Distribution of MPI Calls\n\n";
    page += &table(programs, &names, &TIME, |function| function.time_share);
    page += "TABLE II: Distribution of Time Within MPI on a Standard Run\n\n";
    for (title, rows, share) in
        [("I", &CALLS[..], (|f| f.calls_share) as Share), ("II", &TIME[..], (|f| f.time_share) as Share)]
    {
        for (program, name) in programs.iter().zip(&names) {
            let other = others(program, rows, share);
            let most: Vec<String> =
                other.iter().take(4).map(|(function, share)| format!("{function} {:.2}%", 100.0 * share)).collect();
            if !most.is_empty() {
                page += &format!("Other in Table {title}, {name}: {}\n", most.join(", "));
            }
        }
    }
    page
}

/// File name of the program itself, not of its launcher.
fn name(program: &Summary) -> String {
    let path = program.ranks.first().map(|rank| rank.program.as_str()).unwrap_or("");
    let name = path.rsplit('/').next().unwrap_or("");
    if name.is_empty() { "program".into() } else { printable(name) }
}

fn table(programs: &[Summary], names: &[String], rows: &[&str], share: Share) -> String {
    let cell = |value: f64| format!("{:.2}%", 100.0 * value);
    let mut lines = vec![[vec!["Call".to_owned()], names.to_vec()].concat()];
    for row in rows {
        let shares = programs.iter().map(|program| cell(of(program, row, share)));
        lines.push([(*row).to_owned()].into_iter().chain(shares).collect());
    }
    let rest = programs
        .iter()
        .map(|program| cell(others(program, rows, share).iter().fold(0.0, |sum, (_, share)| sum + share)));
    lines.push(["Other".to_owned()].into_iter().chain(rest).collect());
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..=programs.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text += &format!("{}\n", cells.join("  ").trim_end());
    }
    text
}

fn of(program: &Summary, row: &str, share: Share) -> f64 {
    let wanted = |name: &str| name.strip_prefix("MPI_") == Some(row);
    program
        .functions
        .iter()
        .filter(|function| function.counted && wanted(&function.name))
        .map(share)
        .fold(0.0, |a, b| a + b)
}

/// Functions without a row, with their shares, greatest first.
fn others<'a>(program: &'a Summary, rows: &[&str], share: Share) -> Vec<(&'a str, f64)> {
    let mut sums: Vec<(&str, f64)> = Vec::new();
    for function in program.functions.iter().filter(|function| function.counted) {
        let name = function.name.trim_start_matches("MPI_");
        if rows.contains(&name) {
            continue;
        }
        match sums.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += share(function),
            None => sums.push((name, share(function))),
        }
    }
    sums.sort_by(|a, b| b.1.total_cmp(&a.1));
    sums
}
