//! Grouped bars: categories along the axis, one bar of each group in each category.

use crate::lines::{BOTTOM, LEFT, TOP, axes, whisker};
use crate::scale::{Axis, Placed, Scale};
use crate::svg::{Frame, Look, Mark, Svg};

/// The bar of one group in one category.
#[derive(Debug, Clone)]
pub enum Cell {
    Value(Mark),
    /// A missing value, with the reason; drawn as a dash, not as a bar without height.
    Missing(String),
}

/// Bars that belong together across the categories.
#[derive(Debug, Clone)]
pub struct Group {
    pub name: String,
    pub look: Look,
    pub cells: Vec<Cell>,
}

pub struct BarChart<'a> {
    pub id: &'a str,
    pub title: &'a str,
    pub categories: &'a [String],
    pub label: &'static str,
    pub y: Axis,
    pub groups: &'a [Group],
}

impl BarChart<'_> {
    /// The chart; `None` where nothing was measured.
    pub fn svg(&self, frame: Frame) -> Option<String> {
        let (right, bottom) = (frame.width - 14.0, frame.height - BOTTOM);
        let cells = || self.groups.iter().flat_map(|g| &g.cells);
        let heights = cells().flat_map(|cell| match cell {
            Cell::Value(mark) => vec![mark.y, mark.low, mark.high],
            Cell::Missing(_) => vec![],
        });
        let y = Placed::over(Scale::Linear, heights, (bottom, TOP))?;
        let said = cells().map(|cell| match cell {
            Cell::Value(mark) => mark.title.as_str(),
            Cell::Missing(reason) => reason,
        });
        let mut svg = Svg::new(frame, self.id, self.title, &said.collect::<Vec<_>>().join("; "));
        axes(&mut svg, frame, &y, &self.y);
        let slot = (right - LEFT) / self.categories.len() as f64;
        let thickness = (slot * 0.82 / self.groups.len() as f64).min(34.0);
        for (i, category) in self.categories.iter().enumerate() {
            let middle = LEFT + slot * (i as f64 + 0.5);
            svg.text("tick", "middle", (middle, bottom + 16.0), category);
            let first = middle - thickness * self.groups.len() as f64 / 2.0;
            for (j, group) in self.groups.iter().enumerate() {
                let left = first + thickness * j as f64;
                let centre = left + thickness / 2.0;
                let class = group.look.class();
                match group.cells.get(i) {
                    Some(Cell::Value(mark)) if Scale::Linear.takes(mark.y) => {
                        // A measured zero still shows as a line.
                        let height = (bottom - y.at(mark.y)).max(1.5);
                        let at = (left + 1.0, bottom - height);
                        svg.rectangle(&format!("bar {class}"), at, thickness - 2.0, height, &mark.title);
                        whisker(&mut svg, "over", centre, y.at(mark.low), y.at(mark.high));
                        if thickness >= 9.0 && height > 14.0 {
                            svg.mark(group.look, (centre, bottom - 7.0), &mark.title);
                        }
                    }
                    Some(Cell::Missing(reason)) => missing(&mut svg, centre, bottom, reason),
                    _ => missing(&mut svg, centre, bottom, "not measured here"),
                }
            }
        }
        svg.line("base", (LEFT, bottom), (right, bottom));
        svg.text("axis", "end", (right, frame.height - 6.0), self.label);
        Some(svg.finish())
    }
}

fn missing(svg: &mut Svg, x: f64, bottom: f64, reason: &str) {
    svg.rectangle("missing", (x - 2.5, bottom - 10.0), 5.0, 5.0, reason);
}
