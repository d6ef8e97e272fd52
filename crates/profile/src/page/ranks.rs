//! Where the time of each rank went (paper 002, Figures 7 and 11).

use std::fmt::Write;

use chart::{Figure, escape};
use machine::Reading;

use super::part::{BLOCKED, COMPUTE, OFF_CORE, Part, TRANSFER, UNDIVIDED, WAIT};
use super::plot::{HEIGHT, Plot, heights, names, rectangle};
use crate::summary::{RankSummary, Split, Summary};
use crate::words;

/// Greatest number of columns; with more ranks, several share a column.
const COLUMNS: usize = 256;
/// From this number of ranks on, a second drawing sorts the ranks by wait.
const SORTED_FROM: usize = 24;

const SPLIT: [Part; 6] = [COMPUTE, TRANSFER, WAIT, OFF_CORE, UNDIVIDED, BLOCKED];

/// Classes of calls that divide a rank's time in MPI, as in paper 002's Figure 11.
const CALLED: [(Part, &[&str]); 6] = [
    (Part { class: "fill s2", name: "send, post" }, &["send", "exchange", "post"]),
    (Part { class: "fill s1", name: "receive" }, &["receive"]),
    (Part { class: "fill s4", name: "completion, probe" }, &["completion", "probe"]),
    (Part { class: "fill s5", name: "collective" }, &["collective", "neighbour"]),
    (Part { class: "fill s3", name: "one-sided" }, &["one-sided", "synchronization"]),
    (Part { class: "fill s6", name: "other" }, &["request", "management"]),
];

/// The part of a class of calls, with the same colour everywhere on the page.
pub fn part_of_class(class: &str) -> Part {
    CALLED.iter().find(|(_, classes)| classes.contains(&class)).map_or(CALLED[5].0, |(part, _)| *part)
}

/// Transfer, wait, time off the core and undivided time, which add up to `mpi` seconds. Unknown parts count as undivided.
pub fn divided(mpi: f64, split: &Split) -> [f64; 4] {
    let part = |reading: &Reading<f64>| reading.value().copied().unwrap_or(0.0);
    let [transfer, wait, off_core] = [&split.transfer, &split.wait, &split.off_core].map(part);
    let left = mpi - transfer - wait - off_core;
    // A rest within rounding is 0.
    [transfer, wait, off_core, if left > mpi * 1e-6 { left } else { 0.0 }]
}

pub fn wait_share(rank: &RankSummary) -> f64 {
    match rank.thread_seconds > 0.0 {
        true => rank.split.wait.value().copied().unwrap_or(0.0) / rank.thread_seconds,
        false => 0.0,
    }
}

pub fn figures(summary: &Summary) -> Vec<Figure> {
    if summary.ranks.is_empty() {
        return vec![];
    }
    let split = |rank: &RankSummary| {
        let [transfer, wait, off_core, undivided] = divided(rank.mpi, &rank.split);
        let blocked = rank.outside.blocked.value().copied().unwrap_or(0.0);
        let outside = (rank.compute - rank.computing() - blocked).max(0.0);
        vec![rank.computing(), transfer, wait, off_core + outside, undivided, blocked]
    };
    let called = |rank: &RankSummary| {
        let sum =
            |classes: &[&str]| classes.iter().filter_map(|class| rank.classes.get(*class)).map(|c| c.seconds).sum();
        CALLED.iter().map(|(_, classes)| sum(classes)).collect()
    };
    let in_order: Vec<usize> = (0..summary.ranks.len()).collect();
    let count = summary.ranks.len();
    let how = how_divided(summary);
    let title = "Each rank's time: compute, transfer, wait";
    let mut figures = vec![Figure { caption: how, ..stacked(summary, "split", title, &in_order, &SPLIT, &split) }];
    if count >= SORTED_FROM {
        let mut sorted = in_order.clone();
        sorted.sort_by(|a, b| wait_share(&summary.ranks[*b]).total_cmp(&wait_share(&summary.ranks[*a])));
        let figure = stacked(summary, "sorted", "The same, who waits most first", &sorted, &SPLIT, &split);
        figures.push(Figure { wide: true, ..figure });
    }
    let parts: Vec<Part> = CALLED.iter().map(|(part, _)| *part).collect();
    if summary.ranks.iter().any(|rank| !rank.classes.is_empty()) {
        let caption = "By what was called. Who waits for a late rank does so in whatever call needs it.".into();
        let figure = stacked(summary, "called", "Each rank's time in MPI", &in_order, &parts, &called);
        figures.push(Figure { caption, ..figure });
    }
    let wide = count > 40;
    figures.iter_mut().for_each(|figure| figure.wide |= wide);
    figures
}

/// The origin of transfer and wait, as a sentence.
pub fn how_divided(summary: &Summary) -> String {
    match &summary.totals.split.wait {
        Reading::Measured(_) => "Transfer and wait are measured: the ranks' own timelines say who was late.".into(),
        Reading::Modelled(_) => {
            "Transfer and wait are modelled: transfer is what the same call takes when nobody is late, wait is all \
             beyond that."
                .into()
        }
        missing => format!("Transfer and wait: {}.", chart::number::why_missing(missing).unwrap_or_default()),
    }
}

/// Seconds as columns of parts: a column for each rank, or for the mean of several neighbours in `order`.
fn stacked(
    summary: &Summary,
    id: &str,
    title: &str,
    order: &[usize],
    parts: &[Part],
    of: &dyn Fn(&RankSummary) -> Vec<f64>,
) -> Figure {
    let each = order.len().div_ceil(COLUMNS);
    let columns: Vec<&[usize]> = order.chunks(each).collect();
    let mean = |places: &[usize]| {
        let mut sums = vec![0.0; parts.len()];
        for place in places {
            for (sum, value) in sums.iter_mut().zip(of(&summary.ranks[*place])) {
                *sum += value / places.len() as f64;
            }
        }
        sums
    };
    let values: Vec<Vec<f64>> = columns.iter().map(|places| mean(places)).collect();
    let top = values.iter().map(|parts| parts.iter().sum::<f64>()).fold(0.0, f64::max);
    let (y, scale) = heights(top, words::tick);
    let gap = if columns.len() <= 96 { 0.14 } else { 0.0 };
    let mut marks = String::new();
    for (i, (places, values)) in columns.iter().zip(&values).enumerate() {
        let _ = write!(marks, "<g><title>{}</title>", escape(&hover_text(summary, places, parts, values)));
        let mut foot = HEIGHT;
        for (part, value) in parts.iter().zip(values) {
            let high = value * scale;
            if high >= 0.5 {
                foot -= high;
                rectangle(&mut marks, part.class, (i as f64 + gap / 2.0, foot), (1.0 - gap, high), "");
            }
        }
        marks.push_str("</g>");
    }
    let used = |i: usize| values.iter().any(|v| v[i] > 0.0);
    let legend = parts.iter().enumerate().filter(|(i, _)| used(*i)).map(|(_, part)| part.key()).collect();
    let name = |i: usize| match columns[i] {
        [] => String::new(),
        // Label of sorted ranks that share columns: the number of ranks that wait more.
        [_, _, ..] if id == "sorted" => (i * each).to_string(),
        [first, ..] => summary.ranks[*first].rank.to_string(),
    };
    let description = describe(summary, order, parts, of);
    let x_label = match (each, id) {
        (1, "sorted") => "rank, who waits most first".to_string(),
        (each, "sorted") => format!("ranks that wait more ({each} a column, their mean)"),
        (1, _) => "rank".into(),
        (each, _) => format!("rank ({each} a column, their mean)"),
    };
    let plot = Plot {
        id,
        title,
        description: &description,
        class: if gap > 0.0 { "columns" } else { "columns dense" },
        units: (columns.len() as f64, HEIGHT),
        marks,
        x: names(columns.len(), 16, name),
        y,
        x_label: &x_label,
        y_label: "time",
        data: String::new(),
    };
    Figure { title: title.into(), legend, drawing: plot.html(), ..Figure::default() }
}

/// The hover text of a column.
fn hover_text(summary: &Summary, places: &[usize], parts: &[Part], values: &[f64]) -> String {
    let whole: f64 = values.iter().sum();
    let mut text = match places {
        [one] => {
            let rank = &summary.ranks[*one];
            let cores = match rank.cores.value() {
                Some(cores) if !cores.is_empty() => format!(", core {}", words::runs(cores.iter().copied())),
                _ => String::new(),
            };
            format!("{} on {}{cores}: {}", words::rank(summary, *one), rank.host, words::seconds(whole))
        }
        many => {
            let ranks = words::runs(many.iter().map(|place| summary.ranks[*place].rank));
            format!("ranks {ranks}, mean of {}: {}", many.len(), words::seconds(whole))
        }
    };
    for (part, value) in parts.iter().zip(values).filter(|(_, value)| **value > 0.0) {
        let share = if whole > 0.0 { value / whole } else { 0.0 };
        let _ = write!(text, "\n{} {} ({})", part.name, words::seconds(*value), words::percent(share));
    }
    text
}

/// Text for a screen reader: each part's share over all ranks, and the ranks with least and most of it.
fn describe(summary: &Summary, order: &[usize], parts: &[Part], of: &dyn Fn(&RankSummary) -> Vec<f64>) -> String {
    let all: Vec<(usize, Vec<f64>)> = order.iter().map(|place| (*place, of(&summary.ranks[*place]))).collect();
    let said = parts.iter().enumerate().filter_map(|(i, part)| {
        let least = all.iter().min_by(|a, b| a.1[i].total_cmp(&b.1[i]))?;
        let most = all.iter().max_by(|a, b| a.1[i].total_cmp(&b.1[i]))?;
        let text = |(place, values): &(usize, Vec<f64>)| {
            format!("{} ({})", words::seconds(values[i]), words::rank(summary, *place))
        };
        (most.1[i] > 0.0).then(|| format!("{} from {} to {}", part.name, text(least), text(most)))
    });
    said.collect::<Vec<_>>().join("; ")
}
