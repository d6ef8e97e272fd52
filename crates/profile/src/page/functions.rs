//! Time in MPI by call, and collectives by the size of their communicator.

use chart::Figure;
use machine::count;

use super::part::{OFF_CORE, Part, TRANSFER, UNDIVIDED, WAIT};
use super::ranks::divided;
use super::rows::{self, Bar, Row};
use crate::summary::{FunctionSummary, Summary};
use crate::words;

const ROWS: usize = 12;
const SPLIT: [Part; 4] = [TRANSFER, WAIT, OFF_CORE, UNDIVIDED];

pub fn figures(summary: &Summary) -> Vec<Figure> {
    let counted = || summary.functions.iter().filter(|f| f.counted && f.calls > 0);
    let mut by_group: Vec<&FunctionSummary> = counted().filter(|f| f.group > 0).collect();
    by_group.sort_by(|a, b| a.group.cmp(&b.group).then(b.seconds.total_cmp(&a.seconds)));
    let by_seconds = figure(
        "Time in MPI by call",
        counted().collect(),
        |f| match f.group {
            0 => f.name.clone(),
            group => format!("{}, {}", f.name, count::of(group.into(), "rank")),
        },
        "Of all ranks together. Beside each bar: its share of the time in MPI.",
    );
    let groups = figure(
        "Collectives by size of communicator",
        by_group,
        |f| format!("{}: {}", count::of(f.group.into(), "rank"), f.name),
        "A collective's wait is for the last rank to arrive.",
    );
    [by_seconds, groups].into_iter().flatten().collect()
}

fn figure(
    title: &str,
    mut functions: Vec<&FunctionSummary>,
    name: impl Fn(&FunctionSummary) -> String,
    caption: &str,
) -> Option<Figure> {
    if functions.is_empty() {
        return None;
    }
    let left_out = functions.len().saturating_sub(ROWS);
    if left_out > 0 {
        // The functions with most time stay, in their order.
        let mut by_seconds: Vec<f64> = functions.iter().map(|f| f.seconds).collect();
        by_seconds.sort_by(|a, b| b.total_cmp(a));
        let least = by_seconds[ROWS - 1];
        functions.retain(|f| f.seconds >= least);
        functions.truncate(ROWS);
    }
    let row = |f: &&FunctionSummary| {
        let parts: Vec<_> = SPLIT.into_iter().zip(divided(f.seconds, &f.split)).collect();
        let title = parts.iter().filter(|(_, value)| *value > 0.0);
        let title = title.map(|(part, value)| format!("{} {}", part.name, words::seconds(*value)));
        Row {
            name: name(f),
            note: format!(
                "{} {}, median {}",
                words::amount(f.calls as f64),
                count::either(f.calls, "call", "calls"),
                words::seconds(f.p50)
            ),
            bars: vec![Bar {
                text: format!("{} ({})", words::seconds(f.seconds), words::percent(f.time_share)),
                title: title.collect::<Vec<_>>().join(", "),
                parts,
                missing: false,
            }],
        }
    };
    let rows: Vec<Row> = functions.iter().map(row).collect();
    let used = |part: &Part| rows.iter().any(|r| r.bars[0].parts.iter().any(|(p, value)| p == part && *value > 0.0));
    let legend = SPLIT.iter().filter(|part| used(part)).map(|part| part.key()).collect();
    let missing = match left_out {
        0 => vec![],
        n => vec![format!("{n} that take less are in the table of functions")],
    };
    Some(Figure {
        title: title.into(),
        legend,
        drawing: rows::html(title, &[("time", None)], &rows),
        caption: caption.into(),
        missing,
        ..Figure::default()
    })
}
