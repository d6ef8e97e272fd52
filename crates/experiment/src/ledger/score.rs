//! Scores of predictions: how often intervals held, and how far outcomes lay from what was expected.

use std::collections::BTreeMap;
use std::fmt::Write;

use machine::costs::Interval;
use machine::text::Table;
use rounds::conformal::interval_score;
use rounds::statistics::median;
use serde::Serialize;

use super::tally::{settled, wilson};
use super::widening::LATEST;
use super::{Kind, Ledger};

/// A prediction's interval with its outcome.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    pub kind: Kind,
    pub lever: Option<String>,
    pub expected: Interval,
    pub level: f64,
    pub value: f64,
}

/// The ledger's predictions with their outcomes, in the order in which these came.
pub fn pairs(ledger: &Ledger) -> Vec<Pair> {
    let pair = |of: super::Settled| {
        let super::Prediction { kind, lever, expected, level, .. } = of.prediction.clone();
        Pair { kind, lever, expected, level, value: of.outcome.value }
    };
    settled(ledger).into_iter().map(pair).collect()
}

/// The score of the predictions of one kind and lever. Logarithms are natural ones.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Score {
    pub kind: Kind,
    pub lever: Option<String>,
    pub settled: usize,
    pub held: usize,
    /// 95 % interval of the share that holds.
    pub coverage: (f64, f64),
    /// The share that was expected to hold, a median.
    pub level: f64,
    /// Median logarithm of the outcome over the interval's middle.
    pub bias: f64,
    /// Median logarithm of the interval's high over its low end.
    pub width: f64,
    /// Greatest distance of an outcome from the middle, as a logarithm.
    pub worst: f64,
    /// Mean interval score, on logarithms; lower is better.
    pub interval_score: f64,
    /// Those that held, of the latest 40.
    pub held_of_latest: usize,
}

impl Score {
    /// Of pairs of one kind and lever, the latest last; `None` of none.
    fn of(pairs: &[&Pair]) -> Option<Score> {
        let each = |of: fn(&Pair) -> f64| pairs.iter().map(|pair| of(pair)).collect::<Vec<f64>>();
        let mean = |of: fn(&Pair) -> f64| each(of).iter().sum::<f64>() / pairs.len() as f64;
        let held = |of: &[&Pair]| of.iter().filter(|pair| pair.expected.holds(pair.value)).count();
        let error = |pair: &Pair| (pair.value / pair.expected.middle).ln();
        let Pair { kind, lever, .. } = (*pairs.first()?).clone();
        Some(Score {
            kind,
            lever,
            settled: pairs.len(),
            held: held(pairs),
            coverage: wilson(held(pairs), pairs.len()),
            level: median(&each(|pair| pair.level))?,
            bias: median(&each(error))?,
            width: median(&each(|pair| (pair.expected.high / pair.expected.low).ln()))?,
            worst: each(error).into_iter().map(f64::abs).fold(0.0, f64::max),
            interval_score: mean(|of| interval_score(of.expected.low, of.expected.high, of.value, of.level)),
            held_of_latest: held(&pairs[pairs.len().saturating_sub(LATEST)..]),
        })
    }

    fn row(&self) -> [String; 9] {
        let percent = |share: f64| format!("{:.0}", 100.0 * share);
        let (low, high) = self.coverage;
        let lever = self.lever.as_ref().map(|lever| format!(", {lever}"));
        [
            self.kind.words().to_owned() + &lever.unwrap_or_default(),
            self.settled.to_string(),
            format!("{} ({} .. {}) %", percent(self.held as f64 / self.settled as f64), percent(low), percent(high)),
            percent(self.level) + " %",
            format!("{:+.1} %", 100.0 * self.bias.exp_m1()),
            format!("{:.2}x", self.width.exp()),
            format!("{:.2}x", self.worst.exp()),
            format!("{:.2}", self.interval_score),
            format!("{} of {}", self.held_of_latest, self.settled.min(LATEST)),
        ]
    }
}

/// A score for each kind and lever of which there are pairs. These are in the order in which the outcomes came.
pub fn score(pairs: &[Pair]) -> Vec<Score> {
    let mut of: BTreeMap<_, Vec<&Pair>> = BTreeMap::new();
    pairs.iter().for_each(|pair| of.entry((pair.kind, &pair.lever)).or_default().push(pair));
    of.values().filter_map(|pairs| Score::of(pairs)).collect()
}

/// The scores of outcomes from one place.
#[derive(Debug, Clone, Serialize)]
pub struct Scores {
    /// Where the outcomes came: "this host".
    pub place: &'static str,
    pub scores: Vec<Score>,
}

impl Scores {
    /// As a table of at most `width` columns.
    pub fn terminal(&self, width: usize) -> String {
        let mut text = format!("Predictions with outcomes, {}:\n", self.place);
        if self.scores.is_empty() {
            let _ = writeln!(text, "  none yet");
            return text;
        }
        let head = ["prediction of", "n", "held", "claimed", "bias", "width", "worst", "score", "held, latest"];
        let mut table = Table::new(head).right(1..head.len());
        self.scores.iter().for_each(|score| table.row(score.row()));
        text + &table.text(width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(lever: Option<&str>, value: f64) -> Pair {
        let expected = Interval { low: 0.5, middle: 1.0, high: 2.0 };
        Pair { kind: Kind::WhatIf, lever: lever.map(str::to_owned), expected, level: 0.9, value }
    }

    #[test]
    fn each_lever_has_a_score_of_its_own() {
        let mut all: Vec<Pair> = (0..50).map(|nth| pair(Some("carrier"), if nth < 20 { 4.0 } else { 1.1 })).collect();
        all.push(pair(None, 0.25));
        let scores = score(&all);
        let [plain, carrier] = &scores[..] else { panic!("{scores:?}") };
        assert_eq!((plain.settled, plain.held, carrier.settled, carrier.held), (1, 0, 50, 30));
        assert_eq!((carrier.held_of_latest, carrier.level), (30, 0.9));
        let ln2 = std::f64::consts::LN_2;
        let near = |of: f64, expected: f64| assert!((of - expected).abs() < 1e-9, "{of} {expected}");
        near(plain.bias, -2.0 * ln2);
        near(carrier.bias, 1.1_f64.ln());
        near(carrier.width, 2.0 * ln2);
        near(carrier.worst, 2.0 * ln2);
        // A miss of ln 2 costs twenty times that.
        near(carrier.interval_score, 2.0 * ln2 + 0.4 * 20.0 * ln2);
        let text = Scores { place: "this host", scores }.terminal(200);
        let line = text.lines().last().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(line, "what if, carrier 50 60 (46 .. 72) % 90 % +10.0 % 4.00x 4.00x 6.93 30 of 40");
        assert!(Scores { place: "this host", scores: vec![] }.terminal(80).ends_with("none yet\n"));
    }
}
