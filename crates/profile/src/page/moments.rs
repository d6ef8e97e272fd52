//! Figures over time: each rank's share of time in MPI, each core's share in network softirqs, and the calls themselves
//! where there is a timeline.

use std::fmt::Write;

use chart::{Entry, Figure, escape};

use super::heat::{self, shade_of_share};
use super::plot::{Plot, moments, names, unit};
use super::ranks::part_of_class;
use crate::summary::{Lane, Series, Summary, Timeline};
use crate::words;

/// Greatest number of rows; more ranks or cores share rows, and more lanes are left out.
const ROWS: usize = 64;
/// Greatest number of columns; more columns of the series share one.
const COLUMNS: usize = 240;

/// Shares of one rank or core over time, one for each column of the series.
struct Track {
    name: String,
    shares: Vec<Option<f32>>,
}

pub fn figures(summary: &Summary) -> Vec<Figure> {
    let mut figures = Vec::new();
    if let Some(series) = summary.series.as_ref().filter(|series| series.columns > 0 && series.step > 0.0) {
        let ranks = series.ranks.iter().map(|r| Track { name: words::rank(summary, r.rank), shares: r.mpi.clone() });
        let title = "Share of time in MPI, by rank";
        figures.extend(tracks(summary, series, "mpi-over-time", title, "in MPI", ranks.collect()));
        let cores = series.cores.iter().map(|c| {
            let name = match summary.job.hosts.len() > 1 {
                true => format!("{}, core {}", c.host, c.core),
                false => format!("core {}", c.core),
            };
            Track { name, shares: c.softirq.clone() }
        });
        let cores: Vec<Track> = cores.filter(|track| track.shares.iter().flatten().any(|s| *s > 0.0)).collect();
        let title = "Share of time in network softirqs, by core";
        let none = cores.is_empty();
        figures.extend(tracks(summary, series, "softirqs-over-time", title, "in softirqs", cores));
        if none && !series.cores.is_empty() {
            let missing = vec!["no core was seen in network softirqs for long enough to tell".to_string()];
            figures.push(Figure { title: title.into(), missing, ..Figure::default() });
        }
    }
    if let Some(timeline) = &summary.timeline {
        figures.extend(blocks(summary, timeline));
    }
    figures
}

fn tracks(summary: &Summary, series: &Series, id: &str, title: &str, what: &str, all: Vec<Track>) -> Option<Figure> {
    if all.is_empty() {
        return None;
    }
    let (per_row, per_column) = (all.len().div_ceil(ROWS), series.columns.div_ceil(COLUMNS));
    let columns = series.columns.div_ceil(per_column);
    // The scale ends at a round share above the greatest, since softirqs rarely take a tenth.
    let greatest = all.iter().flat_map(|track| track.shares.iter().flatten()).fold(0.0_f32, |a, b| a.max(*b));
    let full = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5].into_iter().find(|full| f64::from(greatest) <= *full).unwrap_or(1.0);
    let mut marks = String::new();
    let mut said = Vec::new();
    let rows: Vec<&[Track]> = all.chunks(per_row).collect();
    for (top, row) in rows.iter().enumerate() {
        let shares: Vec<Option<f64>> = (0..columns).map(|c| mean(row, c * per_column, per_column)).collect();
        let shades: Vec<u8> = shares.iter().map(|share| shade_of_share(share.unwrap_or(0.0) / full)).collect();
        let known = || shares.iter().flatten().copied();
        let average = known().sum::<f64>() / known().count().max(1) as f64;
        let (least, most) = known().fold((f64::INFINITY, 0.0_f64), |(l, m), v| (l.min(v), m.max(v)));
        let name = match row {
            [one] => one.name.clone(),
            [first, .., last] => format!("{} to {}", first.name, last.name),
            [] => String::new(),
        };
        let text = match known().next() {
            None => format!("{name}: not sampled"),
            Some(_) => format!(
                "{name}: {} {what} on average, {} to {}",
                words::percent(average),
                words::percent(least),
                words::percent(most)
            ),
        };
        // Tenths of a percent, which the page's script reads out; without the script the title has the row's average.
        let cells = shares.iter().map(|share| share.map_or(String::new(), |s| ((s * 1000.0).round()).to_string()));
        let cells = cells.collect::<Vec<_>>().join(",");
        let _ = write!(
            marks,
            "<g data-name=\"{}\" data-cells=\"{cells}\"><title>{}</title><rect class=\"ground\" x=\"0\" y=\"{top}\" \
             width=\"{columns}\" height=\"1\"/>",
            escape(&name),
            escape(&text)
        );
        heat::row(&mut marks, top, &shades);
        marks.push_str("</g>");
        said.push(text);
    }
    let (from, to) = (series.from, series.from + series.step * (columns * per_column) as f64);
    phases(&mut marks, summary, (from, to), columns as f64, rows.len() as f64);
    let ends =
        |full: f64| (0..=heat::SHADES).map(move |i| words::percent(full * f64::from(i) / f64::from(heat::SHADES)));
    let plot = Plot {
        id,
        title,
        description: &said.iter().take(ROWS).cloned().collect::<Vec<_>>().join("; "),
        class: "tracks",
        units: (columns as f64, rows.len() as f64),
        marks,
        x: moments(from, to, words::tick),
        y: names(rows.len(), 16, |i| rows[i].first().map(|t| t.name.clone()).unwrap_or_default()),
        x_label: "time since the start",
        y_label: "",
        data: format!(
            " data-rows=\"{}\" data-from=\"{from}\" data-to=\"{to}\" data-what=\"{}\"",
            rows.len(),
            escape(what)
        ),
    };
    let drawing = sized(&plot, rows.len()) + &heat::legend(what, &ends(full).collect::<Vec<_>>());
    let mut caption = format!("A column is {}.", words::seconds(series.step * per_column as f64));
    if per_row > 1 {
        caption += &format!(" {per_row} share a row, their mean.");
    }
    if all.iter().any(|track| track.shares.iter().any(Option::is_none)) {
        caption += " Blank is nothing, or a moment that was not sampled.";
    }
    if !summary.phases.is_empty() {
        caption += " Lines mark phases (MPI_Pcontrol).";
    }
    Some(Figure { title: title.into(), drawing, caption, wide: true, ..Figure::default() })
}

fn mean(row: &[Track], from: usize, count: usize) -> Option<f64> {
    let known = row.iter().flat_map(|track| track.shares.iter().skip(from).take(count).flatten());
    let (sum, number) = known.fold((0.0, 0_u32), |(sum, number), share| (sum + f64::from(*share), number + 1));
    (number > 0).then(|| sum / f64::from(number))
}

/// A line where a phase begins.
fn phases(marks: &mut String, summary: &Summary, (from, to): (f64, f64), width: f64, height: f64) {
    for phase in summary.phases.iter().filter(|p| p.from > from && p.from < to).take(100) {
        let x = unit((phase.from - from) / (to - from) * width);
        let text = format!("level {} from {} to {}", phase.level, words::seconds(phase.from), words::seconds(phase.to));
        let _ = write!(
            marks,
            "<line class=\"phase\" x1=\"{x}\" x2=\"{x}\" y1=\"0\" y2=\"{height}\"><title>{text}</title></line>"
        );
    }
}

/// The plot's HTML, with a height by its number of rows.
fn sized(plot: &Plot, rows: usize) -> String {
    let each = match rows {
        0..=8 => 22,
        9..=24 => 14,
        _ => 8,
    };
    format!("<div class=\"sized\" style=\"--high:{}px\">{}</div>", (rows * each).max(60), plot.html())
}

/// Calls as blocks, coloured by the class of the function.
fn blocks(summary: &Summary, timeline: &Timeline) -> Option<Figure> {
    let lanes: Vec<&Lane> = timeline.lanes.iter().filter(|lane| !lane.most.is_empty()).collect();
    if lanes.is_empty() || timeline.columns == 0 || timeline.step <= 0.0 {
        return None;
    }
    let each = lanes.len().div_ceil(ROWS);
    let drawn: Vec<&Lane> = lanes.iter().copied().step_by(each).collect();
    let threads = drawn.iter().any(|lane| lane.thread > 0);
    let classes: Vec<&'static str> = timeline.names.iter().map(|name| class_of(name)).collect();
    let mut legend: Vec<Entry> = Vec::new();
    let mut marks = String::new();
    for (top, lane) in drawn.iter().enumerate() {
        let name = match threads {
            true => format!("{}, thread {}", words::rank(summary, lane.rank), lane.thread),
            false => words::rank(summary, lane.rank),
        };
        let inside = lane.mpi.iter().map(|share| f64::from(*share)).sum::<f64>() / lane.mpi.len().max(1) as f64;
        let text = format!("{name}: {} in MPI", words::percent(inside));
        let runs = runs(&lane.most);
        let cells = runs.iter().map(|(length, what)| match what {
            Some(what) => format!("{length}:{what}"),
            None => length.to_string(),
        });
        let cells = cells.collect::<Vec<_>>().join(",");
        let _ = write!(
            marks,
            "<g data-name=\"{}\" data-runs=\"{cells}\"><title>{}</title><rect class=\"ground\" x=\"0\" y=\"{top}\" \
             width=\"{}\" height=\"1\"/>",
            escape(&name),
            escape(&text),
            timeline.columns
        );
        let mut paths: Vec<(&'static str, String)> = Vec::new();
        let mut at = 0;
        for (length, what) in runs {
            if let Some(class) = what.and_then(|what| classes.get(usize::from(what))) {
                let part = part_of_class(class);
                if !legend.iter().any(|key| key.name == part.name) {
                    legend.push(part.key());
                }
                let place = paths.iter().position(|(class, _)| *class == part.class).unwrap_or_else(|| {
                    paths.push((part.class, String::new()));
                    paths.len() - 1
                });
                let y = top as f64 + 0.1;
                let _ = write!(paths[place].1, "M{at} {y}h{length}v.8h-{length}z");
            }
            at += length;
        }
        for (class, path) in paths {
            let _ = write!(marks, "<path class=\"{class}\" d=\"{path}\"/>");
        }
        marks.push_str("</g>");
    }
    let (from, to) = (timeline.from, timeline.from + timeline.step * timeline.columns as f64);
    phases(&mut marks, summary, (from, to), timeline.columns as f64, drawn.len() as f64);
    let names_of: Vec<String> = timeline.names.iter().map(|name| escape(name)).collect();
    let plot = Plot {
        id: "timeline",
        title: "Calls, as they followed one another",
        description: &format!(
            "{} lanes from {} to {}, a block where most of {} passed in one call",
            drawn.len(),
            words::seconds(from),
            words::seconds(to),
            words::seconds(timeline.step)
        ),
        class: "tracks",
        units: (timeline.columns as f64, drawn.len() as f64),
        marks,
        x: moments(from, to, words::tick),
        y: names(drawn.len(), 16, |i| words::rank(summary, drawn[i].rank)),
        x_label: "time since the start",
        y_label: "",
        data: format!(
            " data-rows=\"{}\" data-from=\"{from}\" data-to=\"{to}\" data-names=\"{}\" data-zoom",
            drawn.len(),
            names_of.join(",")
        ),
    };
    let missing = match each {
        1 => vec![],
        each => vec![format!("one lane in {each} is drawn, {} of {}", drawn.len(), lanes.len())],
    };
    let caption = format!(
        "A block is the call in which most of {} passed. The whole timeline opens in a trace viewer: plimsoll report \
         DIR --export perfetto.",
        words::seconds(timeline.step)
    );
    let title = format!("Calls from {} to {}", words::seconds(from), words::seconds(to));
    Some(Figure {
        title,
        legend,
        drawing: sized(&plot, drawn.len()),
        caption,
        missing,
        wide: true,
        ..Figure::default()
    })
}

fn class_of(name: &str) -> &'static str {
    let bare = name.strip_prefix("MPI_").unwrap_or(name);
    record::functions::named(bare).map_or("management", |function| function.class.name())
}

/// Runs of equal neighbours, `(length, value)`.
fn runs(of: &[Option<u16>]) -> Vec<(usize, Option<u16>)> {
    let mut runs: Vec<(usize, Option<u16>)> = Vec::new();
    for what in of {
        match runs.last_mut() {
            Some((length, last)) if last == what => *length += 1,
            _ => runs.push((1, *what)),
        }
    }
    runs
}
