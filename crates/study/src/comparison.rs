//! Two points side by side: ratios of blocks that ran next to each other, and what they decide.

use machine::Nanoseconds;
use serde::{Deserialize, Serialize};

use crate::cost::cpu_per_message;
use crate::design::MINIMUM_ROUNDS;
use crate::findings::Interval;
use crate::nearness::as_near;
use crate::point::Metric;
use crate::sample::Sample;
use crate::statistics::{median, median_interval_at};

/// Performance within this of another is the same in practice.
pub const EQUALITY: f64 = 0.02;

/// Rounds after which a comparison is looked at, to be decided or to go on to the next look.
///
/// The rule: every comparison gets the first look's rounds; one that is open then gets as many again, all of them or
/// none, as long as the budget holds them. The number of looks is fixed before the first block, and each asks for
/// [`LOOK_CONFIDENCE`] instead of 95 %, so that a comparison is fooled by noise in at most 5 of 100 studies however
/// often it was looked at. Where the budget ends between two looks, the end takes the place of the next look.
pub const LOOKS: [u32; 7] = [8, 16, 32, 64, 128, 256, 512];

/// Confidence of one look. Seven looks at doubling numbers of normal samples are then fooled in 4.7 of 100 comparisons
/// (by simulation; after Pocock, Biometrika 64:2, 1977, whose looks are equally spaced).
const LOOK_CONFIDENCE: f64 = 0.991;

/// By chance the resemblance of neighbours exceeds this over the root of their number in one of six.
const SIGNIFICANT: f64 = 1.0;

/// More than this says that the machine changed, which no factor makes good.
const MOST_RESEMBLANCE: f64 = 0.8;

/// A place that performs no worse gets so many rounds to show whether it performs better, or just the same.
pub const SETTLED: usize = 64;

/// CPU cost breaks a tie only where no more performance than this can be lost by it.
const TIE: f64 = 1.10;

/// Blocks of one round further apart than this were cut apart by a kill and a resume: drift does not cancel.
const APART: Nanoseconds = Nanoseconds(60_000_000_000);

/// What the ratios of one point over another say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    Better,
    Worse,
    /// The whole interval lies within [`EQUALITY`].
    Equal,
    /// Better or equal: the whole interval lies above.
    NotWorse,
    /// Worse or equal: the whole interval lies below.
    NotBetter,
    /// The interval is too wide to tell, or there is none.
    Unclear,
}

/// One point over another, round by round.
#[derive(Debug, Clone, PartialEq)]
pub struct Paired {
    /// Above 1 where the first is better.
    pub ratios: Vec<f64>,
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
        for x in a {
            let Some(y) = b.iter().find(|y| y.round == x.round) else { continue };
            if side_by_side(x, y) {
                ratios.extend(ratio(x, y));
            }
        }
        Paired { ratios }
    }

    /// Median and interval, to be shown: it covers the truth in 95 of 100 studies, however often they were looked at (see
    /// [`LOOKS`]). `None` without a pair.
    ///
    /// Where neighbouring rounds resemble each other, there is less in them than in as many independent ones: the interval is
    /// then wider by the factor by which the standard error of their mean is.
    pub fn interval(&self) -> Option<Interval> {
        let Interval { median, low, high, samples } = median_interval_at(&self.ratios, LOOK_CONFIDENCE)?;
        let resemblance = resemblance(&self.ratios).min(MOST_RESEMBLANCE);
        let wider = ((1.0 + resemblance) / (1.0 - resemblance)).sqrt();
        let end = |end: f64| median * (end / median).powf(wider);
        Some(Interval { median, low: end(low), high: end(high), samples })
    }

    /// The same, where there are enough pairs to decide anything.
    pub fn deciding(&self) -> Option<(f64, f64)> {
        let Interval { low, high, samples, .. } = self.interval()?;
        (samples >= MINIMUM_ROUNDS as usize).then_some((low, high))
    }

    pub fn standing(&self) -> Standing {
        let Some((low, high)) = self.deciding() else { return Standing::Unclear };
        let (least, most) = (1.0 / (1.0 + EQUALITY), 1.0 + EQUALITY);
        match (low >= least, high <= most) {
            _ if low > most => Standing::Better,
            _ if high < least => Standing::Worse,
            (true, true) => Standing::Equal,
            (true, false) => Standing::NotWorse,
            (false, true) => Standing::NotBetter,
            (false, false) => Standing::Unclear,
        }
    }
}

/// How much values resemble those next to them: the correlation of neighbours' ranks (0 to 1), where it exceeds what is
/// likely by chance; else 0.
fn resemblance(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    // Twice the rank, less the mean of all.
    let rank =
        |value: &f64| values.iter().map(|other| f64::from(i32::from(value > other) - i32::from(value < other))).sum();
    let ranks: Vec<f64> = values.iter().map(rank).collect();
    let products: f64 = ranks.windows(2).map(|pair| pair[0] * pair[1]).sum();
    let squares: f64 = ranks.iter().map(|rank| rank * rank).sum();
    // Of few values it comes out too small by 1 / n.
    let found = products / squares + 1.0 / n;
    if found * n.sqrt() > SIGNIFICANT { found } else { 0.0 }
}

/// Whether two blocks of one round met the same machine: close in time, the cores as near for both.
fn side_by_side(x: &Sample, y: &Sample) -> bool {
    let same_nearness = x.probe.zip(y.probe).is_none_or(|(one, other)| as_near(one, other));
    same_nearness && x.started.0.abs_diff(y.started.0) <= APART.0
}

/// Rounds in which every one of `points` has a block and all of them ran side by side, ascending.
pub fn even_rounds(points: &[&[Sample]]) -> Vec<u32> {
    let Some((first, others)) = points.split_first() else { return Vec::new() };
    let met = |x: &&Sample| others.iter().all(|o| o.iter().any(|y| y.round == x.round && side_by_side(x, y)));
    first.iter().filter(met).map(|x| x.round).collect()
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

/// What the samples of several candidates decide; indices into them, the leader first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It performs better than every other, or as well as those that come close and costs less CPU.
    Place(usize),
    /// It performs no worse than any other, and may perform better.
    Safe(usize),
    /// They perform the same within [`EQUALITY`], and no other performs better.
    Either(Vec<usize>),
    /// They cannot be told apart.
    Open(Vec<usize>),
}

/// Decides between `points`, each with a sample or more; `None` of none.
///
/// A place is chosen when it cannot cost more than [`EQUALITY`] whatever else were chosen: the indifference zone of
/// selection procedures (Bechhofer, Annals of Mathematical Statistics 25:1, 1954).
pub fn answer(points: &[&[Sample]], metric: Metric) -> Option<Answer> {
    let first = leader(points, metric)?;
    if points.len() == 1 {
        return Some(Answer::Open(vec![first]));
    }
    let over = |one: usize, other: usize| Paired::performance(points[one], points[other], metric);
    let others = |one: usize| (0..points.len()).filter(move |&other| other != one);
    let tied: Vec<(usize, Paired)> =
        others(first).map(|o| (o, over(first, o))).filter(|(_, p)| p.standing() != Standing::Better).collect();
    if tied.is_empty() {
        return Some(Answer::Place(first));
    }
    let all: Vec<usize> = [first].into_iter().chain(tied.iter().map(|(other, _)| *other)).collect();
    let close = |pair: &Paired| pair.deciding().is_some_and(|(low, high)| low > 1.0 / TIE && high < TIE);
    let cheaper = |one: usize, other: usize| {
        one == other || Paired::cost(points[one], points[other]).standing() == Standing::Better
    };
    if tied.iter().all(|(_, pair)| close(pair))
        && let Some(&one) = all.iter().find(|&&one| all.iter().all(|&other| cheaper(one, other)))
    {
        return Some(Answer::Place(one));
    }
    let holds = |one: usize, other| {
        matches!(over(one, other).standing(), Standing::Better | Standing::Equal | Standing::NotWorse)
    };
    let safe: Vec<usize> = all.iter().copied().filter(|&one| others(one).all(|other| holds(one, other))).collect();
    Some(match safe.as_slice() {
        [] => Answer::Open(all),
        [one] => Answer::Safe(*one),
        _ => Answer::Either(safe),
    })
}

/// Whether more rounds could still change what `points` decide.
pub fn is_open(points: &[&[Sample]], metric: Metric) -> bool {
    match answer(points, metric) {
        Some(Answer::Open(all)) => all.len() > 1,
        Some(Answer::Safe(one)) => points[one].len() < SETTLED,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_that_resemble_each_other_widen_the_interval() {
        let waves: Vec<f64> = (0..64).map(|n| 1.0 + 0.01 * (f64::from(n) / 5.0).sin()).collect();
        let alternating: Vec<f64> = (0..64).map(|n| 1.0 + 0.01 * f64::from(n % 2 * 2 - 1) * f64::from(n)).collect();
        assert!(resemblance(&waves) > 0.9);
        assert_eq!(resemblance(&alternating), 0.0);
        assert_eq!((resemblance(&[]), resemblance(&[1.0]), resemblance(&[1.0; 9])), (0.0, 0.0, 0.0));
        let width = |ratios: &[f64]| {
            let Interval { low, high, .. } = Paired { ratios: ratios.to_vec() }.interval().unwrap();
            high - low
        };
        // The same ratios in an order without resemblance.
        let mut spread = waves.clone();
        crate::random::Random::new(3).shuffle(&mut spread);
        assert!(width(&waves) > 2.0 * width(&spread), "{} {}", width(&waves), width(&spread));
    }
}
