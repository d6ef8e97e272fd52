//! Lines with marks and interval bars.

use crate::scale::{Axis, Placed};
use crate::svg::{Frame, Look, Mark, Svg};

/// One line of a chart.
#[derive(Debug, Clone)]
pub struct Series {
    pub name: String,
    pub look: Look,
    /// Whether marks are joined; false for a scatter plot.
    pub joined: bool,
    pub marks: Vec<Mark>,
}

/// A horizontal line with a label.
#[derive(Debug, Clone)]
pub struct Threshold {
    pub y: f64,
    pub label: String,
}

/// Values against sizes or time.
pub struct LineChart<'a> {
    pub id: &'a str,
    pub title: &'a str,
    pub description: &'a str,
    pub x: Axis,
    pub y: Axis,
    pub series: &'a [Series],
    pub threshold: Option<Threshold>,
}

/// Room left of the plot for the labels of the y axis.
pub(super) const LEFT: f64 = 66.0;
pub(super) const TOP: f64 = 24.0;
pub(super) const BOTTOM: f64 = 40.0;

impl LineChart<'_> {
    /// The chart; `None` where no mark has a place on both axes: an empty chart says nothing.
    pub fn svg(&self, frame: Frame) -> Option<String> {
        let (right, bottom) = (frame.width - 14.0, frame.height - BOTTOM);
        let marks =
            || self.series.iter().flat_map(|s| &s.marks).filter(|m| self.x.scale.takes(m.x) && self.y.scale.takes(m.y));
        let x = Placed::over(self.x.scale, marks().map(|m| m.x), (LEFT, right))?;
        let heights = marks().flat_map(|m| [m.y, m.low, m.high]).chain(self.threshold.iter().map(|t| t.y));
        let y = Placed::over(self.y.scale, heights, (bottom, TOP))?;

        let mut svg = Svg::new(frame, self.id, self.title, self.description);
        axes(&mut svg, frame, &y, &self.y);
        let ticks = x.ticks(54.0);
        for tick in &ticks {
            svg.line("grid", (x.at(*tick), TOP), (x.at(*tick), bottom));
            svg.text("tick", "middle", (x.at(*tick), bottom + 16.0), &self.x.tick(*tick));
        }
        svg.text("axis", "end", (right, frame.height - 6.0), self.x.label);
        svg.line("base", (LEFT, bottom), (right, bottom));
        if let Some(threshold) = &self.threshold {
            svg.line("threshold", (LEFT, y.at(threshold.y)), (right, y.at(threshold.y)));
            svg.text("note", "end", (right - 2.0, y.at(threshold.y) - 5.0), &threshold.label);
        }
        for series in self.series {
            let class = series.look.class();
            let drawn: Vec<_> =
                series.marks.iter().filter(|m| self.x.scale.takes(m.x) && self.y.scale.takes(m.y)).collect();
            if series.joined && drawn.len() > 1 {
                let points: Vec<_> = drawn.iter().map(|m| (x.at(m.x), y.at(m.y))).collect();
                svg.polyline(&format!("series {class}"), &points);
            }
            for mark in &drawn {
                whisker(&mut svg, &class, x.at(mark.x), y.at(mark.low), y.at(mark.high));
            }
            for mark in &drawn {
                svg.mark(series.look, (x.at(mark.x), y.at(mark.y)), &mark.title);
            }
        }
        Some(svg.finish())
    }
}

/// The y axis: its label above it, grid lines and tick labels.
pub(super) fn axes(svg: &mut Svg, frame: Frame, y: &Placed, axis: &Axis) {
    svg.text("axis", "start", (2.0, 12.0), axis.label);
    for tick in y.ticks(30.0) {
        svg.line("grid", (LEFT, y.at(tick)), (frame.width - 14.0, y.at(tick)));
        svg.text("tick", "end", (LEFT - 8.0, y.at(tick) + 4.0), &axis.tick(tick));
    }
}

/// An interval bar with caps; nothing where the interval is thinner than the mark.
pub(super) fn whisker(svg: &mut Svg, class: &str, x: f64, low: f64, high: f64) {
    if (low - high).abs() < 1.0 {
        return;
    }
    let class = format!("whisker {class}");
    svg.line(&class, (x, low), (x, high));
    svg.line(&class, (x - 3.5, low), (x + 3.5, low));
    svg.line(&class, (x - 3.5, high), (x + 3.5, high));
}
