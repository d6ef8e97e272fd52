//! Judgement of a trial by its runs.

use rounds::clocks::at_one_clock;
use rounds::contrast::{ERROR, FIRST_LOOK, Verdict};
use rounds::estimate::Estimate;
use rounds::nearness::at_one_place;
use rounds::statistics::median;

use super::design::Design;
use super::spread::Spread;
use super::{Run, Runs};

/// Most run lengths between starts of one round that are compared: across a longer break, drift does not cancel.
const APART: f64 = 3.0;

/// Seconds within which runs of one round are never too far apart.
const ALWAYS_TOGETHER: f64 = 60.0;

/// Gain for which nobody changes a launch line: of the first arm, a trial need only show that no other gains more.
pub const SLIGHT: f64 = 0.05;

/// Rounds after which arms that cannot be told apart count as alike.
const ALIKE: usize = 18;

/// Results of an arm.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// Spread of its figures; `None` without a completed run.
    pub spread: Option<Spread>,
    /// Rounds in which the arm was compared with the first.
    pub rounds: usize,
    /// Estimate of the gain over the first arm; `None` for the first arm itself, and with fewer than two comparable rounds.
    pub over_first: Option<Estimate>,
    pub says: Verdict,
    /// Reason why the arm is left out.
    pub left_out: Option<String>,
}

/// The best arm or arms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Best {
    One(usize),
    /// Alike within the margin.
    Either(Vec<usize>),
    /// Unbeaten arms that cannot be told apart.
    CannotTell(Vec<usize>),
}

/// Result of a trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    pub arms: Vec<Standing>,
    pub best: Best,
}

impl Standing {
    /// Gain over the first arm, from the first look on: fewer rounds give no interval.
    pub fn told(&self) -> Option<Estimate> {
        self.over_first.filter(|found| found.samples >= FIRST_LOOK as usize)
    }

    pub fn median(&self) -> Option<f64> {
        self.spread.map(|spread| spread.median)
    }
}

impl Judgement {
    /// Whether further rounds could add nothing.
    pub fn is_settled(&self) -> bool {
        let told = |standing: &Standing| standing.left_out.is_some() || standing.says != Verdict::CannotTell;
        self.arms[1..].iter().all(told) && !matches!(self.best, Best::CannotTell(_))
    }

    /// Whether it is known which arm to run, any of several that are alike, or that none gains more than [`SLIGHT`] over
    /// the first.
    pub fn suffices(&self) -> bool {
        let told = |arm: &usize| self.arms[*arm].told();
        match &self.best {
            Best::CannotTell(of) if of.contains(&0) => of
                .iter()
                .filter(|arm| **arm != 0)
                .all(|arm| told(arm).is_some_and(|found| found.high <= SLIGHT.ln_1p())),
            Best::CannotTell(of) => of.iter().all(|arm| told(arm).is_some_and(|found| found.samples >= ALIKE)),
            Best::One(_) | Best::Either(_) => true,
        }
    }

    /// Rounds in which the arm was compared with the first.
    pub fn rounds(&self, arm: usize) -> usize {
        self.arms[arm].rounds
    }

    /// Whether another arm beats this one, which then needs no further rounds. Never true of the first, the reference.
    pub fn is_beaten(&self, arm: usize) -> bool {
        arm != 0
            && match &self.best {
                Best::One(best) => *best != arm,
                Best::Either(of) | Best::CannotTell(of) => !of.contains(&arm),
            }
    }
}

/// Judges `runs`. The probability of any wrong comparison in a trial is at most 5 %.
pub fn judge(design: &Design, runs: &Runs) -> Judgement {
    let arms = design.arms.len();
    let pairs = (arms * (arms - 1) / 2) as f64;
    let estimate = |one: usize, other: usize| Estimate::of(&differences(design, runs, one, other), ERROR / pairs);
    let says = |one, other| estimate(one, other).map_or(Verdict::CannotTell, |found| found.says(design.margin));
    let standings: Vec<Standing> = (0..arms)
        .map(|arm| {
            let values: Vec<f64> = runs.measured(arm).map(|run| run.value).collect();
            let compared = if arm == 0 { Vec::new() } else { differences(design, runs, arm, 0) };
            let over_first = Estimate::of(&compared, ERROR / pairs);
            let says = over_first.map_or(Verdict::CannotTell, |found| found.says(design.margin));
            let left_out = runs.left_out(arm);
            Standing { spread: Spread::of(&values), rounds: compared.len(), over_first, says, left_out }
        })
        .collect();
    let taken: Vec<usize> = (0..arms).filter(|&arm| standings[arm].left_out.is_none()).collect();
    let unbeaten: Vec<usize> = taken
        .iter()
        .copied()
        .filter(|&arm| taken.iter().all(|&o| o == arm || says(arm, o) != Verdict::Worse))
        .collect();
    let alike = || unbeaten.iter().all(|&one| unbeaten.iter().all(|&o| o <= one || says(one, o) == Verdict::Either));
    let best = match unbeaten.as_slice() {
        [one] => Best::One(*one),
        _ if alike() && !unbeaten.is_empty() => Best::Either(unbeaten),
        _ => Best::CannotTell(unbeaten),
    };
    Judgement { arms: standings, best }
}

/// `ln(one / other)` of each round in which both ran close in time, above 0 where `one` is better. Rounds in which the
/// cores moved or changed their clock are left out, unless most are such. The order within rounds is random, so that such
/// rounds widen the interval and do not shift it.
pub fn differences(design: &Design, runs: &Runs, one: usize, other: usize) -> Vec<f64> {
    let (calm, all) = side_by_side(design, runs, one, other);
    if is_enough(calm.len(), all.len()) { calm } else { all }
}

/// Number of compared rounds in which the cores moved or changed their clock; 0 where such rounds are left out.
pub fn moved(design: &Design, runs: &Runs, one: usize, other: usize) -> usize {
    let (calm, all) = side_by_side(design, runs, one, other);
    if is_enough(calm.len(), all.len()) { 0 } else { all.len() - calm.len() }
}

fn is_enough(calm: usize, all: usize) -> bool {
    2 * calm >= all
}

/// Differences of the rounds in which both arms met the same cores, and of all rounds.
fn side_by_side(design: &Design, runs: &Runs, one: usize, other: usize) -> (Vec<f64>, Vec<f64>) {
    let others: std::collections::HashMap<u32, &Run> =
        runs.measured(other).filter_map(|run| Some((run.round?, run))).collect();
    let lengths: Vec<f64> = [one, other].iter().flat_map(|&arm| runs.measured(arm)).map(seconds).collect();
    let apart = ALWAYS_TOGETHER.max(APART * median(&lengths).unwrap_or(0.0) * design.arms.len() as f64);
    let ratio = |x: &Run, y: &Run| if design.merit.more_is_better { x.value / y.value } else { y.value / x.value };
    let together = |x: &Run, y: &Run| x.started.0.abs_diff(y.started.0) as f64 / 1e9 <= apart;
    let pairs = runs.measured(one).filter_map(|x| Some((x, *others.get(&x.round?)?)));
    let (mut calm, mut all) = (Vec::new(), Vec::new());
    for (x, y) in pairs.filter(|(x, y)| together(x, y)) {
        let difference = ratio(x, y).ln();
        all.push(difference);
        if met_the_same(x, y) {
            calm.push(difference);
        }
    }
    (calm, all)
}

fn seconds(run: &Run) -> f64 {
    run.elapsed.0 as f64 / 1e9
}

/// Whether the cores were equally near and equally fast in both runs, as far as is known.
fn met_the_same(one: &Run, other: &Run) -> bool {
    at_one_place(one.probes.into_iter().chain(other.probes).flatten())
        && at_one_clock(one.clocks.iter().chain(&other.clocks))
}

/// Estimated number of rounds until the arm can be told from the first, at the present spread.
pub fn rounds_needed(estimate: &Estimate, margin: f64) -> usize {
    let half = (estimate.high - estimate.low) / 2.0;
    let off = estimate.middle.abs();
    let needed = off.max(margin.ln_1p() - off).max(1e-6);
    (estimate.samples as f64 * (half / needed).powi(2)).ceil().max(estimate.samples as f64 + 1.0) as usize
}
