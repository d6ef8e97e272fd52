//! Sums of jobs, and one program over time, as HTML pages.

use askama::Template;

use chart::page::Page;
use chart::{Axis, BarChart, Cell, Figure, Frame, Group, Look, Mark, Scale, Shape, entry};

use crate::history::{History, Period, Row, Version};
use crate::terminal::{Watts, answer, between, history_answer, hours, marks, percent, period, share, short_hash};
use crate::totals::{Part, Totals};

#[derive(Template)]
#[template(path = "fleet.html")]
struct Body<'a> {
    title: &'a str,
    label: Option<&'static str>,
    answer: Vec<String>,
    figures: Vec<Figure>,
    tables: Vec<Table>,
}

struct Table {
    title: String,
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

/// Programs and rows that a chart has room for.
const PROGRAMS: usize = 8;
const ROWS: usize = 14;

pub fn render(of: &Totals, watts: Watts, store: &str) -> String {
    let tables = match of.jobs {
        0 => Vec::new(),
        _ => vec![
            table("Programs by what the best lever would save", &of.programs),
            table(&format!("By {}", of.by), &of.groups),
        ],
    };
    let figures = [figure("programs", "Core hours that the best lever would save, by program", &of.programs)];
    let figures = figures.into_iter().flatten().collect();
    Body { title: "Which of all jobs would gain", label: of.label, answer: answer(of, watts), figures, tables }
        .page(store)
}

/// A program over time.
pub fn history(of: &History, watts: Watts, store: &str) -> String {
    let row = |row: &Row| {
        let (mpi, wait) = (row.mpi.map_or("-".into(), percent), row.wait.map_or("-".into(), share));
        let (nodes, step) = (format!("{:.1}", row.nodes), marks(of, &row.name).trim_start().to_owned());
        vec![row.name.clone(), row.jobs.to_string(), hours(row.core_hours), nodes, mpi, wait, step]
    };
    let rows = Table {
        title: format!("By {}", period(of.by)),
        head: vec!["From", "Jobs", "Core hours", "Nodes of a job", "In MPI", "Waiting", "Step"],
        rows: of.rows.iter().map(row).collect(),
    };
    let version = |of: &Version| {
        let hash = short_hash(of.hash.as_deref());
        vec![hash, of.jobs.to_string(), hours(of.core_hours), of.first_day.clone(), of.last_day.clone()]
    };
    let versions = Table {
        title: "Versions, by the content of the program's file".into(),
        head: vec!["Version", "Jobs", "Core hours", "First day", "Last day"],
        rows: of.versions.iter().map(version).collect(),
    };
    let figures = waiting(of).into_iter().collect();
    let title = format!("{} over time", of.program);
    Body { title: &title, label: of.label, answer: history_answer(of, watts), figures, tables: vec![rows, versions] }
        .page(store)
}

impl Body<'_> {
    fn page(&self, store: &str) -> String {
        let head_line = vec!["fleet".into(), store.to_owned()];
        Page { title: self.title, head_line, body: self.to_string(), ..Page::default() }.render()
    }
}

/// The share of waiting, row by row.
fn waiting(of: &History) -> Option<Figure> {
    let rows = &of.rows[of.rows.len().saturating_sub(ROWS)..];
    let cells = rows.iter().map(|row| match row.wait {
        Some(wait) => {
            let (low, high) = wait.interval.unwrap_or((wait.middle, wait.middle));
            let title = format!("{}: {}{}", row.name, share(wait), marks(of, &row.name));
            Cell::Value(Mark { x: 0.0, y: 100.0 * wait.middle, low: 100.0 * low, high: 100.0 * high, title })
        }
        None => Cell::Missing(format!("{}: no job tells it", row.name)),
    });
    let look = Look { colour: 1, shape: Shape::Circle, line: 0 };
    let groups = [Group { name: "waiting".into(), look, cells: cells.collect() }];
    // The month of a month's name, the day of a week's.
    let stepped = |row: &Row| if marks(of, &row.name).is_empty() { "" } else { "*" };
    let categories: Vec<String> =
        rows.iter().map(|row| row.name.rsplit('-').next().unwrap_or_default().to_owned() + stepped(row)).collect();
    let label = match of.by {
        Period::Month => "month (*: a step)",
        Period::Week => "first day of the week (*: a step)",
    };
    let y = Axis { label: "% of the jobs' time", scale: Scale::Linear, write: |value| format!("{value:.1}") };
    let title = "Waiting inside MPI";
    let chart = BarChart { id: "waiting", title, categories: &categories, label, y, groups: &groups };
    Some(Figure {
        title: format!("{title}, from {} to {}", rows.first()?.name, rows.last()?.name),
        caption: "The line is the interval of 95 %: what one user ran on one day is one draw.".into(),
        legend: vec![entry(look, "waiting")],
        drawing: Frame::both(|frame| chart.svg(frame))?,
        wide: true,
        ..Figure::default()
    })
}

fn table(title: &str, parts: &[Part]) -> Table {
    let row = |part: &Part| {
        let best =
            part.best.map_or("not judged".into(), |(lever, (low, high))| format!("{lever}: {}", between(low, high)));
        vec![part.name.clone(), part.jobs.to_string(), hours(part.core_hours), percent(part.mpi), best]
    };
    let head = vec!["Name", "Jobs", "Core hours", "In MPI", "Best lever"];
    Table { title: title.to_owned(), head, rows: parts.iter().map(row).collect() }
}

fn figure(id: &str, title: &str, parts: &[Part]) -> Option<Figure> {
    let parts: Vec<&Part> = parts.iter().filter(|part| part.best.is_some()).take(PROGRAMS).collect();
    let cells = parts.iter().filter_map(|part| {
        let (lever, (low, high)) = part.best?;
        let of = |share: f64| (share * part.core_hours).max(0.0);
        let title = format!("{}: {lever}, {} .. {} core hours", part.name, hours(of(low)), hours(of(high)));
        Some(Cell::Value(Mark { x: 0.0, y: of((low + high) / 2.0), low: of(low), high: of(high), title }))
    });
    let look = Look { colour: 1, shape: Shape::Circle, line: 0 };
    let groups = [Group { name: "best lever".into(), look, cells: cells.collect() }];
    let y = Axis { label: "core hours", scale: Scale::Linear, write: hours };
    let draw = |frame: Frame| {
        // Characters between two bars; the table has the whole names.
        let room = ((frame.width - 80.0) / parts.len() as f64 / 7.1) as usize;
        let categories: Vec<String> = parts.iter().map(|part| cut(&part.name, room)).collect();
        BarChart { id, title, categories: &categories, label: "", y, groups: &groups }.svg(frame)
    };
    Some(Figure {
        title: title.to_owned(),
        caption: "The bar is the middle of what the program's jobs would have saved, the line its least and most."
            .into(),
        legend: vec![entry(look, "best lever")],
        drawing: Frame::both(draw)?,
        wide: true,
        ..Figure::default()
    })
}

fn cut(name: &str, most: usize) -> String {
    match name.chars().count() <= most {
        true => name.to_owned(),
        false => name.chars().take(most.saturating_sub(1)).collect::<String>() + "…",
    }
}
