//! Sweeps of unknown parameters: a low-discrepancy sequence, so that a prediction is the same in every run.

use machine::Result;
use machine::costs::Interval;

use super::rows::{Calibration, Range};

/// A parameter that no row fixes: the range in which it is swept, and why that range.
#[derive(Debug, Clone, Copy)]
pub struct Unknown {
    pub name: &'static str,
    pub low: f64,
    pub high: f64,
    /// Whether the sweep is even in the logarithm.
    pub log: bool,
    pub unit: &'static str,
    pub why: &'static str,
}

/// One point of the sweep: each call takes its next coordinate, so that a model asks in a fixed order.
pub struct Draw {
    index: usize,
    coordinate: usize,
}

/// Primes whose square roots' multiples are the coordinates: no sum of these roots with integer factors is an integer.
const PRIMES: [f64; 24] = [
    2., 3., 5., 7., 11., 13., 17., 19., 23., 29., 31., 37., 41., 43., 47., 53., 59., 61., 67., 71., 73., 79., 83., 89.,
];

impl Draw {
    /// A value evenly distributed in (0, 1).
    pub fn unit(&mut self) -> f64 {
        let root = PRIMES[self.coordinate].sqrt();
        self.coordinate += 1;
        (0.5 + root * self.index as f64).fract()
    }

    pub fn within(&mut self, range: Range) -> f64 {
        range.low + (range.high - range.low) * self.unit()
    }

    pub fn of(&mut self, unknown: &Unknown) -> f64 {
        match unknown.log {
            true => self.within(Range { low: unknown.low.ln(), high: unknown.high.ln() }).exp(),
            false => self.within(Range { low: unknown.low, high: unknown.high }),
        }
    }

    /// A normally distributed value with mean 0 (Box and Muller).
    pub fn normal(&mut self, deviation: f64) -> f64 {
        let (one, other) = (self.unit().max(1e-12), self.unit());
        deviation * (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos()
    }
}

/// The number of draws of a prediction.
#[derive(Debug, Clone, Copy)]
pub struct Sweep {
    /// Draws of closed forms.
    pub closed: usize,
    /// Draws of simulated programs.
    pub replays: usize,
}

impl Default for Sweep {
    fn default() -> Self {
        Sweep { closed: 512, replays: 64 }
    }
}

/// `model` at each of `count` draws.
///
/// # Errors
/// The first of the model's.
pub fn swept<T>(count: usize, mut model: impl FnMut(&mut Draw) -> Result<T>) -> Result<Vec<T>> {
    (0..count).map(|index| model(&mut Draw { index, coordinate: 0 })).collect()
}

/// The central 95 % of `values`, with their median.
pub fn interval(mut values: Vec<f64>) -> Interval {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[(share * (values.len() - 1) as f64).round() as usize];
    Interval { middle: at(0.5), low: at(0.025), high: at(0.975) }
}

/// How runs of one point spread, in per cent of the mean: a log-normal through the papers' two quantiles of it (A13).
///
/// ```text
/// ln q80 = mu + 0.842 s,  ln q97.5 = mu + 1.960 s
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    pub mu: f64,
    pub s: f64,
}

impl Spread {
    pub fn fit(rows: &Calibration, draw: &mut Draw) -> Result<Spread> {
        let (most, nearly_all) = (draw.within(rows.range("spread/p80")?), draw.within(rows.range("spread/p97.5")?));
        let s = (nearly_all / most).ln() / (1.960 - 0.842);
        Ok(Spread { mu: most.ln() - 0.842 * s, s })
    }

    /// The median deviation of the difference of two means of three runs each.
    pub fn of_difference(&self) -> f64 {
        self.mu.exp() * (2.0_f64 / 3.0).sqrt()
    }

    /// The deviation of a mean of three runs at one point, which points differ in.
    pub fn of_mean(&self, draw: &mut Draw) -> f64 {
        (self.mu + draw.normal(self.s)).exp() / 3.0_f64.sqrt()
    }
}
