//! The analysis as one HTML page: paper 000's figures 2 to 7 for this study.

use std::collections::BTreeMap;

use askama::Template;
use chart::number::{digits, scaled};
use chart::page::Page;
use chart::{Axis, Figure, Frame, LineChart, Look, Mark, Scale, Series, Shape, entry};
use machine::count;

use super::roles::PROGRAM;
use super::terminal::{change, name};
use super::trade::Knee;
use super::{Analysis, Cell, Place};
use crate::campaign::definition::words;
use crate::campaign::terminal::mean;

#[derive(Template)]
#[template(path = "analysis.html")]
struct Body<'a> {
    title: &'a str,
    figures: Vec<Figure>,
    tables: Vec<Table>,
    spread: Option<String>,
    comparisons: usize,
    notes: Vec<&'a String>,
}

#[derive(Clone)]
struct Table {
    title: String,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    below: Vec<String>,
}

/// `title`: name of the study. `head`: origin of its figures.
pub fn page(analysis: &Analysis, title: &str, head: Vec<String>) -> String {
    let body = Body {
        title,
        figures: figures(analysis),
        tables: [trades(analysis), gains(analysis), vec![points(analysis)]].concat(),
        spread: analysis.spread.as_ref().map(|spread| {
            let share = |part: usize| 100.0 * part as f64 / spread.points as f64;
            format!(
                "The standard deviation is below 1 % of the mean at {:.0} % of {} points and above 2 % at {:.0} %; the largest is {} %.",
                share(spread.below_1),
                spread.points,
                share(spread.above_2),
                digits(spread.largest)
            )
        }),
        comparisons: analysis.comparisons,
        notes: analysis.notes.iter().chain(&analysis.failures).collect(),
    };
    Page { title, head_line: head, body: body.to_string(), ..Page::default() }.render()
}

/// Most points in the table of a page.
const MOST_POINTS: usize = 200;

/// The means of points, up to [`MOST_POINTS`].
fn points(analysis: &Analysis) -> Table {
    let several = analysis.cells.windows(2).any(|pair| program(&pair[0]) != program(&pair[1]));
    let title =
        |(name, unit): &(String, String)| if unit.is_empty() { name.clone() } else { format!("{name}, {unit}") };
    let row = |cell: &Cell| -> Vec<String> {
        let own = [words(&cell.axes, several), count::grouped(cell.runs as u64)];
        own.into_iter().chain(cell.figures.iter().map(mean)).collect()
    };
    let more = analysis.cells.len().saturating_sub(MOST_POINTS);
    Table {
        title: "Points".into(),
        head: ["Point", "Runs"].map(String::from).into_iter().chain(analysis.roles.figures.iter().map(title)).collect(),
        rows: analysis.cells.iter().take(MOST_POINTS).map(row).collect(),
        below: (more > 0).then(|| format!("And {}.", count::of(more as u64, "more point"))).into_iter().collect(),
    }
}

fn trades(analysis: &Analysis) -> Vec<Table> {
    let of = |curve: &super::Curve| Table {
        title: format!(
            "{}, against {}",
            name(&Place { clock: None, ..curve.place.clone() }, analysis),
            curve.reference
        ),
        head: ["Clock", "Performance lost", "Watts saved", "Energy for the same work"].map(String::from).into(),
        rows: (curve.steps.iter().skip(1))
            .map(|step| {
                let knee = match step.knee {
                    Knee::Here => ", knee",
                    Knee::Perhaps => ", or knee",
                    Knee::No => "",
                };
                vec![format!("{}{knee}", step.clock), change(step.lost), change(step.saved), change(step.energy)]
            })
            .collect(),
        below: Vec::new(),
    };
    analysis.trades.iter().map(of).collect()
}

fn gains(analysis: &Analysis) -> Vec<Table> {
    let word = |of: &Option<String>| of.clone().unwrap_or_else(|| "-".into());
    let of = |gain: &super::Gain| Table {
        title: [format!("{} over {}", gain.carrier, gain.baseline), gain.panel.clone()]
            .into_iter()
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join(", "),
        head: vec![
            analysis.roles.scale.clone().unwrap_or_else(|| "Scale".into()),
            analysis.roles.clock.clone().unwrap_or_else(|| "Clock".into()),
            "Performance gained".into(),
            "Watts saved".into(),
        ],
        rows: (gain.steps.iter())
            .map(|step| vec![word(&step.scale), word(&step.clock), change(step.performance), change(step.power)])
            .collect(),
        below: (gain.trends.iter())
            .map(|trend| {
                let at = trend.at.as_ref().map_or(String::new(), |at| format!(" at {at}"));
                format!("By {}{at}: {}", trend.by, change(trend.change))
            })
            .collect(),
    };
    analysis.gains.iter().map(of).collect()
}

fn look(nth: usize) -> Look {
    let shapes = [Shape::Circle, Shape::Square, Shape::Diamond, Shape::Up, Shape::Down];
    Look { colour: (nth % 6) as u8, shape: shapes[nth % shapes.len()], line: (nth / 6 % 3) as u8 }
}

/// Quantity on the x axis.
struct XAxis {
    axis: String,
    label: &'static str,
    scale: Scale,
    write: fn(f64) -> String,
}

impl XAxis {
    fn clock(analysis: &Analysis) -> Option<XAxis> {
        let axis = analysis.roles.clock.clone()?;
        let label = if analysis.roles.dilated { "protocol's work, times" } else { "clock, GHz" };
        Some(XAxis { axis, label, scale: Scale::Linear, write: |value| digits(value) })
    }

    fn size(cells: &[&Cell]) -> Option<XAxis> {
        let varies = |axis: &&str| {
            let mut sizes = cells.iter().filter_map(|cell| cell.axes.get(axis)?.magnitude());
            let first = sizes.next();
            sizes.any(|size| Some(size) != first)
        };
        let axis = SIZES.into_iter().find(varies)?;
        let write = |value: f64| machine::Bytes(value as u64).to_string();
        Some(XAxis { axis: axis.into(), label: "message", scale: Scale::Log2, write })
    }

    fn is_size(&self) -> bool {
        SIZES.contains(&self.axis.as_str())
    }

    fn at(&self, cell: &Cell, analysis: &Analysis) -> Option<f64> {
        match self.is_size() {
            true => cell.axes.get(&self.axis)?.magnitude(),
            false => analysis.roles.clock_of(&cell.axes),
        }
    }

    /// Values of the other axes that set points of a program apart.
    fn rest(&self, cell: &Cell, analysis: &Analysis) -> String {
        let roles = &analysis.roles;
        let is_other = |name: &str| name != self.axis && name != PROGRAM && (roles.sets_apart(name) || roles.has(name));
        let others = cell.axes.iter().filter(|(name, _)| is_other(name));
        others.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
    }
}

/// Axes of message sizes.
const SIZES: [&str; 2] = ["size", "program.bytes"];

/// Most lines of a chart that a reader can distinguish.
const MOST_LINES: usize = 12;

fn figures(analysis: &Analysis) -> Vec<Figure> {
    let mut programs: Vec<String> = Vec::new();
    for cell in &analysis.cells {
        let program = program(cell);
        if !programs.contains(&program) {
            programs.push(program);
        }
    }
    let mut figures = Vec::new();
    for of in &programs {
        let cells: Vec<&Cell> = analysis.cells.iter().filter(|cell| program(cell) == *of).collect();
        let about = if programs.len() > 1 { of.as_str() } else { "" };
        // Message sizes that vary, as NetPIPE's, are the x axis; else the clock is.
        let along = XAxis::size(&cells).or_else(|| XAxis::clock(analysis));
        if let Some(along) = &along {
            for figure in 0..analysis.roles.figures.len() {
                figures.extend(curves(analysis, about, &cells, along, figure));
            }
        }
    }
    figures.extend(plane(analysis));
    figures
}

fn program(cell: &Cell) -> String {
    cell.axes.get(PROGRAM).map_or(String::new(), ToString::to_string)
}

/// A figure of a program along an axis, with a line for each combination of the other axes' values.
fn curves(analysis: &Analysis, program: &str, cells: &[&Cell], along: &XAxis, figure: usize) -> Option<Figure> {
    let (title, unit) = &analysis.roles.figures[figure];
    let mut lines: BTreeMap<String, Vec<Mark>> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    for cell in cells {
        let (Some(x), Some(stat)) = (along.at(cell, analysis), cell.figures[figure]) else { continue };
        let (low, high) = stat.interval.unwrap_or((stat.mean, stat.mean));
        let title = format!("{}: {} {unit}", name(&cell.place, analysis), digits(stat.mean));
        let rest = along.rest(cell, analysis);
        if !lines.contains_key(&rest) {
            order.push(rest.clone());
        }
        lines.entry(rest).or_default().push(Mark { x, y: stat.mean, low, high, title });
    }
    let more = order.len().saturating_sub(MOST_LINES);
    order.truncate(MOST_LINES);
    let series: Vec<Series> = (order.iter().enumerate())
        .map(|(nth, name)| {
            let mut marks = lines.remove(name).unwrap_or_default();
            marks.sort_by(|one, other| one.x.total_cmp(&other.x));
            Series { name: name.clone(), look: look(nth), joined: true, marks }
        })
        .collect();
    let scale = if along.is_size() { Scale::Log10 } else { Scale::Linear };
    let write = |value: f64| match value {
        0.0 => "0".to_owned(),
        _ => scaled(value, &[(1e-9, "n"), (1e-6, "µ"), (1e-3, "m"), (1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")]),
    };
    let about = [program, title].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(": ");
    let chart = LineChart {
        id: &format!("{program}-{}-{figure}", along.axis),
        title: &about,
        description: &format!("{about} along {}", along.label),
        x: Axis { label: along.label, scale: along.scale, write: along.write },
        y: Axis { label: "", scale, write },
        series: &series,
        threshold: None,
    };
    let drawing = Frame::both(|frame| chart.svg(frame))?;
    let left_out = if more > 0 { format!(" {more} more lines are not drawn.") } else { String::new() };
    let whiskers = if series.iter().flat_map(|of| &of.marks).any(|mark| mark.low < mark.high) {
        " with 95 % intervals"
    } else {
        ""
    };
    Some(Figure {
        title: if unit.is_empty() { about } else { format!("{about}, {unit}") },
        caption: format!("Means{whiskers}, along {}.{left_out}", along.label),
        legend: series.iter().filter(|of| !of.name.is_empty()).map(|of| entry(of.look, &of.name)).collect(),
        drawing,
        ..Figure::default()
    })
}

/// Watts saved against performance lost: up and to the left is better.
fn plane(analysis: &Analysis) -> Option<Figure> {
    let series: Vec<Series> = (analysis.trades.iter().take(MOST_LINES).enumerate())
        .map(|(nth, curve)| {
            let marks = curve.steps.iter().skip(1).filter_map(|step| {
                let (lost, saved) = (step.lost?, step.saved?);
                let title = format!("{}: {} saved, {} lost", step.clock, change(Some(saved)), change(Some(lost)));
                Some(Mark { x: lost.middle, y: saved.middle, low: saved.low, high: saved.high, title })
            });
            let start = Mark { x: 0.0, y: 0.0, low: 0.0, high: 0.0, title: curve.reference.clone() };
            let name = name(&Place { clock: None, ..curve.place.clone() }, analysis);
            Series { name, look: look(nth), joined: true, marks: std::iter::once(start).chain(marks).collect() }
        })
        .filter(|series| series.marks.len() > 1)
        .collect();
    if series.is_empty() {
        return None;
    }
    let axis = |label| Axis { label, scale: Scale::Linear, write: |value| digits(value) };
    let chart = LineChart {
        id: "trade",
        title: "Watts saved against performance lost",
        description: "Watts saved against performance lost, in per cent of full clock",
        x: axis("performance lost, %"),
        y: axis("watts saved, %"),
        series: &series,
        threshold: None,
    };
    let drawing = Frame::both(|frame| chart.svg(frame))?;
    Some(Figure {
        title: "Watts saved against performance lost".into(),
        caption: "From full clock at the origin downwards; up and to the left is better.".into(),
        legend: series.iter().map(|of| entry(of.look, &of.name)).collect(),
        drawing,
        ..Figure::default()
    })
}
