//! What to do with the ranks.

use machine::costs::Interval;

use crate::problem::Problem;
use crate::search::Found;

machine::named! {
    /// An answer.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Advice {
        /// The mapping that was found is better.
        Move = "move",
        /// None is better by as much as counts.
        Keep = "keep",
        /// Whether it is better is not known.
        CannotTell = "cannot tell",
    }
}

/// A gain of less than this is none.
pub const LEAST: f64 = 0.01;

/// Less than this is expected of nobody's replay: whether it is there only a run tells.
const EXPECTED: f64 = 0.03;

impl Advice {
    /// By the time under what was found over the recorded one.
    pub fn of(found: &Found, problem: &Problem, time: &Interval) -> Advice {
        match () {
            () if found.seats == problem.seats => Advice::Keep,
            // Only distances differ, which have no price.
            () if found.time == 1.0 => Advice::CannotTell,
            () if time.middle > 1.0 - LEAST => Advice::Keep,
            () if time.high < 1.0 && time.middle < 1.0 - EXPECTED => Advice::Move,
            () => Advice::CannotTell,
        }
    }
}
