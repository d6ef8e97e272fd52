//! Two points compared: ratios of blocks that ran next to each other, and what these decide.

use std::cmp::Reverse;

use machine::Nanoseconds;
use serde::{Deserialize, Serialize};

use crate::clocks::at_one_clock;
use crate::contrast::{EQUALITY, ERROR, FIRST_LOOK, Verdict};
use crate::cost::{cpu_per_message, softirqs_missing};
use crate::estimate::Estimate;
use crate::nearness::as_near;
use crate::point::Metric;
use crate::sample::Sample;
use crate::statistics::median;

/// Rounds of a place that performs no worse, in which it may show that it performs better or the same.
pub const SETTLED: usize = 60;

/// CPU cost breaks a tie only where it can lose no more performance than this factor; places that cannot be told apart
/// are a tie where they differ by less.
const TIE: f64 = 1.10;

/// Blocks of one round further apart than this were separated by an interruption of the study: drift does not cancel.
const APART: Nanoseconds = Nanoseconds(60_000_000_000);

/// The result of the ratios of one point over another.
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

/// Ratios of one point over another, round by round.
#[derive(Debug, Clone, PartialEq)]
pub struct Paired {
    /// The ratios, above 1 where the first is better.
    pub ratios: Vec<f64>,
}

impl Paired {
    /// The ratios of pairs; only pairs of positive values count.
    pub fn ratios(pairs: impl IntoIterator<Item = (f64, f64)>) -> Paired {
        let ratio = |(one, other)| (one > 0.0 && other > 0.0).then_some(one / other);
        Paired { ratios: pairs.into_iter().filter_map(ratio).collect() }
    }

    /// Ratios of the performance of `a` to that of `b`.
    pub fn performance(a: &[Sample], b: &[Sample], metric: Metric) -> Paired {
        let ratio = |x: &Sample, y: &Sample| {
            let (over, under) = if metric.more_is_better() { (x.value, y.value) } else { (y.value, x.value) };
            (over > 0.0 && under > 0.0).then(|| over / under)
        };
        Paired::of(a, b, ratio)
    }

    /// Ratios of CPU time per message, above 1 where `a` costs less. Blocks whose softirqs could not be counted are
    /// left out, since the kernel's work is missing in their cost.
    pub fn cost(a: &[Sample], b: &[Sample]) -> Paired {
        let ratio = |x: &Sample, y: &Sample| {
            if softirqs_missing(x).or(softirqs_missing(y)).is_some() {
                return None;
            }
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

    fn estimate(&self) -> Option<Estimate> {
        let differences: Vec<f64> = self.ratios.iter().map(|ratio| ratio.ln()).collect();
        Estimate::of(&differences, ERROR)
    }

    /// The ratio with its interval; `None` of fewer than two pairs.
    pub fn interval(&self) -> Option<Estimate> {
        self.estimate().map(Estimate::exp)
    }

    /// The ends of [`Paired::interval`], once there are enough pairs to decide anything.
    pub fn deciding(&self) -> Option<(f64, f64)> {
        let Estimate { low, high, samples, .. } = self.interval()?;
        (samples >= FIRST_LOOK as usize).then_some((low, high))
    }

    /// Whether more rounds could tell which is better, or that neither is.
    pub fn is_open(&self) -> bool {
        !matches!(self.standing(), Standing::Better | Standing::Worse | Standing::Equal)
    }

    pub fn standing(&self) -> Standing {
        let Some(estimate) = self.estimate() else { return Standing::Unclear };
        match estimate.says(EQUALITY) {
            Verdict::Better => Standing::Better,
            Verdict::Worse => Standing::Worse,
            Verdict::Either => Standing::Equal,
            Verdict::CannotTell if estimate.samples < FIRST_LOOK as usize => Standing::Unclear,
            Verdict::CannotTell if estimate.low >= -EQUALITY.ln_1p() => Standing::NotWorse,
            Verdict::CannotTell if estimate.high <= EQUALITY.ln_1p() => Standing::NotBetter,
            Verdict::CannotTell => Standing::Unclear,
        }
    }
}

/// Whether two blocks of one round met the same machine: close in time, on cores equally near and fast.
fn side_by_side(x: &Sample, y: &Sample) -> bool {
    let same_nearness = x.probe.zip(y.probe).is_none_or(|(one, other)| as_near(one, other));
    same_nearness && at_one_clock([&x.clocks, &y.clocks]) && x.started.0.abs_diff(y.started.0) <= APART.0
}

/// Rounds in which every one of `points` has a block and all of them ran side by side, ascending.
pub fn even_rounds(points: &[&[Sample]]) -> Vec<u32> {
    let Some((first, others)) = points.split_first() else { return Vec::new() };
    let met = |x: &&Sample| others.iter().all(|o| o.iter().any(|y| y.round == x.round && side_by_side(x, y)));
    first.iter().filter(met).map(|x| x.round).collect()
}

/// Index of the point that performs best, by ratios to the point with the most rounds; `None` where none has a sample.
pub fn leader(points: &[&[Sample]], metric: Metric) -> Option<usize> {
    let measured = || (0..points.len()).filter(|nth| !points[*nth].is_empty());
    // A beaten point gets no more rounds, while others may get many more.
    let base = measured().min_by_key(|nth| Reverse(points[*nth].len()))?;
    let over_base = |nth: usize| median(&Paired::performance(points[nth], points[base], metric).ratios);
    measured()
        .filter_map(|nth| Some((nth, if nth == base { 1.0 } else { over_base(nth)? })))
        .max_by(|(_, one), (_, other)| one.total_cmp(other))
        .map(|(nth, _)| nth)
}

/// The decision by the samples of several candidates; indices into them, the leader first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The place performs better than every other, or as well as the close ones and costs less CPU.
    Place(usize),
    /// The place performs no worse than any other, and may perform better.
    Safe(usize),
    /// The places perform the same within [`EQUALITY`], and no other performs better.
    Either(Vec<usize>),
    /// The places cannot be told apart.
    Open(Vec<usize>),
}

/// Decides between `points`, each with at least one sample; `None` where there are none.
///
/// A place is chosen when it can lose no more than [`EQUALITY`] against any other: the indifference zone of selection
/// procedures (Bechhofer, Annals of Mathematical Statistics 25:1, 1954).
pub fn answer(points: &[&[Sample]], metric: Metric) -> Option<Answer> {
    let first = leader(points, metric)?;
    if points.len() == 1 {
        return Some(Answer::Open(vec![first]));
    }
    let over = |one: usize, other: usize| Paired::performance(points[one], points[other], metric);
    let others = (0..points.len()).filter(|&other| other != first && !is_beaten(points, metric, other));
    let tied: Vec<(usize, Paired)> =
        others.map(|o| (o, over(first, o))).filter(|(_, p)| p.standing() != Standing::Better).collect();
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
    let is_safe = |&one: &usize| all.iter().all(|&other| other == one || holds(one, other));
    let safe: Vec<usize> = all.iter().copied().filter(is_safe).collect();
    Some(match safe.as_slice() {
        [] => Answer::Open(all),
        [one] => Answer::Safe(*one),
        _ => Answer::Either(safe),
    })
}

/// The greatest possible difference, as a share, between the first of the points `between` of an open answer and the
/// others; `None` where it is more than a tie.
pub fn alike(points: &[&[Sample]], metric: Metric, between: &[usize]) -> Option<f64> {
    let (first, others) = between.split_first().filter(|(_, others)| !others.is_empty())?;
    let widest = others.iter().try_fold(1.0_f64, |widest, other| {
        let (low, high) = Paired::performance(points[*first], points[*other], metric).deciding()?;
        Some(widest.max(high).max(1.0 / low))
    });
    widest.filter(|widest| *widest < TIE).map(|widest| widest - 1.0)
}

/// Whether any other of `points` performs better than `one`.
pub fn is_beaten(points: &[&[Sample]], metric: Metric, one: usize) -> bool {
    let better = |other: usize| Paired::performance(points[other], points[one], metric).standing() == Standing::Better;
    (0..points.len()).any(|other| other != one && better(other))
}

/// Whether more rounds could still change what `points` decide.
pub fn is_open(points: &[&[Sample]], metric: Metric) -> bool {
    match answer(points, metric) {
        Some(Answer::Open(all)) => all.len() > 1,
        Some(Answer::Safe(one)) => points[one].len() < SETTLED,
        _ => false,
    }
}
