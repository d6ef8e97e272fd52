//! Steps in what a program waits.
//!
//! A unit is what one user ran on one day: such jobs resemble one another, and count once. At each cut, the first day of a version
//! or of a period, the units before and after it are compared by their ranks (Wilcoxon's rank sum, standardised). The largest of
//! these sums is held against the largest over the same cuts of the units in random orders, so that the chance of a false step
//! does not grow with the number of cuts (Westfall and Young 1993, 'single-step maxT'). A step divides the units, and each side is
//! asked again (binary segmentation; Vostrikova 1981).
//!
//! Where a program's waiting does not change, a step is marked of one program in a thousand. Whoever drifts slowly, or changes what
//! is run rather than the program, gets a step too: a step says when, not why.

use rounds::random::Random;
use rounds::statistics::{median, median_interval};
use serde::Serialize;

/// Orders that are drawn, and the share of them whose largest sum may reach that of the calendar.
const ORDERS: usize = 999;
const ERROR: f64 = 0.001;
const SEED: u64 = 0x0057_E95E;
/// Units on either side of a cut.
const FEWEST: usize = 6;
/// A smaller step is nobody's concern, however certain.
const LEAST: f64 = 0.01;

/// What one user ran on one day.
#[derive(Debug, Clone, Copy)]
pub struct Unit {
    /// Since 1970.
    pub day: u64,
    /// Share of the jobs' time that they waited.
    pub wait: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Step {
    /// The last day before it, and the first after it.
    #[serde(skip)]
    pub last: u64,
    #[serde(skip)]
    pub day: u64,
    /// Medians of the units between the step before and this one, and between this one and the next.
    pub before: f64,
    pub after: f64,
    /// Of `after - before`, 95 %: from the intervals of both medians (MOVER; Zou and Donner 2008).
    pub change: (f64, f64),
    /// Share of the orders whose largest sum reached this one.
    pub chance: f64,
}

/// The steps of units, which are sorted by their days, at some of these days.
pub fn steps(units: &[Unit], days: &[u64]) -> Vec<Step> {
    let mut found = Vec::new();
    divide(units, days, 0, &mut found);
    found.sort_by_key(|(at, _)| *at);
    let ends: Vec<usize> = found.iter().skip(1).map(|(at, _)| *at).chain([units.len()]).collect();
    let mut from = 0;
    let step = |((at, chance), end): ((usize, f64), usize)| {
        let side = |units: &[Unit]| median_interval(&units.iter().map(|unit| unit.wait).collect::<Vec<_>>());
        let (before, after) = (side(&units[from..at])?, side(&units[at..end])?);
        from = at;
        let change = after.middle - before.middle;
        let below = (after.middle - after.low).hypot(before.high - before.middle);
        let above = (after.high - after.middle).hypot(before.middle - before.low);
        let (before, after) = (before.middle, after.middle);
        Some(Step {
            last: units[at - 1].day,
            day: units[at].day,
            before,
            after,
            change: (change - below, change + above),
            chance,
        })
    };
    found.into_iter().zip(ends).filter_map(step).collect()
}

/// Adds the places of steps among `units`, of which the first is at `offset`.
fn divide(units: &[Unit], days: &[u64], offset: usize, found: &mut Vec<(usize, f64)>) {
    let mut cuts: Vec<usize> = days.iter().map(|day| units.partition_point(|unit| unit.day < *day)).collect();
    cuts.retain(|cut| (FEWEST..=units.len().saturating_sub(FEWEST)).contains(cut));
    cuts.sort_unstable();
    cuts.dedup();
    let mut ranks = centred_ranks(units);
    let Some((most, at)) = largest(&ranks, &cuts) else { return };
    let mut random = Random::stream(SEED, units.len() as u64);
    let may_reach = (ERROR * (ORDERS + 1) as f64).round() as usize - 1;
    let mut reached = 0;
    for _ in 0..ORDERS {
        random.shuffle(&mut ranks);
        // Sums of one set of ranks in two orders differ by rounding.
        reached += usize::from(largest(&ranks, &cuts).is_some_and(|(sum, _)| sum >= most * (1.0 - 1e-9)));
        if reached > may_reach {
            return;
        }
    }
    let middle = |units: &[Unit]| median(&units.iter().map(|unit| unit.wait).collect::<Vec<_>>()).unwrap_or(0.0);
    let (before, after) = units.split_at(at);
    if (middle(after) - middle(before)).abs() < LEAST {
        return;
    }
    found.push((offset + at, (reached + 1) as f64 / (ORDERS + 1) as f64));
    divide(before, days, offset, found);
    divide(after, days, offset + at, found);
}

/// Ranks less their mean; equal shares have the mean of theirs.
fn centred_ranks(units: &[Unit]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..units.len()).collect();
    order.sort_by(|a, b| units[*a].wait.total_cmp(&units[*b].wait));
    let mut ranks = vec![0.0; units.len()];
    let mean = (units.len() as f64 - 1.0) / 2.0;
    let mut first = 0;
    for equal in order.chunk_by(|a, b| units[*a].wait == units[*b].wait) {
        let rank = first as f64 + (equal.len() as f64 - 1.0) / 2.0;
        equal.iter().for_each(|place| ranks[*place] = rank - mean);
        first += equal.len();
    }
    ranks
}

/// The largest sum of ranks before a cut, in standard deviations but for a factor that all orders share, and its cut.
fn largest(ranks: &[f64], cuts: &[usize]) -> Option<(f64, usize)> {
    let (mut sum, mut from) = (0.0, 0);
    let sums = cuts.iter().map(|&cut| {
        sum += ranks[from..cut].iter().sum::<f64>();
        from = cut;
        let deviation = (cut as f64 * (ranks.len() - cut) as f64).sqrt();
        (f64::abs(sum) / deviation, cut)
    });
    sums.max_by(|a, b| a.0.total_cmp(&b.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units of a year, two a day, whose waiting is `middle` of their day, and a spread that is skewed as that of jobs is.
    fn year(seed: u64, middle: impl Fn(u64) -> f64) -> Vec<Unit> {
        let mut random = Random::stream(5, seed);
        (0..730)
            .map(|n| (n / 2, random.unit()))
            .map(|(day, r)| Unit { day, wait: middle(day) + 0.2 * r * r * r })
            .collect()
    }

    fn monthly() -> Vec<u64> {
        (0..12).map(|month| month * 30).collect()
    }

    #[test]
    fn a_step_is_found_on_its_day_with_its_size() {
        let days: Vec<u64> = monthly().into_iter().chain([200, 77]).collect();
        let found = steps(&year(1, |day| if day < 200 { 0.1 } else { 0.15 }), &days);
        let [step] = found[..] else { panic!("{found:?}") };
        assert_eq!(step.day, 200);
        assert!(step.change.0 < 0.05 && step.change.1 > 0.05 && step.chance <= ERROR, "{step:?}");
        let two = steps(&year(2, |day| if (100..250).contains(&day) { 0.2 } else { 0.1 }), &[30, 100, 180, 250]);
        assert_eq!(two.iter().map(|step| step.day).collect::<Vec<_>>(), [100, 250]);
        assert!(two[0].before < two[0].after && two[1].before > two[1].after, "{two:?}");
    }

    /// 24 cuts are tried of each program, and yet a step is marked of one in a thousand, but for chance.
    #[test]
    fn what_does_not_change_has_no_step() {
        let days: Vec<u64> = (1..25).map(|cut| 15 * cut).collect();
        let sparse = |seed| year(seed, |_| 0.1).into_iter().step_by(5).collect::<Vec<_>>();
        let marked = (0..2_000).filter(|seed| !steps(&sparse(*seed), &days).is_empty()).count();
        assert!((1..=6).contains(&marked), "{marked} of 2,000");
    }

    #[test]
    fn a_certain_step_that_is_small_is_none_and_few_units_have_none() {
        let tight = |size: f64| {
            let unit = |unit: &Unit| Unit {
                wait: 0.1 + unit.wait / 100.0 + size * f64::from(u8::from(unit.day >= 180)),
                ..*unit
            };
            steps(&year(3, |_| 0.1).iter().map(unit).collect::<Vec<_>>(), &monthly()).len()
        };
        assert_eq!([tight(0.005), tight(0.02)], [0, 1]);
        let few: Vec<Unit> = (0..10).map(|day| Unit { day, wait: if day < 5 { 0.1 } else { 0.9 } }).collect();
        assert!(steps(&few, &[5]).is_empty());
        assert!(steps(&[], &[5]).is_empty());
        let equal: Vec<Unit> = (0..40).map(|day| Unit { day, wait: 0.5 }).collect();
        assert!(steps(&equal, &[20]).is_empty());
    }
}
