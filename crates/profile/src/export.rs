//! A timeline in the formats of others.

mod expansion;
mod goal;
mod perfetto;
#[cfg(test)]
mod tests;

pub use expansion::Pattern;
pub use goal::{Goal, goal};
pub use perfetto::{Perfetto, perfetto};
