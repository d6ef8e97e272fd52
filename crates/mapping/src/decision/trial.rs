//! Trial of a move: windows before the move against windows after.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::observation::{Observation, Process};
use super::proposal::{Change, Step};

/// The figure by which a job is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Messages or calls a second, over all ranks.
    Progress,
    /// The share of time in which ranks are not denied their cores, the only measure in scheduling data.
    Undenied,
}

impl Measure {
    /// The value in a window; more is better.
    fn of(self, seen: &Observation) -> Option<f64> {
        let ranks = seen.ranks.iter();
        match self {
            Measure::Progress => ranks.map(|rank| rank.progress).sum(),
            Measure::Undenied => ranks.map(|rank| Some(1.0 - rank.denied?)).sum(),
        }
    }

    /// The best measure that all windows have, with its values.
    fn best<'a>(windows: impl Iterator<Item = &'a Observation> + Clone) -> Option<(Measure, Vec<f64>)> {
        [Measure::Progress, Measure::Undenied].into_iter().find_map(|measure| {
            let values: Vec<f64> = windows.clone().map(|window| measure.of(window)).collect::<Option<_>>()?;
            Some((measure, values))
        })
    }
}

/// A window after the move that has less than this of the worst one before it ends the trial.
const FAR_WORSE: f64 = 0.95;

/// A proposal that is carried out and judged.
#[derive(Debug, Clone)]
pub struct Trial {
    pub measure: Measure,
    before: Vec<f64>,
    after: Vec<f64>,
    /// Windows to come in which the job settles, which are not judged.
    settling: usize,
    /// Steps to come, in order; steps of one host are carried out one a window.
    pub pending: Vec<Step>,
    pub done: Vec<Step>,
    /// The promised gain; its evidence is in `reason`.
    pub gain: (f64, f64),
    pub reason: String,
}

/// The outcome of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The measure that was compared.
    pub measure: Measure,
    /// The median before.
    pub before: f64,
    /// The median after.
    pub after: f64,
    /// The share of pairs of a window before and one after in which the later is better.
    pub better: f64,
    /// The windows after the move.
    pub windows: usize,
}

impl Verdict {
    /// The windows' worth of work that the trial lost.
    pub fn lost(&self) -> f64 {
        (1.0 - self.after / self.before.max(f64::MIN_POSITIVE)).max(0.0) * self.windows as f64
    }
}

impl Trial {
    /// A trial of a proposal; `None` where no measure is known.
    pub fn of<'a>(
        steps: Vec<Step>,
        before: impl Iterator<Item = &'a Observation> + Clone,
        settling: usize,
        (gain, reason): ((f64, f64), String),
    ) -> Option<Trial> {
        let (measure, before) = Measure::best(before)?;
        Some(Trial { measure, before, after: vec![], settling, pending: steps, done: vec![], gain, reason })
    }

    /// The steps of this window: the next one of each host.
    pub fn next(&mut self) -> Vec<Step> {
        let mut hosts: Vec<String> = Vec::new();
        let (now, later) = std::mem::take(&mut self.pending).into_iter().partition(|step: &Step| {
            let is_first = !hosts.contains(&step[0].host);
            hosts.extend(is_first.then(|| step[0].host.clone()));
            is_first
        });
        self.pending = later;
        let now: Vec<Step> = now;
        self.done.extend(now.iter().cloned());
        now
    }

    /// All changes that were made, reversed: from the present seats to the original ones.
    pub fn reverse(&self) -> Step {
        let mut seats: BTreeMap<Process, Change> = BTreeMap::new();
        for change in self.done.iter().flatten() {
            seats.entry(change.process).and_modify(|known| known.to = change.to.clone()).or_insert(change.clone());
        }
        seats.into_values().filter(|change| change.from != change.to).map(|change| change.reverse()).collect()
    }

    /// Whether the trial's ranks are where its steps put them, and may go back or on to the seats of the pending steps.
    pub fn is_as_left(&self, seen: &Observation) -> bool {
        let rank = |change: &Change| seen.ranks.iter().find(|rank| rank.process == change.process);
        let is_there = |change: &Change| rank(change).is_some_and(|rank| rank.cores == change.from);
        let occupied = |change: &Change| {
            seen.cores.iter().any(|core| core.host == change.host && core.occupied && change.to.contains(core.core))
        };
        let may_go = |change: &Change| {
            let is_let = |cores: &machine::CpuSet| change.to.difference(cores).is_empty();
            rank(change).is_some_and(|rank| rank.held.is_none() && is_let(&rank.allowed)) && !occupied(change)
        };
        let back = self.reverse();
        back.iter().all(|change| is_there(change) && may_go(change)) && self.pending.iter().flatten().all(may_go)
    }

    /// Adds a window; returns the verdict once there are enough, or at once where the job is far slower.
    pub fn judge(&mut self, seen: &Observation, judged: usize) -> Option<Verdict> {
        if self.settling > 0 {
            self.settling -= 1;
            return None;
        }
        // An unknown measure counts as 0.
        self.after.push(self.measure.of(seen).unwrap_or(0.0));
        let worst = self.before.iter().copied().fold(f64::INFINITY, f64::min);
        let is_far_worse = self.after.iter().all(|after| *after < FAR_WORSE * worst);
        (self.after.len() >= judged || is_far_worse).then(|| Verdict {
            measure: self.measure,
            before: median(&self.before),
            after: median(&self.after),
            better: superiority(&self.before, &self.after),
            windows: self.after.len(),
        })
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// The share of pairs with a larger later value, equal values counted as halves; robust against an outlier.
fn superiority(before: &[f64], after: &[f64]) -> f64 {
    let pairs = before.iter().flat_map(|before| after.iter().map(move |after| (before, after)));
    let wins: f64 = pairs
        .map(|(before, after)| match after.total_cmp(before) {
            std::cmp::Ordering::Greater => 1.0,
            std::cmp::Ordering::Equal => 0.5,
            std::cmp::Ordering::Less => 0.0,
        })
        .sum();
    wins / (before.len() * after.len()).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn superiority_is_a_half_without_effect() {
        assert_eq!(superiority(&[1.0, 2.0, 3.0], &[1.0, 2.0, 3.0]), 0.5);
        assert_eq!(superiority(&[1.0, 2.0], &[3.0, 4.0]), 1.0);
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0])), (2.0, 2.5));
    }
}
