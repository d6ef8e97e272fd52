//! What a decision must pass before ranks are moved, and afterwards.

use machine::Nanoseconds;
use serde::{Deserialize, Serialize};

const SECOND: u64 = 1_000_000_000;

/// The daemon's patience. Windows are those of the observations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Windows in a row in each of which a proposal must promise the minimal gain: what noise makes does not last.
    pub steady: usize,
    /// The share of the job's time that a proposal must save at least.
    pub minimal_gain: f64,
    /// Windows after a move that say nothing of it, since caches are cold.
    pub settling: usize,
    /// Windows after these by which a move is judged.
    pub judged: usize,
    /// Of all pairs of a window before a move and one after it, the share in which the later is better, for the move to
    /// stay. Half is what no effect gives.
    pub better: f64,
    /// Windows without a proposal after a move was judged.
    pub cooling: usize,
    /// Moves within an hour, those that take a move back not counted.
    pub moves_an_hour: usize,
    /// How long a move that did not help is not tried again. Each further time doubles it, up to a day.
    pub bar: Nanoseconds,
}

/// The longest time that a move is barred.
pub(super) const LONGEST_BAR: Nanoseconds = Nanoseconds(24 * 3600 * SECOND);
/// The time that `moves_an_hour` is of.
pub(super) const HOUR: Nanoseconds = Nanoseconds(3600 * SECOND);

impl Default for Settings {
    fn default() -> Self {
        Settings {
            steady: 5,
            minimal_gain: 0.03,
            settling: 2,
            judged: 5,
            better: 0.75,
            cooling: 10,
            moves_an_hour: 12,
            bar: Nanoseconds(120 * SECOND),
        }
    }
}
