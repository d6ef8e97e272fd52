//! A plot that fits any width: marks in an SVG, which is stretched; text as HTML beside the SVG, which is not.

use std::fmt::Write;

use chart::{Placed, Scale, escape};

/// The height, in SVG units, of a plot with columns; the width is one unit for each column.
pub const HEIGHT: f64 = 1000.0;

/// A label on an axis; `at`: its place, as a share of the axis's length.
pub struct Tick {
    pub at: f64,
    pub text: String,
}

pub struct Plot<'a> {
    /// Unique in the page; letters, digits and `-`.
    pub id: &'a str,
    pub title: &'a str,
    pub description: &'a str,
    /// Further CSS classes, which set the plot's height.
    pub class: &'a str,
    /// Width and height in SVG units.
    pub units: (f64, f64),
    /// SVG elements.
    pub marks: String,
    pub x: Vec<Tick>,
    /// Ticks of the vertical axis, counted from the top.
    pub y: Vec<Tick>,
    pub x_label: &'a str,
    pub y_label: &'a str,
    /// Attributes of the plot for the page's script.
    pub data: String,
}

impl Plot<'_> {
    pub fn html(&self) -> String {
        let Plot { id, class, units: (width, height), marks, data, .. } = self;
        let mut grid = String::new();
        for tick in &self.y {
            let y = unit(tick.at * height);
            let _ = write!(grid, "<line class=\"grid\" x1=\"0\" x2=\"{width}\" y1=\"{y}\" y2=\"{y}\"/>");
        }
        let words = |ticks: &[Tick], side: &str| {
            let word = |t: &Tick| {
                format!("<span style=\"{side}:{}%\">{}</span>", unit(t.at.clamp(0.0, 1.0) * 100.0), escape(&t.text))
            };
            ticks.iter().map(word).collect::<String>()
        };
        // Axis labels are hidden from screen readers: the description covers them.
        format!(
            "<div class=\"plot {class}\" id=\"{id}\"{data}><div class=\"y-label\" aria-hidden=\"true\">{}</div>\
             <div class=\"ys\" aria-hidden=\"true\">{}</div>\
             <svg class=\"area\" viewBox=\"0 0 {width} {height}\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-labelledby=\"{id}-t {id}-d\"><title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>\
             {grid}{marks}</svg><div class=\"xs\" aria-hidden=\"true\">{}</div>\
             <div class=\"x-label\" aria-hidden=\"true\">{}</div></div>",
            escape(self.y_label),
            words(&self.y, "top"),
            escape(self.title),
            escape(self.description),
            words(&self.x, "left"),
            escape(self.x_label),
        )
    }
}

/// A coordinate of an SVG, to a hundredth.
pub fn unit(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// A rectangle; `title`: its hover text, empty for none.
pub fn rectangle(out: &mut String, class: &str, (x, y): (f64, f64), (width, height): (f64, f64), title: &str) {
    let (x, y, width, height) = (unit(x), unit(y), unit(width), unit(height));
    let _ = write!(out, "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"");
    match title.is_empty() {
        true => out.push_str("/>"),
        false => {
            let _ = write!(out, "><title>{}</title></rect>", escape(title));
        }
    }
}

/// Ticks of a linear axis from 0 at the bottom to `top`, and the height of one unit of value.
pub fn heights(top: f64, write: impl Fn(f64) -> String) -> (Vec<Tick>, f64) {
    let Some(axis) = Placed::over(Scale::Linear, [top].into_iter(), (HEIGHT, 0.0)) else { return (vec![], 0.0) };
    let ticks = axis.ticks(HEIGHT / 5.5).into_iter();
    let ticks = ticks.map(|value| Tick { at: axis.at(value) / HEIGHT, text: write(value) }).collect();
    (ticks, (HEIGHT - axis.at(top)) / if top > 0.0 { top } else { 1.0 })
}

/// Ticks at round times between `from` and `to`.
pub fn moments(from: f64, to: f64, write: impl Fn(f64) -> String) -> Vec<Tick> {
    let length = to - from;
    if !length.is_finite() || length <= 0.0 {
        return vec![];
    }
    let unit = 10_f64.powf((length / 6.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * unit).find(|s| length / s <= 7.0).unwrap_or(length);
    let first = (from / step).ceil() as i64;
    let moments = (first..).map(|n| n as f64 * step).take_while(|at| *at <= to - length * 0.015).take(20);
    moments.map(|at| Tick { at: (at - from) / length, text: write(at) }).collect()
}

/// At most `room` labels for `count` columns or rows, each at the middle of its own.
pub fn names(count: usize, room: usize, name: impl Fn(usize) -> String) -> Vec<Tick> {
    let step = [1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128, 200, 256, 500, 512]
        .into_iter()
        .find(|step| count.div_ceil(*step) <= room)
        .unwrap_or(count.div_ceil(room.max(1)).max(1));
    let at = |i: usize| Tick { at: (i as f64 + 0.5) / count as f64, text: name(i) };
    (0..count).step_by(step).map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_stay_on_their_axis_and_are_few() {
        for top in [1e-9, 0.3, 1.0, 7.0, 1e6] {
            let (ticks, scale) = heights(top, |v| v.to_string());
            assert!((2..=8).contains(&ticks.len()), "{top}: {}", ticks.len());
            assert!(top * scale <= HEIGHT && top * scale > HEIGHT * 0.8);
        }
        for (from, to) in [(0.0, 0.004), (3.0, 3.2), (0.0, 86400.0), (5.0, 5.0)] {
            let ticks = moments(from, to, |v| v.to_string());
            assert!(ticks.len() <= 8 && ticks.iter().all(|t| (0.0..=1.0).contains(&t.at)), "{from} {to}");
            assert_eq!(ticks.is_empty(), from == to);
        }
        assert_eq!(names(1000, 16, |i| i.to_string()).len(), 16);
        assert!(names(0, 8, |i| i.to_string()).is_empty());
    }
}
