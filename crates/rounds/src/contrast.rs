//! The contrast of two contenders, round by round: how much better one is, with an interval that holds at every look.
//!
//! A round gives one difference d = ln(performance of the first / performance of the second), above 0 where the first
//! is better. Few differences are averaged (Student's t); many give the Hodges-Lehmann estimate and the interval of the
//! signed ranks, which a rare slow run does not move. The number of differences alone chooses the method.

use crate::estimate::Estimate;
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Default margin within which two performances count as the same in practice.
pub const EQUALITY: f64 = 0.02;

/// Probability that any answer of a comparison is wrong, over all of its looks.
pub const ERROR: f64 = 0.05;

/// Rounds before the first look.
pub const FIRST_LOOK: u32 = 6;

/// Differences that are needed before one that may be smaller than the margin counts.
const FOR_SMALL: usize = 18;

/// The share of the remaining error that each look spends.
const SPENT: f64 = 0.2;

/// Differences from which on ranks are used.
const MANY: usize = 18;

/// Most differences for which the distribution of the signed ranks' sum is computed exactly; beyond, it is approximated
/// as normal.
const COUNTED: usize = 30;

/// Cap on resemblance; more means that the machine changed, which no factor corrects.
const MOST_RESEMBLANCE: f64 = 0.8;

/// Numbers of rounds at which a comparison is looked at: each half as many again, without end.
pub fn looks() -> impl Iterator<Item = u32> {
    std::iter::once(FIRST_LOOK).chain(std::iter::successors(Some(8), |look| Some(look + look / 2)))
}

/// The part of `error` that a comparison of so many rounds may spend: all looks together spend no more than all of it.
/// Between two looks, as where a budget ends, it is that of the next.
fn spent(error: f64, rounds: usize) -> f64 {
    let before = looks().take_while(|look| (*look as usize) < rounds).count();
    error * SPENT * (1.0 - SPENT).powi(before as i32)
}

/// The answer of an estimate, where differences below a margin do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Better,
    Worse,
    /// The two are within the margin of each other.
    Either,
    CannotTell,
}

/// Estimates of how much better one is than another, in logarithms.
impl Estimate {
    /// The estimate of `differences`, in the order of their rounds. `error` is the probability of being wrong over all
    /// looks, or the share of it for one of several comparisons. `None` of fewer than two.
    pub fn of(differences: &[f64], error: f64) -> Option<Estimate> {
        Estimate::once(differences, spent(error, differences.len()))
    }

    /// As [`Estimate::of`], for a single look after a number of rounds that was fixed before.
    pub fn once(differences: &[f64], error: f64) -> Option<Estimate> {
        Estimate::each(differences, [error]).map(|[estimate]| estimate)
    }

    /// As [`Estimate::once`], for several errors.
    pub fn each<const N: usize>(differences: &[f64], errors: [f64; N]) -> Option<[Estimate; N]> {
        let samples = differences.len();
        if samples < 2 {
            return None;
        }
        let (middle, ends) = if samples < MANY { by_mean(differences, errors)? } else { by_ranks(differences, errors) };
        let autocorrelation = autocorrelation(differences).min(MOST_RESEMBLANCE);
        let wider = ((1.0 + autocorrelation) / (1.0 - autocorrelation)).sqrt();
        let end = |end: f64| middle + (end - middle) * wider;
        Some(ends.map(|(low, high)| Estimate { middle, low: end(low), high: end(high), samples }))
    }

    /// The answer; none before the first look.
    pub fn says(&self, margin: f64) -> Verdict {
        let margin = margin.ln_1p();
        // Few rounds do not show well how far the machine's state persists from one to the next.
        let small = if self.samples < FOR_SMALL { margin } else { 0.0 };
        match self {
            Estimate { samples, .. } if *samples < FIRST_LOOK as usize => Verdict::CannotTell,
            Estimate { low, high, .. } if *low > small && *high > margin => Verdict::Better,
            Estimate { low, high, .. } if *high < -small && *low < -margin => Verdict::Worse,
            Estimate { low, high, .. } if *low >= -margin && *high <= margin => Verdict::Either,
            _ => Verdict::CannotTell,
        }
    }
}

/// A middle, and for each error the ends of its interval.
type Ends<const N: usize> = (f64, [(f64, f64); N]);

fn by_mean<const N: usize>(differences: &[f64], errors: [f64; N]) -> Option<Ends<N>> {
    let n = differences.len() as f64;
    let mean = differences.iter().sum::<f64>() / n;
    let variance = differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let student = StudentsT::new(0.0, 1.0, n - 1.0).ok()?;
    let half = |error: f64| student.inverse_cdf(1.0 - error / 2.0) * (variance / n).sqrt();
    Some((mean, errors.map(|error| (mean - half(error), mean + half(error)))))
}

/// The Hodges-Lehmann estimate, the median of the means of all pairs (a difference with itself included), and the means that the
/// signed-rank test does not refuse (Hollander, Wolfe, Chicken, Nonparametric Statistical Methods, 2014, 3.2 and 3.3).
fn by_ranks<const N: usize>(differences: &[f64], errors: [f64; N]) -> Ends<N> {
    let n = differences.len();
    let mut sorted = differences.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let last = n * (n + 1) / 2 - 1;
    let nth = |nth| nth_mean(&sorted, nth);
    let middle = match last % 2 {
        0 => nth(last / 2),
        _ => (nth(last / 2) + nth(last / 2 + 1)) / 2.0,
    };
    (middle, errors.map(|error| refused(n, error / 2.0).min(last / 2)).map(|cut| (nth(cut), nth(last - cut))))
}

/// The `nth` smallest of the means of all pairs, without a list of them: bisects the values until few means are left
/// between the ends.
fn nth_mean(sorted: &[f64], nth: usize) -> f64 {
    let (mut low, mut high) = (f64::NEG_INFINITY, sorted[sorted.len() - 1]);
    let (mut below, mut up_to) = (0, sorted.len() * (sorted.len() + 1) / 2);
    while up_to - below > 4 * sorted.len() {
        let middle = if below == 0 && low.is_infinite() { sorted[0] } else { low + (high - low) / 2.0 };
        // No value lies between the ends: all means that are left are equal.
        if middle <= low || middle >= high {
            return high;
        }
        match means_up_to(sorted, middle) {
            count if count > nth => (high, up_to) = (middle, count),
            count => (low, below) = (middle, count),
        }
    }
    let mut means = Vec::with_capacity(up_to - below);
    for (one, value) in sorted.iter().enumerate() {
        let mean = |other: &f64| (value + other) / 2.0;
        let others = &sorted[one..];
        let first = others.partition_point(|other| mean(other) <= low);
        means.extend(others[first..].iter().map(mean).take_while(|mean| *mean <= high));
    }
    *means.select_nth_unstable_by(nth - below, f64::total_cmp).1
}

/// The number of pairs whose mean is at most `most`.
fn means_up_to(sorted: &[f64], most: f64) -> usize {
    let mut other = sorted.len();
    let mut count = 0;
    for (one, value) in sorted.iter().enumerate() {
        while other > one && (value + sorted[other - 1]) / 2.0 > most {
            other -= 1;
        }
        if other <= one {
            break;
        }
        count += other - one;
    }
    count
}

/// The number of the smallest pair means that are refused, at a share of `tail` at most on each side.
fn refused(n: usize, tail: f64) -> usize {
    let largest = n * (n + 1) / 2;
    if n > COUNTED {
        let (n, sum) = (n as f64, largest as f64 / 2.0);
        let deviation = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
        let normal = Normal::standard().inverse_cdf(tail);
        return (sum + normal * deviation - 0.5).max(0.0) as usize;
    }
    // Probability of each sum of the positive ranks, where each sign is positive with probability 1/2.
    let mut chances = vec![0.0; largest + 1];
    chances[0] = 1.0;
    for rank in 1..=n {
        for sum in (0..=largest).rev() {
            let with = if sum >= rank { chances[sum - rank] } else { 0.0 };
            chances[sum] = (chances[sum] + with) / 2.0;
        }
    }
    let mut up_to = 0.0;
    chances
        .iter()
        .take_while(|chance| {
            up_to += **chance;
            up_to <= tail
        })
        .count()
}

/// Autocorrelation of differences with those of the round before (0 to 1): correlated ones hold less information than
/// as many independent ones.
fn autocorrelation(differences: &[f64]) -> f64 {
    let n = differences.len() as f64;
    // Twice the rank less the mean of all, so that a rare slow run does not hide the correlation.
    let mut order: Vec<usize> = (0..differences.len()).collect();
    order.sort_unstable_by(|one, other| differences[*one].total_cmp(&differences[*other]));
    let mut ranks = vec![0.0; differences.len()];
    let mut less = 0;
    for alike in order.chunk_by(|one, other| differences[*one] == differences[*other]) {
        let rank = less as f64 - (differences.len() - less - alike.len()) as f64;
        alike.iter().for_each(|nth| ranks[*nth] = rank);
        less += alike.len();
    }
    let products: f64 = ranks.windows(2).map(|pair| pair[0] * pair[1]).sum();
    let squares: f64 = ranks.iter().map(|rank| rank * rank).sum();
    // Of few values it is biased low (Marriott and Pope, Biometrika 41:3, 1954), and half a standard error is added,
    // since too much costs rounds and too little a wrong answer.
    if squares > 0.0 {
        ((products / squares + 1.0 / n) / (1.0 - 3.0 / n).max(0.5) + 0.5 / n.sqrt()).max(0.0)
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn looks_grow_by_half_and_spend_no_more_than_the_error() {
        assert_eq!(looks().take(9).collect::<Vec<_>>(), [6, 8, 12, 18, 27, 40, 60, 90, 135]);
        let all: f64 = looks().take(30).map(|look| spent(ERROR, look as usize)).sum();
        assert!((0.99 * ERROR..ERROR).contains(&all), "{all}");
        assert_eq!(spent(ERROR, 7), spent(ERROR, 8));
    }

    /// Values of tables: Student's t of 5 degrees at 0.995 is 4.032; of 20 values the signed rank's sum is at most 37
    /// in 0.5 % of cases (Hollander, Wolfe, Chicken, table A.4).
    #[test]
    fn intervals_are_those_of_tables() {
        let six = [0.01, 0.03, 0.02, 0.04, 0.00, 0.02];
        let estimate = Estimate::of(&six, ERROR).unwrap();
        let deviation = (six.iter().map(|d| (d - 0.02f64).powi(2)).sum::<f64>() / 5.0).sqrt();
        let wider = ((1.0 + autocorrelation(&six)) / (1.0 - autocorrelation(&six))).sqrt();
        let half = wider * 4.032 * deviation / 6f64.sqrt();
        assert!((estimate.middle - 0.02).abs() < 1e-12 && (estimate.high - 0.02 - half).abs() < 1e-4, "{estimate:?}");
        assert_eq!(refused(20, 0.005), 38);
        let (counted, normal) = (refused(COUNTED, 0.001), refused(COUNTED + 1, 0.001));
        assert!(normal > counted && normal - counted < 12, "{counted} {normal}");
    }

    #[test]
    fn a_rare_slow_run_moves_the_estimate_of_many_little() {
        let mut differences: Vec<f64> = (0..30).map(|n| 0.03 + 0.001 * f64::from(n * 7 % 5)).collect();
        differences[11] = -1.1;
        let estimate = Estimate::of(&differences, ERROR).unwrap();
        assert!((estimate.middle - 0.032).abs() < 0.001 && estimate.says(EQUALITY) == Verdict::Better, "{estimate:?}");
    }

    #[test]
    fn what_is_said_follows_the_interval_and_the_margin() {
        let after =
            |samples, low: f64, high: f64| Estimate { middle: (low + high) / 2.0, low, high, samples }.says(0.02);
        let of = |low, high| after(FOR_SMALL, low, high);
        assert_eq!(of(0.001, 0.03), Verdict::Better);
        assert_eq!(of(-0.03, -0.001), Verdict::Worse);
        assert_eq!(of(0.001, 0.01), Verdict::Either);
        assert_eq!(of(-0.01, 0.019), Verdict::Either);
        assert_eq!(of(-0.01, 0.03), Verdict::CannotTell);
        assert_eq!([after(5, 0.4, 0.6), after(6, 0.001, 0.03)], [Verdict::CannotTell; 2]);
        assert_eq!(after(6, 0.021, 0.03), Verdict::Better);
        assert_eq!((Estimate::of(&[], ERROR), Estimate::of(&[0.1], ERROR)), (None, None));
    }

    #[test]
    fn middles_of_pairs_are_those_of_their_list() {
        let mut random = Random::new(11);
        for n in [2, 3, 18, 40, 75, 300] {
            let mut values: Vec<f64> = (0..n).map(|nth| (random.unit() - 0.6) * f64::from(nth % 3)).collect();
            values.sort_by(f64::total_cmp);
            let at = |one: usize, other: usize| (values[one] + values[other]) / 2.0;
            let mut means: Vec<f64> = (0..values.len())
                .flat_map(|one| (one..values.len()).map(move |other| (one, other)))
                .map(|(a, b)| at(a, b))
                .collect();
            means.sort_by(f64::total_cmp);
            let step = means.len().div_ceil(3000);
            let found: Vec<f64> = (0..means.len()).step_by(step).map(|nth| nth_mean(&values, nth)).collect();
            let means: Vec<f64> = means.into_iter().step_by(step).collect();
            assert_eq!(found, means);
        }
    }

    #[test]
    fn neighbours_that_resemble_each_other_widen_the_interval() {
        let waves: Vec<f64> = (0..64).map(|n| 0.01 * (f64::from(n) / 5.0).sin()).collect();
        let alternating: Vec<f64> = (0..64).map(|n| 0.01 * f64::from(n % 2 * 2 - 1) * f64::from(n)).collect();
        assert!(autocorrelation(&waves) > 0.9);
        assert_eq!(autocorrelation(&alternating), 0.0);
        assert_eq!((autocorrelation(&[]), autocorrelation(&[1.0; 9])), (0.0, 0.0));
        let width = |differences: &[f64]| {
            let Estimate { low, high, .. } = Estimate::of(differences, ERROR).unwrap();
            high - low
        };
        // The same values in an order without autocorrelation.
        let mut spread = waves.clone();
        Random::new(3).shuffle(&mut spread);
        assert!(width(&waves) > 2.0 * width(&spread), "{} {}", width(&waves), width(&spread));
    }
}
