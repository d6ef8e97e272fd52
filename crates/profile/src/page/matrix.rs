//! A heat map of the traffic between ranks: a row is a sender, a column a receiver.

use std::collections::BTreeMap;

use chart::Figure;
use machine::count;

use super::heat::{self, LogShades};
use super::plot::{Plot, names, rectangle};
use crate::summary::{Matrix, Summary};
use crate::words;

/// Greatest number of cells across; with more ranks, several share a cell.
const CELLS: usize = 64;
/// Greatest number of worlds that are drawn.
const WORLDS: usize = 4;

/// Traffic from the ranks of a row to the ranks of a column.
#[derive(Default, Clone, Copy)]
struct Traffic {
    messages: u64,
    bytes: u64,
    operations: u64,
    operation_bytes: u64,
}

impl Traffic {
    fn add(&mut self, cell: &[u64; 6]) {
        let [_, _, messages, bytes, operations, operation_bytes] = *cell;
        self.messages = self.messages.saturating_add(messages);
        self.bytes = self.bytes.saturating_add(bytes);
        self.operations = self.operations.saturating_add(operations);
        self.operation_bytes = self.operation_bytes.saturating_add(operation_bytes);
    }

    fn all_bytes(&self) -> f64 {
        self.bytes as f64 + self.operation_bytes as f64
    }

    fn all_calls(&self) -> f64 {
        self.messages as f64 + self.operations as f64
    }

    fn words(&self) -> String {
        let mut parts = Vec::new();
        if self.messages > 0 {
            let each = words::bytes(self.bytes as f64 / self.messages as f64);
            let (messages, bytes) = (count::of(self.messages, "message"), words::bytes(self.bytes as f64));
            parts.push(format!("{messages}, {bytes} ({each} each)"));
        }
        if self.operations > 0 {
            let operations = count::of(self.operations, "one-sided operation");
            parts.push(format!("{operations}, {}", words::bytes(self.operation_bytes as f64)));
        }
        parts.join("; ")
    }
}

pub fn figures(summary: &Summary) -> Vec<Figure> {
    let several = summary.matrices.len() > 1;
    let drawn = summary.matrices.iter().enumerate().filter(|(_, matrix)| matrix.ranks > 0);
    let mut figures: Vec<Figure> = drawn.take(WORLDS).map(|(i, matrix)| figure(i, matrix, several)).collect();
    if let (Some(last), true) = (figures.last_mut(), summary.matrices.len() > WORLDS) {
        last.missing.push(format!(
            "{} more MPI_COMM_WORLDs are not drawn; plimsoll report DIR --json has them all",
            summary.matrices.len() - WORLDS
        ));
    }
    figures
}

fn figure(nth: usize, matrix: &Matrix, several: bool) -> Figure {
    let ranks = matrix.ranks as usize;
    let each = ranks.div_ceil(CELLS);
    let count = ranks.div_ceil(each);
    let mut cells = BTreeMap::<(usize, usize), Traffic>::new();
    let mut unknown = 0;
    for cell in &matrix.cells {
        let [from, to] = [cell[0], cell[1]].map(|rank| usize::try_from(rank).ok().filter(|rank| *rank < ranks));
        match (from, to) {
            (Some(from), Some(to)) => cells.entry((from / each, to / each)).or_default().add(cell),
            _ => unknown += 1,
        }
    }
    let title = match several {
        true => format!("World {nth}: who sends to whom"),
        false => "Who sends to whom".into(),
    };
    let mut missing = Vec::new();
    if unknown > 0 {
        missing.push(format!("{unknown} entries name ranks that this world has not; they are left out"));
    }
    let (Some(bytes), Some(calls)) = (
        LogShades::over(cells.values().map(Traffic::all_bytes)).or_else(|| LogShades::over([1.0].into_iter())),
        LogShades::over(cells.values().map(Traffic::all_calls)),
    ) else {
        missing.push("no rank sent a message to another".into());
        return Figure { title, missing, ..Figure::default() };
    };
    let of = |bin: usize| {
        let (first, last) = (bin * each, (bin * each + each - 1).min(ranks - 1));
        if first == last { format!("rank {first}") } else { format!("ranks {first}-{last}") }
    };
    let mut marks = String::new();
    let gap = if count <= 32 { 0.06 } else { 0.0 };
    for ((from, to), traffic) in &cells {
        if traffic.all_calls() == 0.0 {
            continue;
        }
        let class = format!("heat b{} c{}", bytes.shade(traffic.all_bytes()), calls.shade(traffic.all_calls()));
        let title = format!("{} to {}: {}", of(*from), of(*to), traffic.words());
        let at = (*to as f64 + gap / 2.0, *from as f64 + gap / 2.0);
        rectangle(&mut marks, &class, at, (1.0 - gap, 1.0 - gap), &title);
    }
    let id = format!("matrix-{nth}");
    let pairs = cells.values().filter(|traffic| traffic.all_calls() > 0.0).count();
    let most = cells.iter().max_by(|a, b| a.1.all_bytes().total_cmp(&b.1.all_bytes()));
    let most = most.map(|((from, to), traffic)| format!("most from {} to {}: {}", of(*from), of(*to), traffic.words()));
    let description = format!("{pairs} of {} cells hold traffic; {}", count * count, most.unwrap_or_default());
    let axis = |room: usize| names(count, room, |bin| (bin * each).to_string());
    let plot = Plot {
        id: &id,
        title: &title,
        description: &description,
        class: "square",
        units: (count as f64, count as f64),
        marks,
        x: axis(8),
        y: axis(16),
        x_label: "to rank",
        y_label: "from rank",
        data: String::new(),
    };
    let write = |bounds: Vec<f64>, write: fn(f64) -> String| bounds.into_iter().map(write).collect::<Vec<_>>();
    let drawing = format!(
        "<fieldset class=\"choose\"><legend>Shade by</legend>\
         <label><input type=\"radio\" name=\"{id}-by\" class=\"by-bytes\" checked>bytes</label>\
         <label><input type=\"radio\" name=\"{id}-by\" class=\"by-calls\">messages</label></fieldset>{}\
         <div class=\"of-bytes\">{}</div><div class=\"of-calls\">{}</div>",
        plot.html(),
        heat::legend("bytes, log scale", &write(bytes.bounds(), words::bytes)),
        heat::legend("messages, log scale", &write(calls.bounds(), words::amount)),
    );
    let caption = match each {
        1 => "Messages begun to a rank, and one-sided operations. Collectives are not part of it.".to_string(),
        _ => format!(
            "Messages begun to a rank, and one-sided operations; {each} ranks share a cell, added up. Collectives are \
             not part of it."
        ),
    };
    Figure { title, drawing, caption, missing, tall: true, ..Figure::default() }
}
