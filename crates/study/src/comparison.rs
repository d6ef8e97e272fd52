//! Two points side by side: ratios of blocks that ran next to each other, and what they decide.

use machine::Nanoseconds;

use crate::cost::cpu_per_message;
use crate::design::MINIMUM_ROUNDS;
use crate::findings::Interval;
use crate::point::Metric;
use crate::sample::{Probe, Sample};
use crate::statistics::{geometric_interval_at, median, median_interval, median_interval_at};

/// Performance within this of another is the same in practice.
pub const EQUALITY: f64 = 0.02;

/// Rounds after which a comparison is looked at, to be decided or to go on. Few, since each look is another chance to
/// be fooled by noise; the last is the end, however much budget is left.
pub const LOOKS: [u32; 7] = [MINIMUM_ROUNDS, 8, 12, 18, 27, 40, 60];

/// Confidence of one look, such that all of them together are fooled in about 5 of 100 comparisons (Pocock,
/// Biometrika 64:2, 1977: nominal level for seven looks).
const LOOK_CONFIDENCE: f64 = 0.987;

/// With fewer pairs even their whole range falls short of [`LOOK_CONFIDENCE`]; Student's interval is asked as well.
const FEW: usize = 8;

/// One way, picoseconds: cores below it are near (share a cache or a core complex), above it far.
const NEAR: u64 = 60_000;

/// Blocks of one round further apart than this were cut apart by a kill and a resume: drift does not cancel.
const APART: Nanoseconds = Nanoseconds(60_000_000_000);

/// Whether the two application cores were near beside a block.
pub fn near(probe: Probe) -> bool {
    probe.half_round_trip_ps < NEAR
}

/// What the ratios of one point over another say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Better,
    Worse,
    /// The same within the margin: more rounds would not change it.
    Equal,
    /// The interval holds both a difference that matters and its opposite, or none at all.
    Unclear,
}

/// One point over another, round by round.
#[derive(Debug, Clone, PartialEq)]
pub struct Paired {
    /// Above 1 where the first is better.
    pub ratios: Vec<f64>,
    /// Median and 95 %, to be shown; `None` without a pair.
    pub interval: Option<Interval>,
    /// Differences up to this share are not told apart: practical equality, or the tool's own overhead where larger.
    pub margin: f64,
    /// Rounds left out because the cores were near for one of the two and far for the other.
    pub mismatched: usize,
}

impl Paired {
    /// Pairs the performance of `a` with that of `b`.
    pub fn performance(a: &[Sample], b: &[Sample], metric: Metric) -> Paired {
        let ratio = |x: &Sample, y: &Sample| {
            let (over, under) = if metric.more_is_better() { (x.value, y.value) } else { (y.value, x.value) };
            (over > 0.0 && under > 0.0).then(|| over / under)
        };
        Paired::of(a, b, ratio)
    }

    /// Pairs CPU time per message; above 1 where `a` costs less.
    pub fn cost(a: &[Sample], b: &[Sample]) -> Paired {
        let ratio = |x: &Sample, y: &Sample| {
            let (x, y) = (cpu_per_message(x), cpu_per_message(y));
            let (x, y) = (*x.value()?, *y.value()?);
            (x > 0.0 && y > 0.0).then(|| y / x)
        };
        Paired::of(a, b, ratio)
    }

    fn of(a: &[Sample], b: &[Sample], ratio: impl Fn(&Sample, &Sample) -> Option<f64>) -> Paired {
        let mut ratios = Vec::new();
        let mut mismatched = 0;
        for x in a {
            let Some(y) = b.iter().find(|y| y.round == x.round) else { continue };
            if x.started.0.abs_diff(y.started.0) > APART.0 {
                continue;
            }
            if let (Some(p), Some(q)) = (x.probe, y.probe)
                && near(p) != near(q)
            {
                mismatched += 1;
                continue;
            }
            ratios.extend(ratio(x, y));
        }
        let margin = EQUALITY.max(overhead_share(a)).max(overhead_share(b));
        Paired { interval: median_interval(&ratios), ratios, margin, mismatched }
    }

    /// The interval that decides: wider than 95 %, since it is looked at again and again while a study runs. `None`
    /// with too few pairs to decide anything.
    pub fn deciding(&self) -> Option<(f64, f64)> {
        if self.ratios.len() < MINIMUM_ROUNDS as usize {
            return None;
        }
        let Interval { low, high, .. } = median_interval_at(&self.ratios, LOOK_CONFIDENCE)?;
        if self.ratios.len() >= FEW {
            return Some((low, high));
        }
        let (least, most) = geometric_interval_at(&self.ratios, LOOK_CONFIDENCE)?;
        Some((low.min(least), high.max(most)))
    }

    pub fn standing(&self) -> Standing {
        let (upper, lower) = (1.0 + self.margin, 1.0 / (1.0 + self.margin));
        match self.deciding() {
            Some((low, _)) if low > upper => Standing::Better,
            Some((_, high)) if high < lower => Standing::Worse,
            Some((low, high)) if low >= lower && high <= upper => Standing::Equal,
            _ => Standing::Unclear,
        }
    }
}

/// Median share of a block that the tool's own counting cost.
pub fn overhead_share(samples: &[Sample]) -> f64 {
    let shares: Vec<f64> = samples
        .iter()
        .filter(|s| s.elapsed.0 > 0)
        .filter_map(|s| Some(s.accounting.as_ref()?.overhead.0 as f64 / s.elapsed.0 as f64))
        .collect();
    median(&shares).unwrap_or(0.0)
}

/// Index of the point with the best median; `None` where none has a sample.
pub fn leader(points: &[&[Sample]], metric: Metric) -> Option<usize> {
    let medians = points.iter().enumerate().filter_map(|(nth, samples)| {
        let values: Vec<f64> = samples.iter().map(|s| s.value).collect();
        Some((nth, median(&values)?))
    });
    let better = |a: &f64, b: &f64| if metric.more_is_better() { a.total_cmp(b) } else { b.total_cmp(a) };
    medians.max_by(|a, b| better(&a.1, &b.1)).map(|(nth, _)| nth)
}

/// Whether more rounds could still change which of `points` leads.
pub fn undecided(points: &[&[Sample]], metric: Metric) -> bool {
    let Some(first) = leader(points, metric) else { return false };
    let others = points.iter().enumerate().filter(|&(nth, samples)| nth != first && !samples.is_empty());
    others
        .into_iter()
        .any(|(_, other)| Paired::performance(points[first], other, metric).standing() == Standing::Unclear)
}
