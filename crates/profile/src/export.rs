//! Exports of a timeline to the formats of other tools.

mod expansion;
mod goal;
mod perfetto;
#[cfg(test)]
mod tests;

pub use expansion::Pattern;
pub use goal::{Goal, goal};
pub use perfetto::{Perfetto, perfetto};
