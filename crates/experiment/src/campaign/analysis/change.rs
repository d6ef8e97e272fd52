//! Comparison of a figure at two points, round by round.

use rounds::contrast::ERROR;
use rounds::estimate::Estimate;
use serde::Serialize;

use crate::campaign::results::Run;

/// A host and one of its rounds.
type Round = (u32, u32);

/// Logarithms of a figure by round, in the order of rounds, with the sign that makes more better.
#[derive(Debug, Clone, Default)]
pub(super) struct Series {
    by_round: Vec<(Round, f64)>,
    /// Whether the values are simulated, hence the same in every run.
    exact: bool,
}

impl Series {
    /// The series of values above 0, or of their inverses where less is better.
    pub fn of(runs: &[&Run], value: impl Fn(&Run) -> Option<f64>, more_is_better: bool, exact: bool) -> Series {
        let sign = if more_is_better { 1.0 } else { -1.0 };
        let mut by_round: Vec<(Round, f64)> = runs
            .iter()
            // A simulated value does not depend on host and round.
            .filter_map(|run| Some((if exact { (0, 0) } else { (run.host, run.round) }, value(run)?)))
            .filter(|(_, value)| value.is_finite() && *value > 0.0)
            .map(|(round, value)| (round, sign * value.ln()))
            .collect();
        by_round.sort_by_key(|entry| entry.0);
        // The mean of several runs of a point in one round.
        let mut merged: Vec<(Round, f64, f64)> = Vec::with_capacity(by_round.len());
        for (round, value) in by_round {
            match merged.last_mut() {
                Some((last, sum, count)) if *last == round => (*sum, *count) = (*sum + value, *count + 1.0),
                _ => merged.push((round, value, 1.0)),
            }
        }
        let by_round = merged.into_iter().map(|(round, sum, count)| (round, sum / count)).collect();
        Series { by_round, exact }
    }

    /// Applies `of` to the values of both, in the rounds that both series have.
    pub fn with(&self, other: &Series, of: impl Fn(f64, f64) -> f64) -> Series {
        let by_round = self.both(other).map(|(round, one, other)| (round, of(one, other))).collect();
        Series { by_round, exact: self.exact && other.exact }
    }

    /// The product of both.
    pub fn times(&self, other: &Series) -> Series {
        self.with(other, |one, other| one + other)
    }

    /// The ratio of this series to `other`.
    pub fn over(&self, other: &Series) -> Series {
        self.with(other, |one, other| one - other)
    }

    pub fn values(&self) -> Vec<f64> {
        self.by_round.iter().map(|(_, value)| *value).collect()
    }

    /// The estimate from all rounds; that of a simulated series is its value.
    pub fn estimate(&self, error: f64) -> Option<Estimate> {
        match self.by_round.as_slice() {
            [(_, middle)] if self.exact => Some(Estimate { middle: *middle, low: *middle, high: *middle, samples: 1 }),
            _ => Estimate::once(&self.values(), error),
        }
    }

    /// The least-squares slope of several series over `x`, in each round with two values of `x`.
    pub fn slopes(series: &[(f64, Series)]) -> Series {
        let mut all: Vec<(Round, f64, f64)> =
            series.iter().flat_map(|(x, of)| of.by_round.iter().map(move |(round, y)| (*round, *x, *y))).collect();
        all.sort_by_key(|entry| entry.0);
        let slopes = all.chunk_by(|one, other| one.0 == other.0).filter_map(|of| Some((of[0].0, slope(of)?)));
        Series { by_round: slopes.collect(), exact: series.iter().all(|(_, of)| of.exact) }
    }

    fn both<'a>(&'a self, other: &'a Series) -> impl Iterator<Item = (Round, f64, f64)> + 'a {
        let mut others = other.by_round.iter().peekable();
        self.by_round.iter().filter_map(move |(round, value)| {
            while others.next_if(|(of, _)| of < round).is_some() {}
            others.peek().filter(|(of, _)| of == round).map(|(_, other)| (*round, *value, *other))
        })
    }
}

fn slope(round: &[(Round, f64, f64)]) -> Option<f64> {
    let n = round.len() as f64;
    let mean = |of: &dyn Fn(&(Round, f64, f64)) -> f64| round.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(&|point| point.1), mean(&|point| point.2));
    let squares: f64 = round.iter().map(|point| (point.1 - x).powi(2)).sum();
    let products: f64 = round.iter().map(|point| (point.1 - x) * (point.2 - y)).sum();
    (squares > 0.0).then(|| products / squares)
}

/// A change in per cent, with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Change {
    pub middle: f64,
    /// 95 % interval of this comparison alone; the middle where both points are simulated.
    pub low: f64,
    pub high: f64,
    /// Whether the change differs from 0 with an error of 5 % for all comparisons together.
    pub sure: bool,
    pub rounds: usize,
}

impl Change {
    /// The change from logarithms of ratios, which `percent` converts; `None` for fewer than two measured rounds.
    pub(super) fn of(ratios: &Series, error: f64, percent: fn(f64) -> f64) -> Option<Change> {
        let differences = &ratios.values();
        if let ([only], true) = (differences.as_slice(), ratios.exact) {
            let middle = percent(*only);
            return Some(Change { middle, low: middle, high: middle, sure: *only != 0.0, rounds: 1 });
        }
        let [alone, together] = Estimate::each(differences, [ERROR, error])?;
        let (one, other) = (percent(alone.low), percent(alone.high));
        Some(Change {
            middle: percent(alone.middle),
            low: one.min(other),
            high: one.max(other),
            sure: together.low > 0.0 || together.high < 0.0,
            rounds: alone.samples,
        })
    }
}

/// Decrease of a figure of which less is better, in per cent.
pub(super) fn percent_saved(ratio: f64) -> f64 {
    -100.0 * (-ratio).exp_m1()
}

/// Increase of a figure of which less is better, in per cent.
pub(super) fn percent_risen(ratio: f64) -> f64 {
    100.0 * (-ratio).exp_m1()
}

/// Loss of performance, in per cent.
pub(super) fn percent_lost(ratio: f64) -> f64 {
    -100.0 * ratio.exp_m1()
}

/// Gain in performance, in per cent.
pub(super) fn percent_gained(ratio: f64) -> f64 {
    100.0 * ratio.exp_m1()
}
