//! Sizes of messages: the share of the messages and the share of the bytes, side by side.

use std::fmt::Write;

use chart::{Figure, escape};
use machine::count;

use super::part::Part;
use super::plot::{HEIGHT, Plot, Tick, heights, names, rectangle};
use crate::summary::{SizeSummary, Summary};
use crate::words;

const COUNT: Part = Part { class: "fill s1", name: "share of the messages" };
const CALLS: Part = Part { class: "fill s1", name: "share of the calls" };
const BYTES: Part = Part { class: "fill s2", name: "share of the bytes" };

pub fn figures(summary: &Summary) -> Vec<Figure> {
    let messages: Vec<_> = summary.sizes.iter().map(|s| (s.floor, s.messages, s.bytes)).collect();
    let collectives: Vec<_> = summary.sizes.iter().map(|s| (s.floor, s.collectives, s.collective_bytes)).collect();
    let caption = "By powers of two. What is sent from rank to rank.".to_string();
    let of_collectives = "By what the calling rank contributes, whatever the library makes of it.".to_string();
    let drawn = [
        figure("sizes", "Sizes of messages", COUNT, "messages", &messages, caption),
        figure("collective-sizes", "Sizes of collective calls", CALLS, "calls", &collectives, of_collectives),
    ];
    drawn.into_iter().flatten().collect()
}

fn figure(id: &str, title: &str, count: Part, what: &str, rows: &[(u64, u64, u64)], caption: String) -> Option<Figure> {
    let sum = |of: fn(&(u64, u64, u64)) -> u64| rows.iter().map(of).fold(0, u64::saturating_add);
    let (all, all_bytes) = (sum(|row| row.1), sum(|row| row.2));
    let used = |row: &&(u64, u64, u64)| row.1 > 0;
    let (first, last) = (class(rows.iter().find(used)?.0), class(rows.iter().rfind(used)?.0));
    // At least six classes, so that few are not stretched over the whole width.
    let (first, last) = (first.saturating_sub(5_usize.saturating_sub(last - first) / 2), last.max(first + 5));
    let classes = last - first + 1;
    let share = |part: u64, whole: u64| if whole > 0 { part as f64 / whole as f64 } else { 0.0 };
    let top = rows.iter().map(|row| share(row.1, all).max(share(row.2, all_bytes))).fold(0.0, f64::max);
    let (y, scale) = heights(top * 100.0, |percent| format!("{percent} %"));
    let mut marks = String::new();
    let mut said = Vec::new();
    for (floor, calls, bytes) in rows.iter().copied().filter(|row| row.1 > 0) {
        let x = (class(floor) - first) as f64;
        let text = format!(
            "{}: {} {what} ({}), {} ({})",
            words::size_class(floor),
            count::grouped(calls),
            words::percent(share(calls, all)),
            words::bytes(bytes as f64),
            words::percent(share(bytes, all_bytes)),
        );
        let _ = write!(marks, "<g><title>{}</title>", escape(&text));
        for (part, share, left) in [(count, share(calls, all), 0.08), (BYTES, share(bytes, all_bytes), 0.5)] {
            if share > 0.0 {
                // A value above 0 is visible, however small.
                let high = (share * 100.0 * scale).max(4.0);
                rectangle(&mut marks, part.class, (x + left, HEIGHT - high), (0.42, high), "");
            }
        }
        marks.push_str("</g>");
        said.push(text);
    }
    // Labels are the classes' lower bounds, between the columns.
    let x = names(classes, 10, |i| match class_floor(first + i) {
        0 => "0".into(),
        floor => words::bytes(floor as f64),
    });
    let half = 0.5 / classes as f64;
    let x = x.into_iter().map(|t| Tick { at: t.at - half * 0.55, ..t }).collect();
    let plot = Plot {
        id,
        title,
        description: &said.join("; "),
        class: "columns low",
        units: (classes as f64, HEIGHT),
        marks,
        x,
        y,
        x_label: "from this size to twice it",
        y_label: "share",
        data: String::new(),
    };
    let legend = vec![count.key(), BYTES.key()];
    Some(Figure { title: title.into(), legend, drawing: plot.html(), caption, ..Figure::default() })
}

/// The size class: 0 for no bytes, then a class for each power of two.
fn class(floor: u64) -> usize {
    (u64::BITS - floor.leading_zeros()) as usize
}

fn class_floor(class: usize) -> u64 {
    if class == 0 { 0 } else { 1 << (class - 1) }
}

/// Lower bound of the size class that holds the median message; `None` without messages.
pub fn median(sizes: &[SizeSummary]) -> Option<u64> {
    let all: u128 = sizes.iter().map(|s| u128::from(s.messages)).sum();
    let mut below = 0;
    sizes.iter().filter(|s| s.messages > 0).find_map(|s| {
        below += u128::from(s.messages);
        (below * 2 >= all).then_some(s.floor)
    })
}
