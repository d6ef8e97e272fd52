//! Thresholds of the decisions.

use machine::Nanoseconds;
use serde::{Deserialize, Serialize};

const SECOND: u64 = 1_000_000_000;

/// Thresholds of a decider. Windows are those of the observations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Windows in a row in each of which a proposal must promise the minimal gain: noise does not last.
    pub steady: usize,
    /// The share of the job's time that a proposal must save at least.
    pub minimal_gain: f64,
    /// Windows after a move that are not judged, since caches are cold.
    pub settling: usize,
    /// Further windows, by which the move is judged.
    pub judged: usize,
    /// The share of pairs of a window before a move and one after it in which the later must be better for the move to
    /// stay; without any effect it is half.
    pub better: f64,
    /// Windows without a proposal after a move was judged.
    pub cooling: usize,
    /// Most moves within an hour, without those that undo a move.
    pub moves_an_hour: usize,
    /// Time for which a move that did not help is barred. Each further time doubles the bar, up to a day.
    pub bar: Nanoseconds,
}

/// The longest time that a move is barred.
pub(super) const LONGEST_BAR: Nanoseconds = Nanoseconds(24 * 3600 * SECOND);
/// The period of `moves_an_hour`.
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
