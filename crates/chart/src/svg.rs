//! The SVG elements that the charts consist of.

use std::fmt::{Display, Write};

/// The size of a chart, in CSS pixels at its natural width.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Frame {
    /// Distinguishes the ids of a chart's two renderings.
    pub name: &'static str,
    pub width: f64,
    pub height: f64,
}

impl Frame {
    /// The size beside another chart on a desktop.
    pub const WIDE: Frame = Frame { name: "wide", width: 540.0, height: 340.0 };
    /// The size alone on a phone of 360 px.
    pub const NARROW: Frame = Frame { name: "narrow", width: 320.0, height: 290.0 };

    /// A drawing in both sizes, of which the style sheet shows one.
    pub fn both(draw: impl Fn(Frame) -> Option<String>) -> Option<String> {
        Some(draw(Frame::WIDE)? + &draw(Frame::NARROW)?)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Circle,
    Square,
    Up,
    Down,
    Left,
    Right,
    Diamond,
}

/// Colour class, shape, and number of the line style (0 is solid with filled marks).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    pub colour: u8,
    pub shape: Shape,
    pub line: u8,
}

impl Look {
    /// Grey, for marks that belong to no contender.
    pub const PLAIN: Look = Look { colour: 6, shape: Shape::Circle, line: 0 };

    /// The CSS classes of a line or mark with this look.
    pub fn class(self) -> String {
        format!("s{} l{}", self.colour, self.line.min(3))
    }
}

/// A value with its interval and its tooltip.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    pub x: f64,
    pub y: f64,
    pub low: f64,
    pub high: f64,
    pub title: String,
}

/// Text escaped for HTML and SVG, in content and in quoted attributes. Control characters, which neither allows, become U+FFFD.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() && c != '\n' => out.push('\u{FFFD}'),
            c => out.push(c),
        }
    }
    out
}

/// Width in pixels of a character of DejaVu Sans, the widest of the usual system fonts, at 12 px.
const CHARACTER: f64 = 7.1;

/// A name cut with an ellipsis to fit `room` pixels; `None` where not even a word fits.
pub fn fitting(name: &str, room: f64) -> Option<String> {
    let fits = (room / CHARACTER).max(0.0) as usize;
    match name.chars().count() {
        n if n <= fits => Some(name.to_string()),
        _ if fits >= 7 => Some(name.chars().take(fits - 1).collect::<String>().trim_end().to_string() + "…"),
        _ => None,
    }
}

/// A coordinate: tenths of a pixel are enough.
pub fn px(value: f64) -> impl Display {
    (value * 10.0).round() / 10.0
}

/// An SVG document in the making.
pub struct Svg(String);

impl Svg {
    /// `id` must be unique in the page and made of letters, digits and `-`.
    pub fn new(frame: Frame, id: &str, title: &str, description: &str) -> Self {
        let Frame { name, width, height } = frame;
        let id = format!("{id}-{name}");
        let (title, description) = (escape(title), escape(description));
        Svg(format!(
            "<svg class=\"chart {name}\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-labelledby=\"{id}-t {id}-d\"><title id=\"{id}-t\">{title}</title>\
             <desc id=\"{id}-d\">{description}</desc>"
        ))
    }

    pub fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let (x1, y1, x2, y2) = (px(x1), px(y1), px(x2), px(y2));
        self.put(format_args!("<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>"));
    }

    pub fn rectangle(&mut self, class: &str, (x, y): (f64, f64), width: f64, height: f64, title: &str) {
        let (x, y, width, height) = (px(x), px(y), px(width.max(0.0)), px(height.max(0.0)));
        self.put(format_args!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"><title>{}</title></rect>",
            escape(title)
        ));
    }

    pub fn polyline(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut path = String::new();
        for (x, y) in points {
            let _ = write!(path, "{},{} ", px(*x), px(*y));
        }
        self.put(format_args!("<polyline class=\"{class}\" points=\"{}\"/>", path.trim_end()));
    }

    /// `anchor` is `start`, `middle` or `end`.
    pub fn text(&mut self, class: &str, anchor: &str, (x, y): (f64, f64), text: &str) {
        let (x, y) = (px(x), px(y));
        self.put(format_args!(
            "<text class=\"{class}\" text-anchor=\"{anchor}\" x=\"{x}\" y=\"{y}\">{}</text>",
            escape(text)
        ));
    }

    /// A data mark of class `mark` around `(x, y)`.
    pub fn mark(&mut self, look: Look, (x, y): (f64, f64), title: &str) {
        let title = escape(title);
        let class = look.class();
        match outline(look.shape, x, y) {
            None => {
                let (x, y) = (px(x), px(y));
                self.put(format_args!(
                    "<circle class=\"mark {class}\" cx=\"{x}\" cy=\"{y}\" r=\"3.6\"><title>{title}</title></circle>"
                ));
            }
            Some(path) => {
                self.put(format_args!("<path class=\"mark {class}\" d=\"{path}\"><title>{title}</title></path>"));
            }
        }
    }

    pub fn finish(mut self) -> String {
        self.0.push_str("</svg>");
        self.0
    }

    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        let _ = self.0.write_fmt(element);
    }
}

/// The outline of a shape; `None` for a circle, which SVG has.
fn outline(shape: Shape, x: f64, y: f64) -> Option<String> {
    let polygon = |corners: &[(f64, f64)]| {
        let mut path = String::new();
        for (i, (dx, dy)) in corners.iter().enumerate() {
            let _ = write!(path, "{}{} {}", if i == 0 { 'M' } else { 'L' }, px(x + dx), px(y + dy));
        }
        path.push('Z');
        Some(path)
    };
    match shape {
        Shape::Circle => None,
        Shape::Square => polygon(&[(-3.3, -3.3), (3.3, -3.3), (3.3, 3.3), (-3.3, 3.3)]),
        Shape::Up => polygon(&[(0.0, -4.4), (4.2, 3.2), (-4.2, 3.2)]),
        Shape::Down => polygon(&[(0.0, 4.4), (4.2, -3.2), (-4.2, -3.2)]),
        Shape::Left => polygon(&[(-4.4, 0.0), (3.2, 4.2), (3.2, -4.2)]),
        Shape::Right => polygon(&[(4.4, 0.0), (-3.2, 4.2), (-3.2, -4.2)]),
        Shape::Diamond => polygon(&[(0.0, -4.8), (4.2, 0.0), (0.0, 4.8), (-4.2, 0.0)]),
    }
}

/// The sample of a look in a legend; hidden from screen readers, which have the name beside it.
pub fn swatch(look: Look) -> String {
    let class = look.class();
    let glyph = match outline(look.shape, 15.0, 7.0) {
        None => format!("<circle class=\"glyph {class}\" cx=\"15\" cy=\"7\" r=\"3.6\"/>"),
        Some(path) => format!("<path class=\"glyph {class}\" d=\"{path}\"/>"),
    };
    format!(
        "<svg class=\"swatch\" viewBox=\"0 0 30 14\" width=\"30\" height=\"14\" aria-hidden=\"true\">\
         <line class=\"series {class}\" x1=\"0\" y1=\"7\" x2=\"30\" y2=\"7\"/>{glyph}</svg>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_to_their_room() {
        assert_eq!(fitting("engine-shm at app", 200.0).as_deref(), Some("engine-shm at app"));
        assert_eq!(fitting("engine-shm at app", 90.0).as_deref(), Some("engine-shm…"));
        assert_eq!(fitting("engine-shm at app", 30.0), None);
    }

    #[test]
    fn nothing_escapes_its_element() {
        let mut svg = Svg::new(Frame::WIDE, "x", "</title><script>", "\"'&");
        svg.text("t", "start", (0.0, 0.0), "<b onload='x'>\u{1b}");
        let text = svg.finish();
        assert!(!text.contains("<script") && !text.contains("<b ") && !text.contains('\u{1b}'), "{text}");
        assert!(text.contains("&lt;script&gt;") && text.contains("&quot;&#39;&amp;"));
    }
}
