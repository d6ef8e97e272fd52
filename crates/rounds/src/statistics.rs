//! Medians and their intervals. No sample is ever dropped as an outlier: the median is robust.

use machine::costs;
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::estimate::Estimate;

/// The middle value, or the mean of the two middle ones; `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    median_of_sorted(&sorted)
}

fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[n / 2]),
        n => Some((sorted[n / 2 - 1] + sorted[n / 2]) / 2.0),
    }
}

/// The `share` quantile (0 to 1) of sorted values, interpolated.
fn quantile_of_sorted(sorted: &[f64], share: f64) -> f64 {
    let place = share.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let below = place.floor() as usize;
    let above = place.ceil() as usize;
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}

/// The interval in which the next positive value lies with 95 % confidence, if logarithms are normal: wider than that
/// of the median. `None` of fewer than two values, which do not show a spread.
pub fn predictive_interval(values: &[f64]) -> Option<costs::Interval> {
    let logarithms: Vec<f64> = values.iter().map(|value| value.ln()).filter(|value| value.is_finite()).collect();
    let n = logarithms.len() as f64;
    if logarithms.len() < 2 {
        return None;
    }
    let mean = logarithms.iter().sum::<f64>() / n;
    let deviation = (logarithms.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    let half = StudentsT::new(0.0, 1.0, n - 1.0).ok()?.inverse_cdf(0.975) * deviation * (1.0 + 1.0 / n).sqrt();
    Some(costs::Interval { low: (mean - half).exp(), middle: mean.exp(), high: (mean + half).exp() })
}

/// The mean, with its 95 % interval by Student's t where there are at least two values; `None` without values. An
/// interval of values that are never negative, such as times, is not negative either.
pub fn mean_interval(values: &[f64]) -> Option<(f64, Option<(f64, f64)>)> {
    let n = values.len() as f64;
    if values.is_empty() {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let student = StudentsT::new(0.0, 1.0, n - 1.0).ok();
    let half = student.map(|student| student.inverse_cdf(0.975) * (variance / n).sqrt());
    let least = if values.iter().all(|value| *value >= 0.0) { 0.0 } else { f64::NEG_INFINITY };
    Some((mean, half.map(|half| ((mean - half).max(least), mean + half))))
}

/// The median and its 95 % interval; `None` without values. A single value is its own interval.
pub fn median_interval(values: &[f64]) -> Option<Estimate> {
    median_interval_at(values, 0.95)
}

/// The median and its interval at any `confidence` between 0 and 1; the whole range where there are too few values for it.
///
/// The interval from one order statistic to its mirror image holds for any distribution (Le Boudec, Performance
/// Evaluation, 2010, theorem 2.1). No pair has exactly the confidence asked for, so the ends are interpolated between
/// two neighbours (Hettmansperger and Sheather, Statistics & Probability Letters 4:2, 1986).
fn median_interval_at(values: &[f64], confidence: f64) -> Option<Estimate> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = median_of_sorted(&sorted)?;
    let n = sorted.len();
    let error = 1.0 - confidence;
    // The interval from the `k`th smallest to the `k`th largest misses in a share of twice the binomial distribution's
    // tail; in logarithms, since 2^-n underflows.
    let mut k = 1;
    let mut log_share = -(n as f64) * std::f64::consts::LN_2;
    let mut missed = 2.0 * log_share.exp();
    let missed_next = loop {
        log_share += ((n - k + 1) as f64 / k as f64).ln();
        let next = missed + 2.0 * log_share.exp();
        if next > error || k + 1 > n / 2 {
            break next;
        }
        (k, missed) = (k + 1, next);
    };
    let towards_the_next = if missed < error && k < n / 2 {
        let left = (error - missed) / (missed_next - missed);
        (n - k) as f64 * left / (k as f64 + (n - 2 * k) as f64 * left)
    } else {
        0.0
    };
    let end = |outer: f64, inner: f64| outer + (inner - outer) * towards_the_next;
    let inner = k.min(n - 1);
    let (low, high) = (end(sorted[k - 1], sorted[inner]), end(sorted[n - k], sorted[n - 1 - inner]));
    Some(Estimate { middle: median, low, high, samples: n })
}

/// Noise: the interquartile range over the median. `None` of fewer than four values or a median of 0.
pub fn relative_spread(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = median_of_sorted(&sorted)?;
    (sorted.len() >= 4 && median != 0.0)
        .then(|| (quantile_of_sorted(&sorted, 0.75) - quantile_of_sorted(&sorted, 0.25)) / median.abs())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::Random;

    fn normal(random: &mut Random) -> f64 {
        let (u, v) = (1.0 - random.unit(), random.unit());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    #[test]
    fn the_next_value_lies_in_the_predictive_interval_in_95_of_100_draws() {
        let mut random = Random::new(5);
        let studies = 4000;
        let held = (0..studies).filter(|_| {
            let values: Vec<f64> = (0..6).map(|_| (0.1 * normal(&mut random)).exp()).collect();
            let (next, known) = values.split_last().unwrap();
            let interval = predictive_interval(known).unwrap();
            interval.low <= *next && *next <= interval.high
        });
        let share = held.count() as f64 / f64::from(studies);
        assert!((0.94..0.96).contains(&share), "{share}");
        assert_eq!(predictive_interval(&[1.0]), None);
    }

    /// A value of tables: Student's t of 3 degrees at 0.975 is 3.182.
    #[test]
    fn means_have_the_interval_of_tables() {
        assert_eq!(mean_interval(&[]), None);
        assert_eq!(mean_interval(&[2.0]), Some((2.0, None)));
        let (mean, interval) = mean_interval(&[1.0, 2.0, 3.0, 4.0]).unwrap();
        let (low, high) = interval.unwrap();
        let half = 3.182 * (5.0f64 / 3.0 / 4.0).sqrt();
        assert!(mean == 2.5 && (low - 2.5 + half).abs() < 1e-3 && (high - 2.5 - half).abs() < 1e-3, "{low} {high}");
        assert_eq!(mean_interval(&[0.1, 0.9]).unwrap().1.unwrap().0, 0.0, "no time is below 0");
        assert!(mean_interval(&[-0.1, 0.9]).unwrap().1.unwrap().0 < 0.0);
    }

    #[test]
    fn medians_of_small_sets() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    /// Ranks of the binomial distribution in tables: 95 % of 10 values lie between the 2nd and 9th (97.9 %) and the 3rd
    /// and 8th (89.1 %).
    #[test]
    fn ends_lie_between_the_ranks_of_tables() {
        for (n, confidence, k) in [(6, 0.95, 1), (8, 0.99, 1), (10, 0.95, 2), (30, 0.95, 10), (100, 0.99, 37)] {
            let values: Vec<f64> = (1..=n).map(f64::from).collect();
            let interval = median_interval_at(&values, confidence).unwrap();
            let k = f64::from(k);
            assert!((k..k + 1.0).contains(&interval.low), "{n}: {interval:?}");
            assert!((interval.low + interval.high - f64::from(n + 1)).abs() < 1e-9, "{n}: {interval:?}");
        }
        assert_eq!(median_interval_at(&[2.0, 1.0], 0.95).map(|i| (i.low, i.high)), Some((1.0, 2.0)));
        assert!(median_interval(&vec![1.0; 100_000]).is_some_and(|i| i.low == 1.0 && i.high == 1.0));
    }

    /// With five samples no interval of the median can be wider than all of them, which covers it in 15 of 16 draws.
    #[test]
    fn five_samples_give_their_whole_range() {
        let interval = median_interval(&[5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!((interval.low, interval.middle, interval.high), (1.0, 3.0, 5.0));
    }

    #[test]
    fn the_interval_covers_the_true_median_in_95_of_100_draws() {
        type Draw = fn(&mut Random) -> f64;
        let shapes: [(&str, Draw, f64); 3] = [
            ("normal", normal, 0.0),
            ("exponential", |r| -(1.0 - r.unit()).ln(), std::f64::consts::LN_2),
            // One block in ten is disturbed, as on a busy machine; symmetric, so that the median stays.
            ("contaminated", |r| if r.unit() < 0.1 { 20.0 * normal(r) } else { normal(r) }, 0.0),
        ];
        for (name, draw, truth) in shapes {
            for n in [7, 12, 25] {
                let mut random = Random::new(n as u64);
                let trials = 400;
                let covered = (0..trials)
                    .filter(|_| {
                        let values: Vec<f64> = (0..n).map(|_| draw(&mut random)).collect();
                        let interval = median_interval(&values).unwrap();
                        interval.low <= truth && truth <= interval.high
                    })
                    .count();
                let share = covered as f64 / f64::from(trials);
                // The bound is 0.95 less three standard errors of 400 trials.
                assert!(share >= 0.917, "{name}, n = {n}: {share}");
            }
        }
    }

    #[test]
    fn intervals_narrow_with_samples() {
        let width = |n: usize| {
            let mut random = Random::new(3);
            let values: Vec<f64> = (0..n).map(|_| normal(&mut random)).collect();
            let interval = median_interval(&values).unwrap();
            interval.high - interval.low
        };
        assert!(width(200) < width(12) / 2.0);
    }

    #[test]
    fn spread_is_the_interquartile_range_over_the_median() {
        assert_eq!(relative_spread(&[1.0, 2.0, 3.0]), None);
        assert_eq!(relative_spread(&[0.0; 9]), None);
        assert_eq!(relative_spread(&[1.0, 2.0, 3.0, 4.0, 5.0]), Some(2.0 / 3.0));
    }

    proptest! {
        #[test]
        fn intervals_hold_their_median_and_repeat(values in prop::collection::vec(-1e9f64..1e9, 1..40)) {
            let interval = median_interval(&values).unwrap();
            prop_assert!(interval.low <= interval.middle && interval.middle <= interval.high);
            prop_assert_eq!(interval.samples, values.len());
            prop_assert_eq!(interval, median_interval(&values).unwrap());
        }
    }
}
