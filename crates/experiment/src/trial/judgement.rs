//! What the runs of a trial say.

use rounds::clocks::at_one_clock;
use rounds::contrast::{ERROR, FIRST_LOOK, Says};
use rounds::estimate::Estimate;
use rounds::nearness::at_one_place;
use rounds::statistics::median;

use super::design::Design;
use super::spread::Spread;
use super::{Run, Runs};

/// Runs of one round that began further apart than so many of their lengths were cut apart: drift does not cancel.
const APART: f64 = 3.0;

/// Seconds within which runs of one round are never too far apart.
const ALWAYS_TOGETHER: f64 = 60.0;

/// A gain for which nobody changes a launch line: nothing is told of the first arm beyond that no other gains as much.
pub const SLIGHT: f64 = 0.05;

/// Arms that so many rounds cannot tell apart are taken to be alike.
const ALIKE: usize = 18;

/// What is known of an arm.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// Spread of its figures; `None` where no run of it came to an end.
    pub spread: Option<Spread>,
    /// Rounds in which it could be held against the first.
    pub rounds: usize,
    /// Estimate over the first arm; `None` for the first arm itself, and where no two rounds can be compared.
    pub over_first: Option<Estimate>,
    pub says: Says,
    /// Why it takes no part.
    pub left_out: Option<String>,
}

/// Which arm to take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Best {
    One(usize),
    /// The same within the margin.
    Either(Vec<usize>),
    /// No other is better than these, and they cannot be told apart.
    CannotTell(Vec<usize>),
}

/// What a trial came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    pub arms: Vec<Standing>,
    pub best: Best,
}

impl Standing {
    /// Over the first arm, from the first look on: fewer rounds give no interval.
    pub fn told(&self) -> Option<Estimate> {
        self.over_first.filter(|found| found.samples >= FIRST_LOOK as usize)
    }

    pub fn median(&self) -> Option<f64> {
        self.spread.map(|spread| spread.median)
    }
}

impl Judgement {
    /// Whether more rounds could tell nothing new.
    pub fn is_settled(&self) -> bool {
        let told = |standing: &Standing| standing.left_out.is_some() || standing.says != Says::CannotTell;
        self.arms[1..].iter().all(told) && !matches!(self.best, Best::CannotTell(_))
    }

    /// Whether it is told that another arm is to take the place of the first, whichever of those that are alike; or that none
    /// is faster by more than [`SLIGHT`].
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

    /// Rounds in which the arm could be held against the first.
    pub fn rounds(&self, arm: usize) -> usize {
        self.arms[arm].rounds
    }

    /// Arms that another beats: they need no more rounds, but for the first, which the others are held against.
    pub fn is_beaten(&self, arm: usize) -> bool {
        arm != 0
            && match &self.best {
                Best::One(best) => *best != arm,
                Best::Either(of) | Best::CannotTell(of) => !of.contains(&arm),
            }
    }
}

/// Judges `runs`. All comparisons of a trial together are wrong in 5 of 100 trials at most.
pub fn judge(design: &Design, runs: &Runs) -> Judgement {
    let arms = design.arms.len();
    let pairs = (arms * (arms - 1) / 2) as f64;
    let estimate = |one: usize, other: usize| Estimate::of(&differences(design, runs, one, other), ERROR / pairs);
    let says = |one, other| estimate(one, other).map_or(Says::CannotTell, |found| found.says(design.margin));
    let standings: Vec<Standing> = (0..arms)
        .map(|arm| {
            let values: Vec<f64> = runs.measured(arm).map(|run| run.value).collect();
            let compared = if arm == 0 { Vec::new() } else { differences(design, runs, arm, 0) };
            let over_first = Estimate::of(&compared, ERROR / pairs);
            let says = over_first.map_or(Says::CannotTell, |found| found.says(design.margin));
            let left_out = runs.left_out(arm);
            Standing { spread: Spread::of(&values), rounds: compared.len(), over_first, says, left_out }
        })
        .collect();
    let taken: Vec<usize> = (0..arms).filter(|&arm| standings[arm].left_out.is_none()).collect();
    let unbeaten: Vec<usize> =
        taken.iter().copied().filter(|&arm| taken.iter().all(|&o| o == arm || says(arm, o) != Says::Worse)).collect();
    let alike = || unbeaten.iter().all(|&one| unbeaten.iter().all(|&o| o <= one || says(one, o) == Says::Either));
    let best = match unbeaten.as_slice() {
        [one] => Best::One(*one),
        _ if alike() && !unbeaten.is_empty() => Best::Either(unbeaten),
        _ => Best::CannotTell(unbeaten),
    };
    Judgement { arms: standings, best }
}

/// `ln(one / other)` of each round that both ran side by side, above 0 where `one` is better. Rounds within which the cores moved
/// or changed their clock are left out, unless most are such. The order within rounds is random: such rounds widen the interval
/// and do not shift it.
pub fn differences(design: &Design, runs: &Runs, one: usize, other: usize) -> Vec<f64> {
    let (calm, all) = side_by_side(design, runs, one, other);
    if is_enough(calm.len(), all.len()) { calm } else { all }
}

/// How many of the compared rounds saw the cores move or change their clock: 0 where those are left out.
pub fn moved(design: &Design, runs: &Runs, one: usize, other: usize) -> usize {
    let (calm, all) = side_by_side(design, runs, one, other);
    if is_enough(calm.len(), all.len()) { 0 } else { all.len() - calm.len() }
}

fn is_enough(calm: usize, all: usize) -> bool {
    2 * calm >= all
}

/// The differences of the rounds in which both met the same cores, and those of all rounds.
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

/// Whether the cores were as near and as fast for the one as for the other, all the time as far as is known.
fn met_the_same(one: &Run, other: &Run) -> bool {
    at_one_place(one.probes.into_iter().chain(other.probes).flatten())
        && at_one_clock(one.clocks.iter().chain(&other.clocks))
}

/// Rounds that it would take, as things are, until the arm can be told from the first.
pub fn rounds_needed(estimate: &Estimate, margin: f64) -> usize {
    let half = (estimate.high - estimate.low) / 2.0;
    let off = estimate.middle.abs();
    let needed = off.max(margin.ln_1p() - off).max(1e-6);
    (estimate.samples as f64 * (half / needed).powi(2)).ceil().max(estimate.samples as f64 + 1.0) as usize
}
