//! Renderings of [`Findings`](crate::findings::Findings): one self-contained HTML page, and text for the terminal.
//!
//! Charts are our own SVG ([`chart`]) rather than a plotting library's: every colour is a CSS class, so one file serves
//! light, dark and print; every mark carries its figures as a `<title>`; each chart is drawn for a desk and for a phone,
//! so that its text keeps its size.

pub mod chart;
mod clock;
mod figures;
pub mod html;
mod look;
mod softirqs;
mod sweep;
pub mod terminal;
mod wording;
