//! Tallies: settled and open predictions by kind.

use std::collections::{HashMap, HashSet};

use rounds::statistics::median;

use super::{Kind, Ledger, Outcome, Prediction};

/// A prediction with its outcome.
#[derive(Debug, Clone, Copy)]
pub struct Settled<'a> {
    pub prediction: &'a Prediction,
    pub outcome: &'a Outcome,
}

impl Settled<'_> {
    /// Whether the outcome lies in the interval.
    pub fn held(&self) -> bool {
        self.prediction.expected.holds(self.outcome.value)
    }

    /// Whether the outcome lies beside the interval, by no more than it was measured to.
    pub fn near(&self) -> bool {
        let expected = self.prediction.expected;
        !self.held() && self.outcome.interval.is_some_and(|(low, high)| low <= expected.high && expected.low <= high)
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

    /// The share that held, with its interval; `None` below ten, of which a percentage says nothing.
    pub fn coverage(&self) -> Option<(f64, f64, f64)> {
        let n = self.settled.len();
        (n >= 10).then(|| {
            let (low, high) = wilson(self.held(), n);
            (self.held() as f64 / n as f64, low, high)
        })
    }

    /// The share that was expected to hold, a median; `None` of nothing.
    pub fn level(&self) -> Option<f64> {
        median(&self.settled.iter().map(|settled| settled.prediction.level).collect::<Vec<f64>>())
    }
}

/// The 95 % interval of a share, of which `held` of `n` were seen (Wilson, JASA 22, 1927).
pub(super) fn wilson(held: usize, n: usize) -> (f64, f64) {
    let (n, z) = (n as f64, 1.96_f64);
    let share = held as f64 / n;
    let middle = share + z * z / (2.0 * n);
    let half = z * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z * z / n;
    ((middle - half) / scale, (middle + half) / scale)
}

/// Predictions with their outcomes, in the order in which these came. A prediction that was made again counts once, by its
/// first outcome.
pub(super) fn settled(ledger: &Ledger) -> Vec<Settled<'_>> {
    let mut first: HashMap<u64, &Outcome> = HashMap::new();
    for outcome in &ledger.outcomes {
        first.entry(outcome.id).or_insert(outcome);
    }
    let mut seen = HashSet::new();
    let mut settled = Vec::new();
    for prediction in &ledger.predictions {
        let Some(outcome) = first.get(&prediction.id) else { continue };
        if seen.insert(prediction.key()) {
            settled.push(Settled { prediction, outcome });
        }
    }
    settled.sort_by_key(|settled| settled.outcome.came);
    settled
}

/// A tally for each kind of which there are predictions.
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
    let all = settled(ledger);
    let mut seen: HashSet<_> = all.iter().map(|settled| settled.prediction.key()).collect();
    let open: Vec<&Prediction> = ledger.open_predictions().filter(|open| seen.insert(open.key())).collect();
    let tallies = kinds.map(|kind| {
        let mut settled: Vec<Settled> = all.iter().filter(|of| of.prediction.kind == kind).copied().collect();
        settled.sort_by_key(|settled| (settled.held(), std::cmp::Reverse(settled.outcome.came)));
        Tally { kind, settled, open: open.iter().filter(|open| open.kind == kind).copied().collect() }
    });
    tallies.into_iter().filter(|tally| !tally.settled.is_empty() || !tally.open.is_empty()).collect()
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
    fn coverage_has_an_interval_beside_the_level_of_its_predictions() {
        let mut ledger = ledger(&vec![(0.98, None); 20]);
        ledger.predictions.iter_mut().for_each(|of| of.level = 0.9);
        let [tally] = &tallies(&ledger)[..] else { panic!("one kind") };
        let (share, low, high) = tally.coverage().unwrap();
        assert_eq!(share, 1.0);
        assert!((0.83..0.85).contains(&low) && high > 0.999, "{low} {high}");
        assert_eq!(tally.level(), Some(0.9));
    }
}
