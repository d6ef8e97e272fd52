//! Thresholds of the decisions.

use machine::Nanoseconds;
use serde::{Deserialize, Serialize};

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
    /// The share of the windows so far that trials may have lost, with what the next one may lose before it is taken back.
    pub stake: f64,
}

/// The period of `moves_an_hour`.
pub(super) const HOUR: Nanoseconds = Nanoseconds(3600 * 1_000_000_000);

impl Default for Settings {
    fn default() -> Self {
        Settings {
            steady: 4,
            minimal_gain: 0.03,
            settling: 0,
            judged: 4,
            better: 0.75,
            cooling: 10,
            moves_an_hour: 12,
            stake: 0.01,
        }
    }
}
