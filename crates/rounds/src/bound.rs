//! A bound for a measured value, and the verdict.

use std::fmt;

use serde::Serialize;

use crate::estimate::Estimate;

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::AtMost(bound) => f.pad(&format!("at most {bound:.1}x")),
            Bound::AtLeast(bound) => f.pad(&format!("at least {bound:.1}x")),
        }
    }
}

machine::named! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Verdict {
        /// The whole interval keeps the bound.
        Met = "met",
        Missed = "missed",
        /// The bound lies within the interval, or the rounds are too few for one.
        CannotTell = "cannot tell",
        /// There is no interval.
        NotMeasured = "not measured",
    }
}

impl Bound {
    pub fn judge(self, interval: Option<Estimate>) -> Verdict {
        let Some(Estimate { low, high, samples, .. }) = interval else { return Verdict::NotMeasured };
        if samples < Estimate::FEWEST {
            return Verdict::CannotTell;
        }
        let (met, missed) = match self {
            Bound::AtMost(bound) => (high <= bound, low > bound),
            Bound::AtLeast(bound) => (low >= bound, high < bound),
        };
        match (met, missed) {
            (true, _) => Verdict::Met,
            (_, true) => Verdict::Missed,
            _ => Verdict::CannotTell,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_within_the_interval_is_not_decided() {
        let interval = |low, high| Some(Estimate { middle: (low + high) / 2.0, low, high, samples: 7 });
        assert_eq!(Bound::AtMost(1.0).judge(interval(0.8, 0.9)), Verdict::Met);
        assert_eq!(Bound::AtMost(1.0).judge(interval(0.9, 1.1)), Verdict::CannotTell);
        assert_eq!(Bound::AtMost(1.0).judge(interval(1.1, 1.2)), Verdict::Missed);
        assert_eq!(Bound::AtLeast(4.0).judge(interval(4.0, 5.0)), Verdict::Met);
        assert_eq!(Bound::AtLeast(4.0).judge(interval(3.0, 3.9)), Verdict::Missed);
        assert_eq!(Bound::AtLeast(4.0).judge(None), Verdict::NotMeasured);
        let too_few = |found: Option<Estimate>| found.map(|found| Estimate { samples: Estimate::FEWEST - 1, ..found });
        assert_eq!(Bound::AtMost(1.0).judge(too_few(interval(1.1, 1.2))), Verdict::CannotTell);
    }
}
