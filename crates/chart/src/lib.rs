//! Building blocks of the HTML reports: the common page with its style sheet, charts as SVG text, figures in words.
//!
//! Charts are our own SVG rather than a plotting library's: every colour is a CSS class, so one file serves light, dark
//! and print; every mark carries its figures as a `<title>`; each chart is drawn for a desktop and for a phone, so that
//! its text keeps its size.
#![forbid(unsafe_code)]

mod bars;
#[cfg(feature = "browser")]
pub mod browser;
pub mod clock;
mod figure;
mod lines;
pub mod number;
pub mod page;
mod scale;
mod svg;

pub use bars::{BarChart, Cell, Group};
pub use figure::{Absences, Entry, Figure, Section, entry};
pub use lines::{LineChart, Series, Threshold};
pub use scale::{Axis, Placed, Scale};
pub use svg::{Frame, Look, Mark, Shape, Svg, escape, fitting, swatch};
