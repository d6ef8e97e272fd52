//! The error of replays for ranks that move, measured on simulated programs, and an interval that contains it.
//!
//! Draws differ in costs and in figures that fit the recording nearly alike. Where none fits well, or the fits do not differ where
//! another mapping needs them, the outcome is outside. The error grows with the width of the draws, and with what the likeliest of
//! them leaves unexplained of the share of the run in calls:
//! ```text
//! scale   = ln(high / low) + (0.005 + unexplained) x share in calls             of the draws
//! missed  = ln(simulated / middle) / scale
//! ```
//! The constants come from mappings that promise a gain, of programs that serve only for this: `low` is a quantile of `missed`,
//! `high` the least (in halves) at which no advice of theirs lost more than 2 %. A gain that fails to come costs more than one that
//! was not promised. `cargo bench -p mapping --bench random -- 600 --calibrate --within`, and `-- 100 --calibrate`.

use machine::costs::Interval;
use whatif::answer::Program;

use crate::problem::{ALIKE, Problem, Spot};

/// The share in calls that is unexplained at least.
const UNEXPLAINED: f64 = 0.005;

/// The quantile in [`ReplayError::low`].
pub const LEAST: f64 = 0.05;

/// The least and the largest error of replays, over the scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReplayError {
    /// The least, of mappings that are better than the replay predicts.
    pub low: f64,
    /// The largest, of mappings that are worse.
    pub high: f64,
}

/// For ranks that move between packages, or to and from cores that receive.
pub const BETWEEN_PACKAGES: ReplayError = ReplayError { low: -0.39, high: 2.0 };

/// For ranks that move between hosts.
pub const BETWEEN_HOSTS: ReplayError = ReplayError { low: -0.60, high: 1.5 };

impl ReplayError {
    /// The expected error for a mapping. `None`: only computing changes, on which simulated programs give no data.
    pub fn of(problem: &Problem, seats: &[u32]) -> Option<ReplayError> {
        let moved = || problem.seats.iter().zip(seats).map(|(from, to)| (problem.spot(*from), problem.spot(*to)));
        let receives = |(from, to): (&Spot, &Spot)| from.far != to.far || (from.softirq - to.softirq).abs() > ALIKE;
        match () {
            () if moved().any(|(from, to)| from.host != to.host) => Some(BETWEEN_HOSTS),
            () if moved().any(receives) => Some(BETWEEN_PACKAGES),
            () => None,
        }
    }

    /// The interval of the draws, widened by the expected error.
    pub fn with(self, drawn: Interval, program: &Program) -> Interval {
        self.over(drawn, scale(&drawn, program))
    }

    /// As [`ReplayError::with`], of a [`scale`].
    pub fn over(self, drawn: Interval, scale: f64) -> Interval {
        let at = |missed: f64| drawn.middle * (missed * scale).exp();
        Interval { low: drawn.low.min(at(self.low)), high: drawn.high.max(at(self.high)), ..drawn }
    }
}

/// The scale of an error, a logarithm.
pub fn scale(drawn: &Interval, program: &Program) -> f64 {
    (drawn.high / drawn.low.max(f64::MIN_POSITIVE)).ln() + (UNEXPLAINED + program.misfit) * program.in_calls()
}

#[cfg(test)]
mod tests {
    use machine::CoreId;

    use super::*;

    #[test]
    fn what_is_missed_depends_on_what_changes_for_messages() {
        let spot = |host, softirq, far| Spot { host, core: CoreId(0), softirq, free: 1.0, far };
        let spots = vec![
            spot(0, 0.3, false),
            spot(0, 0.0, false),
            spot(0, 0.0, false),
            spot(0, 0.0, true),
            spot(1, 0.0, false),
        ];
        let problem = Problem { spots, seats: vec![0, 1], ..Problem::default() };
        let of = |seats: [u32; 2]| ReplayError::of(&problem, &seats);
        assert_eq!(of([0, 2]), None);
        assert_eq!([of([1, 0]), of([0, 3])], [Some(BETWEEN_PACKAGES); 2]);
        assert_eq!(of([1, 4]), Some(BETWEEN_HOSTS));
    }

    #[test]
    fn an_interval_grows_with_what_draws_leave_open_and_never_shrinks() {
        let drawn = Interval { low: 0.8, middle: 0.9, high: 0.95 };
        let none = ReplayError { low: 0.0, high: 0.0 };
        assert_eq!(none.over(drawn, 1.0), drawn);
        let [few, many] = [0.2, 0.9].map(|scale| ReplayError { low: -1.0, high: 1.0 }.over(drawn, scale));
        assert!(many.low < few.low && few.low < drawn.low && drawn.high < few.high && few.high < many.high);
        assert!((few.high - 0.9 * 0.2f64.exp()).abs() < 1e-9, "{few:?}");
    }
}
