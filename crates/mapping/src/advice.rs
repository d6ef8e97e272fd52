//! Advice on a mapping: move, keep, or cannot tell.

use machine::costs::Interval;

use crate::problem::Problem;
use crate::search::Found;

machine::named! {
    /// The advice.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Advice {
        /// The mapping that was found is better.
        Move = "move",
        /// No mapping is better by [`LEAST`].
        Keep = "keep",
        /// It is not known whether a mapping is better.
        CannotTell = "cannot tell",
    }
}

/// The least gain that counts.
pub const LEAST: f64 = 0.01;

impl Advice {
    /// The advice by the interval of the time of `found` over the recorded one.
    pub fn of(found: &Found, problem: &Problem, time: &Interval) -> Advice {
        match () {
            () if found.seats == problem.seats => Advice::Keep,
            // Mappings that differ only in distances, which have no price.
            () if found.time == 1.0 => Advice::CannotTell,
            () if time.middle > 1.0 - LEAST => Advice::Keep,
            () if time.high < 1.0 => Advice::Move,
            () => Advice::CannotTell,
        }
    }
}
