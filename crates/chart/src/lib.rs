//! What the HTML reports are made of: charts as SVG text, figures in words, and the style sheet that all share.
//!
//! Charts are our own SVG rather than a plotting library's: every colour is a CSS class, so one file serves light, dark
//! and print; every mark carries its figures as a `<title>`; each chart is drawn for a desk and for a phone, so that its
//! text keeps its size.
#![forbid(unsafe_code)]

mod bars;
#[cfg(feature = "browser")]
pub mod browser;
pub mod clock;
mod figure;
mod lines;
pub mod number;
mod scale;
mod svg;

pub use bars::{BarChart, Cell, Group};
pub use figure::{Absences, Entry, Figure, entry};
pub use lines::{LineChart, Series, Threshold};
pub use scale::{Axis, Placed, Scale};
pub use svg::{CHARACTER, Frame, Look, Mark, Shape, Svg, escape, fitting, swatch};

/// Colours, type, tables, figures and marks; light, dark, phone and print. A report adds what only it has.
pub const STYLE: &str = include_str!("style.css");

/// The text of a page as HTML allows it: control characters become U+FFFD.
pub fn cleaned(page: &str) -> String {
    page.replace(|c: char| c.is_control() && c != '\n', "\u{FFFD}")
}
