//! Spread of an arm's figures.

use rounds::statistics::median;

/// Spread of the measured runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    pub mean: f64,
    /// Standard deviation; `None` for one run.
    pub deviation: Option<f64>,
    pub least: f64,
    pub most: f64,
    pub median: f64,
}

impl Spread {
    /// `None` without values.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let median = median(values)?;
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt());
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Spread { mean, deviation, least, most, median })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        let spread = Spread::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!((spread.mean, spread.least, spread.most, spread.median), (5.0, 2.0, 9.0, 4.5));
        assert!((spread.deviation.unwrap() - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(Spread::of(&[3.0]).unwrap().deviation, None);
        assert_eq!(Spread::of(&[]), None);
    }
}
