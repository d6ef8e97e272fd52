//! Sums of jobs as one HTML page.

use askama::Template;

use chart::page::Page;
use chart::{Axis, BarChart, Cell, Figure, Frame, Group, Look, Mark, Scale, Shape, entry};

use crate::terminal::{answer, between, hours, percent};
use crate::totals::{Part, Totals};

#[derive(Template)]
#[template(path = "fleet.html")]
struct Body {
    /// What the jobs are, where they are no jobs of this centre.
    label: Option<String>,
    answer: Vec<String>,
    figures: Vec<Figure>,
    tables: Vec<Table>,
}

struct Table {
    title: String,
    rows: Vec<[String; 5]>,
}

/// Groups that a chart has room for.
const CHARTED: usize = 14;

pub fn render(of: &Totals, watts: Option<f64>, store: &str, label: Option<String>) -> String {
    let tables = match of.jobs {
        0 => Vec::new(),
        _ => vec![
            table("Programs by what the best lever would save", &of.programs),
            table(&format!("By {}", of.by), &of.groups),
        ],
    };
    let figures = [figure("programs", "Core hours that the best lever would save, by program", &of.programs)];
    let body = Body { label, answer: answer(of, watts), figures: figures.into_iter().flatten().collect(), tables };
    let head_line = vec!["fleet".into(), store.to_owned()];
    Page { title: "Which of all jobs would gain", head_line, body: body.to_string(), ..Page::default() }.render()
}

fn table(title: &str, parts: &[Part]) -> Table {
    let row = |part: &Part| {
        let best =
            part.best.map_or("not judged".into(), |(lever, (low, high))| format!("{lever}: {}", between(low, high)));
        [part.name.clone(), part.jobs.to_string(), hours(part.core_hours), percent(part.mpi), best]
    };
    Table { title: title.to_owned(), rows: parts.iter().map(row).collect() }
}

fn figure(id: &str, title: &str, parts: &[Part]) -> Option<Figure> {
    let parts: Vec<&Part> = parts.iter().filter(|part| part.best.is_some()).take(CHARTED).collect();
    let cells = parts.iter().filter_map(|part| {
        let (lever, (low, high)) = part.best?;
        let of = |share: f64| (share * part.core_hours).max(0.0);
        let title = format!("{}: {lever}, {} .. {} core hours", part.name, hours(of(low)), hours(of(high)));
        Some(Cell::Value(Mark { x: 0.0, y: of((low + high) / 2.0), low: of(low), high: of(high), title }))
    });
    let look = Look { colour: 1, shape: Shape::Circle, line: 0 };
    let groups = [Group { name: "best lever".into(), look, cells: cells.collect() }];
    let categories: Vec<String> = parts.iter().map(|part| part.name.clone()).collect();
    let y = Axis { label: "core hours", scale: Scale::Linear, write: hours };
    let chart = BarChart { id, title, categories: &categories, label: "", y, groups: &groups };
    Some(Figure {
        title: title.to_owned(),
        caption: "The bar is the middle of what the program's jobs would have saved, the line its least and most."
            .into(),
        legend: vec![entry(look, "best lever")],
        drawing: Frame::both(|frame| chart.svg(frame))?,
        wide: true,
        ..Figure::default()
    })
}
