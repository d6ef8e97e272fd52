//! Wider intervals for kinds of predictions whose latest outcomes lay in theirs less often than claimed.

use std::fmt;

use machine::costs::Interval;
use rounds::statistics::median;
use serde::{Deserialize, Serialize};

use super::tally::settled;
use super::{Kind, Ledger, Prediction};

/// The outcomes of a kind by which its next intervals are widened.
pub(super) const LATEST: usize = 40;

/// The greatest factor.
const MOST: f64 = 8.0;

/// Standard deviations of the share that holds: one in twenty kinds that hold as claimed is widened by chance.
const DEVIATIONS: f64 = 1.64;

/// The factor by which intervals of a kind are wider than their model claims.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Widening {
    /// Width over that of the model's interval, both as logarithms.
    pub factor: f64,
    /// Outcomes in the model's interval, of the latest 40.
    pub held: usize,
}

impl fmt::Display for Widening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Widening { factor, held } = self;
        write!(f, "widened {factor:.1}x: of the last {LATEST} of this kind {held} held without that")
    }
}

/// A widened interval's origin.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Widened {
    /// The model's interval.
    pub from: Interval,
    pub by: Widening,
}

impl Prediction {
    /// The prediction with its interval widened, if it is to be.
    pub fn widened(self, by: Option<Widening>) -> Prediction {
        let Some(by) = by else { return self };
        let widened = Some(Widened { from: self.expected, by });
        Prediction { expected: self.expected.widened(by.factor), widened, ..self }
    }

    /// The model's interval.
    pub fn unwidened(&self) -> Interval {
        self.widened.map_or(self.expected, |widened| widened.from)
    }
}

impl Ledger {
    /// The widening of the next interval of this kind and lever; `None`: its latest 40 outcomes lay in the models' intervals as
    /// often as those claimed, or there are fewer.
    pub fn widening(&self, kind: Kind, lever: Option<&str>) -> Option<Widening> {
        let like = |of: &Prediction| of.kind == kind && of.lever.as_deref() == lever;
        let all = settled(self);
        let latest = all.iter().rev().filter(|of| like(of.prediction)).take(LATEST);
        let latest: Vec<(f64, f64)> =
            latest.map(|of| (of.prediction.level, reach(of.prediction.unwidened(), of.outcome.value))).collect();
        if latest.len() < LATEST {
            return None;
        }
        let n = LATEST as f64;
        let level = median(&latest.iter().map(|(level, _)| *level).collect::<Vec<f64>>())?;
        let held = latest.iter().filter(|(_, reach)| *reach <= 1.0).count();
        if held as f64 / n >= level - DEVIATIONS * (level * (1.0 - level) / n).sqrt() {
            return None;
        }
        let mut reaches: Vec<f64> = latest.into_iter().map(|(_, reach)| reach).collect();
        reaches.sort_by(f64::total_cmp);
        let rank = (level * (n + 1.0)).ceil() as usize;
        Some(Widening { factor: reaches[rank.clamp(1, LATEST) - 1].min(MOST), held })
    }
}

/// The factor by which an interval must be widened to just hold a value.
fn reach(of: Interval, value: f64) -> f64 {
    let end = if value < of.middle { of.low } else { of.high };
    let ratio = (value / of.middle).ln() / (end / of.middle).ln();
    // 0 over 0: the value is the middle and the end.
    if ratio.is_nan() { 0.0 } else { ratio }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{outcome, prediction};
    use super::super::{Outcome, pairs, score};
    use super::*;

    /// Settles a prediction of 0.9 to 1.0 that the ledger may widen. Returns its widening.
    fn settle(ledger: &mut Ledger, value: f64) -> Option<Widening> {
        let id = ledger.predictions.len() as u64;
        let by = ledger.widening(Kind::WhatIf, Some("carrier"));
        let of = prediction(Kind::WhatIf, &format!("q{id}"), 0.9, 1.0);
        ledger.predictions.push(Prediction { id, lever: Some("carrier".into()), ..of }.widened(by));
        let came = machine::Nanoseconds(id);
        ledger.outcomes.push(Outcome { id, came, ..outcome(value, None) });
        by
    }

    #[test]
    fn a_kind_that_holds_too_seldom_is_widened_until_its_models_hold() {
        let mut ledger = Ledger::default();
        // Each fourth outcome is twice as far from the middle as the end.
        let (middle, twice) = (0.9_f64.sqrt(), 0.9_f64.sqrt() / 0.9);
        let value = |nth: usize| if nth % 4 == 3 { twice } else { middle };
        let narrow: Vec<_> = (0..40).map(|nth| settle(&mut ledger, value(nth))).collect();
        assert!(narrow.iter().all(Option::is_none));
        let wide: Vec<_> = (0..40).map(|nth| settle(&mut ledger, value(nth)).unwrap()).collect();
        assert!(wide.iter().all(|by| (by.factor - 2.0).abs() < 1e-9 && by.held == 30), "{wide:?}");
        let [score] = &score(&pairs(&ledger))[..] else { panic!("one lever") };
        assert_eq!((score.settled, score.held, score.held_of_latest), (80, 70, 40), "as shown, not as modelled");
        let last = ledger.predictions.last().unwrap();
        assert_eq!(last.grounds(), "costs; widened 2.0x: of the last 40 of this kind 30 held without that");
        assert_eq!(last.unwidened(), Interval::between(0.9, 1.0));
        let back: Vec<_> = (0..40).map(|_| settle(&mut ledger, middle)).collect();
        assert!(back[0].is_some() && back[39].is_none() && back.is_sorted_by_key(Option::is_none), "{back:?}");
        assert_eq!(ledger.widening(Kind::WhatIf, None), None, "another lever");
        assert_eq!(ledger.widening(Kind::Causal, Some("carrier")), None);
    }

    #[test]
    fn a_prediction_that_is_made_again_counts_once() {
        let mut ledger = Ledger::default();
        for _ in 0..50 {
            settle(&mut ledger, 2.0);
        }
        assert_eq!(ledger.widening(Kind::WhatIf, Some("carrier")).unwrap().factor, MOST);
        for (nth, of) in ledger.predictions.iter_mut().enumerate() {
            of.quantity = format!("q{}", nth % 39);
        }
        assert_eq!(ledger.widening(Kind::WhatIf, Some("carrier")), None);
    }

    #[test]
    fn reach_is_the_factor_that_just_holds() {
        let of = Interval { low: 0.5, middle: 1.0, high: 3.0 };
        for value in [0.1, 0.5, 0.9, 1.0, 1.1, 3.0, 9.0] {
            let factor = reach(of, value);
            let wide = of.widened(factor);
            let end = if value < 1.0 { wide.low } else { wide.high };
            assert!((end - value).abs() < 1e-12 && (factor <= 1.0) == of.holds(value), "{value}: {factor}");
        }
        assert_eq!([1.0, 2.0].map(|value| reach(Interval::exactly(1.0), value)), [0.0, f64::INFINITY]);
    }
}
