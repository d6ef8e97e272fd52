//! Medians and their bootstrap intervals. No sample is ever dropped as an outlier: the median carries them.

use crate::findings::Interval;
use crate::random::Random;

/// Resamples of a bootstrap.
const RESAMPLES: usize = 2000;

/// Fixed, so that the same samples always give the same interval.
const SEED: u64 = 0x0051_1A11_0000_0002;

/// The middle value, or the mean of the two middle ones; `None` of nothing.
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

/// Median and 95 % percentile-bootstrap interval; `None` of nothing. One value is its own interval.
pub fn median_interval(values: &[f64]) -> Option<Interval> {
    median_interval_at(values, 0.95)
}

/// The same at any `confidence` between 0 and 1.
///
/// The plain percentile bootstrap is too narrow for few samples. Its tails are therefore widened by Hesterberg's
/// expansion (The American Statistician 69:4, 2015, §5.3): the tail is that of Student's t, times sqrt(n/(n-1)).
pub fn median_interval_at(values: &[f64], confidence: f64) -> Option<Interval> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = median_of_sorted(&sorted)?;
    let n = sorted.len();
    if n == 1 {
        return Some(Interval { median, low: median, high: median, samples: 1 });
    }
    let mut random = Random::new(SEED);
    let mut drawn = vec![0usize; n];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            drawn.fill_with(|| random.below(n));
            let (below, &mut middle, _) = drawn.select_nth_unstable(n / 2);
            if n % 2 == 1 {
                sorted[middle]
            } else {
                let before = below.iter().copied().max().expect("an even number of draws has a lower half");
                (sorted[before] + sorted[middle]) / 2.0
            }
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let tail = expanded_tail(n, confidence);
    let (low, high) = (quantile_of_sorted(&medians, tail), quantile_of_sorted(&medians, 1.0 - tail));
    Some(Interval { median, low, high, samples: n })
}

/// Student's interval of the geometric mean of positive `ratios`; `None` of fewer than two.
pub fn geometric_interval_at(ratios: &[f64], confidence: f64) -> Option<(f64, f64)> {
    let n = ratios.len();
    if n < 2 {
        return None;
    }
    let logs: Vec<f64> = ratios.iter().map(|r| r.ln()).collect();
    let mean = logs.iter().sum::<f64>() / n as f64;
    let variance = logs.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
    let reach = student_t(n - 1, confidence) * (variance / n as f64).sqrt();
    Some(((mean - reach).exp(), (mean + reach).exp()))
}

/// Noise: the interquartile range over the median. `None` of fewer than four values or a median of 0.
pub fn relative_spread(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = median_of_sorted(&sorted)?;
    (sorted.len() >= 4 && median != 0.0)
        .then(|| (quantile_of_sorted(&sorted, 0.75) - quantile_of_sorted(&sorted, 0.25)) / median.abs())
}

/// Probability left in each tail of the percentile interval of `n >= 2` samples.
fn expanded_tail(n: usize, confidence: f64) -> f64 {
    let widening = (n as f64 / (n - 1) as f64).sqrt();
    normal_cdf(-widening * student_t(n - 1, confidence))
}

/// What |t| stays below with probability `confidence`; above 200 degrees of freedom it hardly changes.
fn student_t(freedom: usize, confidence: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1e4);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if student_share(middle, freedom.min(200)) < confidence { low = middle } else { high = middle }
    }
    low
}

/// P(|T| < t) for whole degrees of freedom: Abramowitz and Stegun 26.7.3 and 26.7.4.
fn student_share(t: f64, freedom: usize) -> f64 {
    let angle = (t / (freedom as f64).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let odd = freedom % 2 == 1;
    let mut term = if odd { cosine } else { 1.0 };
    let mut sum = 0.0;
    for step in 1..=freedom / 2 {
        sum += term;
        let k = 2.0 * step as f64;
        term *= cosine * cosine * if odd { k / (k + 1.0) } else { (k - 1.0) / k };
    }
    if odd { (angle + sine * sum) * std::f64::consts::FRAC_2_PI } else { sine * sum }
}

/// Abramowitz and Stegun 7.1.26; absolute error below 1.5e-7.
fn normal_cdf(x: f64) -> f64 {
    let z = x.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let poly =
        t * (0.254_829_592 + t * (-0.284_496_736 + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    let upper = poly * (-z * z).exp() / 2.0;
    if x < 0.0 { upper } else { 1.0 - upper }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn normal(random: &mut Random) -> f64 {
        let (u, v) = (1.0 - random.unit(), random.unit());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    #[test]
    fn medians_of_small_sets() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn tables_are_met() {
        let table = [
            (1, 0.95, 12.706),
            (2, 0.95, 4.303),
            (4, 0.95, 2.776),
            (5, 0.99, 4.032),
            (9, 0.95, 2.262),
            (30, 0.99, 2.750),
            (120, 0.95, 1.980),
        ];
        for (freedom, confidence, t) in table {
            let found = student_t(freedom, confidence);
            assert!((found - t).abs() < 0.001, "t of {freedom} at {confidence}: {found}");
        }
        for (x, p) in [(-3.0, 0.001_349_9), (-1.96, 0.024_997_9), (0.0, 0.5), (1.0, 0.841_344_7)] {
            assert!((normal_cdf(x) - p).abs() < 1e-6, "{x}");
        }
    }

    /// Five samples: no interval of the median can be wider than all of them, which covers it in 15 of 16 draws.
    #[test]
    fn five_samples_give_their_whole_range() {
        let interval = median_interval(&[5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!((interval.low, interval.median, interval.high), (1.0, 3.0, 5.0));
    }

    #[test]
    fn the_interval_covers_the_true_median_in_95_of_100_draws() {
        type Draw = fn(&mut Random) -> f64;
        let shapes: [(&str, Draw, f64); 3] = [
            ("normal", normal, 0.0),
            ("exponential", |r| -(1.0 - r.unit()).ln(), std::f64::consts::LN_2),
            // One block in ten disturbed, as a busy machine does it; symmetric, so that the median stays.
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
                // 0.95 less three standard errors of 400 trials.
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
            prop_assert!(interval.low <= interval.median && interval.median <= interval.high);
            prop_assert_eq!(interval.samples, values.len());
            prop_assert_eq!(interval, median_interval(&values).unwrap());
        }
    }
}
