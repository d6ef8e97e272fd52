//! How predictions of a kind did.

use std::collections::HashSet;

use machine::costs::Interval;
use rounds::statistics::median;

use super::{Kind, Ledger, Outcome, Prediction};

/// A prediction with its outcome.
#[derive(Debug, Clone, Copy)]
pub struct Settled<'a> {
    pub prediction: &'a Prediction,
    pub outcome: &'a Outcome,
}

impl Settled<'_> {
    /// Whether what came lies in the interval.
    pub fn held(&self) -> bool {
        self.prediction.expected.holds(self.outcome.value)
    }

    /// Whether it lies beside it, by no more than it was measured to.
    pub fn near(&self) -> bool {
        let expected = self.prediction.expected;
        !self.held() && self.outcome.interval.is_some_and(|(low, high)| low <= expected.high && expected.low <= high)
    }

    /// The outcome over the expected value.
    pub fn ratio(&self) -> f64 {
        self.outcome.value / self.prediction.expected.middle
    }
}

/// All predictions of one kind.
#[derive(Debug, Clone)]
pub struct Tally<'a> {
    pub kind: Kind,
    /// Misses first, then the latest first.
    pub settled: Vec<Settled<'a>>,
    /// Predictions without an outcome.
    pub open: Vec<&'a Prediction>,
}

impl Tally<'_> {
    pub fn held(&self) -> usize {
        self.settled.iter().filter(|settled| settled.held()).count()
    }

    pub fn near(&self) -> usize {
        self.settled.iter().filter(|settled| settled.near()).count()
    }

    /// The share that held, with its 95 % interval (Wilson 1927); `None` below ten, of which a percentage says nothing.
    pub fn coverage(&self) -> Option<(f64, f64, f64)> {
        let n = self.settled.len() as f64;
        if n < 10.0 {
            return None;
        }
        let (share, z) = (self.held() as f64 / n, 1.96_f64);
        let middle = share + z * z / (2.0 * n);
        let half = z * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + z * z / n;
        Some((share, (middle - half) / scale, (middle + half) / scale))
    }

    /// The median of what came over what was expected, less 1; `None` of nothing.
    pub fn bias(&self) -> Option<f64> {
        let ratios: Vec<f64> = self.settled.iter().map(Settled::ratio).collect();
        median(&ratios).map(|ratio| ratio - 1.0)
    }
}

/// The same prediction, made again for another run.
fn same(prediction: &Prediction) -> (&str, &str, [u64; 3]) {
    let Interval { low, middle, high } = prediction.expected;
    (&prediction.subject.digest, &prediction.quantity, [low, middle, high].map(f64::to_bits))
}

/// One for each kind of which there is something. A prediction that was made again counts once, by its first outcome.
pub fn tallies(ledger: &Ledger) -> Vec<Tally<'_>> {
    let kinds = [
        Kind::Placement,
        Kind::Elapsed,
        Kind::Messages,
        Kind::WhatIf,
        Kind::Causal,
        Kind::Study,
        Kind::Offcode,
        Kind::Rate,
    ];
    let all = kinds.map(|kind| {
        let of = |prediction: &&Prediction| prediction.kind == kind;
        let mut seen = HashSet::new();
        let mut settled: Vec<Settled> = ledger
            .predictions
            .iter()
            .filter(of)
            .filter_map(|prediction| {
                let outcome = ledger.outcomes.iter().find(|outcome| outcome.id == prediction.id)?;
                seen.insert(same(prediction)).then_some(Settled { prediction, outcome })
            })
            .collect();
        settled.sort_by_key(|settled| (settled.held(), std::cmp::Reverse(settled.outcome.came)));
        let open = ledger.open_predictions().filter(of).filter(|open| seen.insert(same(open))).collect();
        Tally { kind, settled, open }
    });
    all.into_iter().filter(|tally| !tally.settled.is_empty() || !tally.open.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{outcome, prediction};
    use super::*;

    fn ledger(outcomes: &[(f64, Option<(f64, f64)>)]) -> Ledger {
        let mut ledger = Ledger::default();
        for (id, (value, interval)) in outcomes.iter().enumerate() {
            let of = prediction(Kind::Placement, &format!("q{id}"), 0.9, 1.0);
            ledger.predictions.push(Prediction { id: id as u64, ..of });
            ledger.outcomes.push(Outcome { id: id as u64, ..outcome(*value, *interval) });
        }
        ledger.predictions.push(Prediction { id: 999, ..prediction(Kind::Placement, "q", 1.0, 2.0) });
        ledger
    }

    #[test]
    fn misses_come_first_and_what_only_overlaps_is_counted_apart() {
        let ledger = ledger(&[(0.95, None), (1.2, Some((0.98, 1.4))), (1.5, Some((1.4, 1.6)))]);
        let [tally] = &tallies(&ledger)[..] else { panic!("one kind") };
        assert_eq!((tally.held(), tally.near(), tally.open.len(), tally.coverage()), (1, 1, 1, None));
        let values: Vec<f64> = tally.settled.iter().map(|settled| settled.outcome.value).collect();
        assert_eq!(values, [1.2, 1.5, 0.95]);
    }

    #[test]
    fn a_prediction_that_is_made_again_counts_once() {
        let mut ledger = ledger(&[(0.95, None), (1.5, None)]);
        for prediction in &mut ledger.predictions {
            prediction.quantity = "q".into();
        }
        let [tally] = &tallies(&ledger)[..] else { panic!("one kind") };
        assert_eq!((tally.settled.len(), tally.held(), tally.open.len()), (1, 1, 1));
    }

    #[test]
    fn coverage_has_an_interval_and_bias_a_sign() {
        let ledger = ledger(&vec![(0.98, None); 20]);
        let [tally] = &tallies(&ledger)[..] else { panic!("one kind") };
        let (share, low, high) = tally.coverage().unwrap();
        assert_eq!(share, 1.0);
        assert!((0.83..0.85).contains(&low) && high > 0.999, "{low} {high}");
        assert!((0.03..0.04).contains(&tally.bias().unwrap()));
    }
}
