//! The stopping rule: whether a point needs more runs.

use rounds::contrast::{ERROR, looks};
use rounds::estimate::Estimate;

use super::definition::{Campaign, Interval};
use super::store::PointRuns;

/// By point: whether it needs no more runs. The interval of its mean or ratio is tested only after 6, 8, 12, 18 .. runs,
/// with an error that all tests share.
pub fn settled(campaign: &Campaign, known: &[PointRuns]) -> Vec<bool> {
    let Some(interval) = &campaign.stop.interval else { return vec![false; known.len()] };
    let mut settled = vec![false; known.len()];
    for (nth, block) in campaign.blocks.iter().enumerate() {
        match campaign.baseline(nth) {
            None => block.iter().for_each(|&point| settled[point] = is_narrow(&own(&known[point], interval), interval)),
            Some(baseline) => {
                let others = || block.iter().copied().filter(|&point| point != baseline);
                for point in others() {
                    settled[point] = is_narrow(&ratios(&known[point], &known[baseline], interval), interval);
                }
                // The baseline runs as long as any other point of its block.
                settled[baseline] = others().all(|point| settled[point]);
            }
        }
    }
    settled
}

/// Logarithms of a point's own figures, by round.
fn own(known: &PointRuns, interval: &Interval) -> Vec<f64> {
    let values = known.done.iter().filter_map(|run| run.values.get(interval.figure).copied().flatten());
    values.map(f64::ln).collect()
}

/// Logarithms of the ratios to the baseline, in the rounds that both have.
fn ratios(known: &PointRuns, baseline: &PointRuns, interval: &Interval) -> Vec<f64> {
    let value = |run: &super::store::CountedRun| run.values.get(interval.figure).copied().flatten();
    let ratio = |run: &super::store::CountedRun| {
        let beside = baseline.done.iter().find(|other| (other.session, other.round) == (run.session, run.round))?;
        Some((value(run)? / value(beside)?).ln())
    };
    known.done.iter().filter_map(ratio).collect()
}

fn is_narrow(logarithms: &[f64], interval: &Interval) -> bool {
    if logarithms.iter().any(|value| !value.is_finite()) {
        return false;
    }
    let Some(look) = looks().take_while(|look| *look as usize <= logarithms.len()).last() else { return false };
    let estimate = Estimate::of(&logarithms[..look as usize], ERROR);
    estimate.is_some_and(|Estimate { low, high, .. }| ((high - low) / 2.0).exp_m1() <= interval.half_width)
}
