//! Renderings of [`Findings`](crate::findings::Findings): one self-contained HTML page, and text for the terminal.

mod figures;
pub mod html;
mod look;
mod ruler;
mod softirqs;
mod strip;
mod sweep;
pub mod terminal;
mod wording;
