//! Contenders measured in rounds: each once a round, next to the others of its group. Only blocks that ran on cores equally near
//! and fast are compared, of one round or of neighbouring rounds; a group that is decided gets no more rounds.

use std::ops::{ControlFlow, Range};

use machine::{Probe, Result};
use serde::Serialize;

use crate::clocks::{Clocks, at_one_clock};
use crate::comparison::Paired;
use crate::contrast::{ERROR, looks};
use crate::estimate::Estimate;
use crate::nearness::at_one_place;
use crate::order::{Turn, turns};
use crate::sitting::{End, FAILURES, Sitting, sit};

/// Most rounds between two blocks that are compared: the machine drifts.
const APART: u32 = 3;

/// What is to be measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Number of contenders in each group.
    pub groups: Vec<usize>,
    /// Greatest number of rounds.
    pub rounds: u32,
    /// Seed of the order of blocks.
    pub seed: u64,
}

pub trait Blocks {
    type Block;

    /// Measures one block of a contender, named by its index in the plan.
    ///
    /// # Errors
    /// The block could not be measured; it is tried once more in the next round.
    fn block(&mut self, contender: usize, round: u32) -> Result<Self::Block>;

    /// Distance between the contender's cores at present.
    fn probe(&mut self, contender: usize) -> Option<Probe>;

    /// Clocks of the contender's cores at present; empty where its blocks have them, or where its cores are shared with others.
    fn clocks(&mut self, _contender: usize) -> Clocks {
        Clocks::default()
    }

    /// Whether to end now; a block that fails after that does not count.
    fn stopped(&self) -> bool;
}

/// A block with the probes around it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Taken<B> {
    pub round: u32,
    /// Probes of the cores before and after the block.
    pub probes: [Option<Probe>; 2],
    /// Clocks before and after the block.
    #[serde(skip_serializing_if = "no_clocks")]
    pub clocks: [Clocks; 2],
    #[serde(flatten)]
    pub block: B,
}

fn no_clocks(clocks: &[Clocks; 2]) -> bool {
    clocks.iter().all(Clocks::is_empty)
}

/// The blocks of one contender.
#[derive(Debug, Clone, Serialize)]
pub struct Series<B> {
    pub blocks: Vec<Taken<B>>,
    /// Reasons of failed blocks; blocks before them are kept.
    pub failures: Vec<String>,
}

impl<B> Default for Series<B> {
    fn default() -> Series<B> {
        Series { blocks: Vec::new(), failures: Vec::new() }
    }
}

impl<B> Series<B> {
    /// The blocks' values, where `value` gives one, in the order of the rounds.
    pub fn values(&self, value: impl Fn(&B) -> Option<f64>) -> Vec<f64> {
        self.blocks.iter().filter_map(|taken| value(&taken.block)).collect()
    }

    /// Ratios of `value` here to that of `other`, by the pairs of [`Series::beside`].
    pub fn over(&self, other: &Series<B>, value: impl Fn(&B) -> Option<f64>) -> Paired {
        let value = |taken: &Taken<B>| Some((taken.probes, value(&taken.block)?));
        Paired::ratios(self.beside(other, value))
    }

    /// Pairs of values of this series and of `other`, each of two blocks that ran on cores equally near and fast.
    /// Blocks of one round are paired first, then the rest of rounds at most [`APART`] apart, the closest first; no
    /// block is in two pairs. `of` gives the probes around a value, and the value.
    pub fn beside(
        &self,
        other: &Series<B>,
        of: impl Fn(&Taken<B>) -> Option<([Option<Probe>; 2], f64)>,
    ) -> Vec<(f64, f64)> {
        let values = |series: &Series<B>| -> Vec<Beside> {
            let beside = |taken: &Taken<B>| {
                let (probes, value) = of(taken)?;
                Some(Beside { round: taken.round, probes, clocks: taken.clocks.clone(), value })
            };
            series.blocks.iter().filter_map(beside).collect()
        };
        let (mut ours, mut theirs) = (values(self), values(other));
        let mut pairs = Vec::new();
        for apart in 0..=APART {
            ours.retain(|one| {
                let found = theirs.iter().position(|two| one.round.abs_diff(two.round) == apart && one.fits(two));
                pairs.extend(found.map(|at| (one.round, (one.value, theirs.remove(at).value))));
                found.is_none()
            });
        }
        // An interval is wider where neighbours resemble each other, so pairs stay in the order of rounds.
        pairs.sort_by_key(|(round, _)| *round);
        pairs.into_iter().map(|(_, pair)| pair).collect()
    }
}

/// A value with what decides which others it may be compared with.
struct Beside {
    round: u32,
    probes: [Option<Probe>; 2],
    clocks: [Clocks; 2],
    value: f64,
}

impl Beside {
    fn fits(&self, other: &Beside) -> bool {
        at_one_place(self.probes.into_iter().chain(other.probes).flatten())
            && at_one_clock(self.clocks.iter().chain(&other.clocks))
    }
}

/// The middle of differences, one a round, with an interval that holds at every look; `None` of fewer than two.
pub fn difference(values: &[f64]) -> Option<Estimate> {
    Estimate::of(values, ERROR)
}

/// Measures `plan`. At each look `is_open` gets a group's range of contenders and their series, and says whether more
/// rounds could tell something new. False where the runner was stopped; series are returned in any case.
pub fn conduct<R: Blocks>(
    runner: &mut R,
    plan: &Plan,
    is_open: impl Fn(Range<usize>, &[Series<R::Block>]) -> bool,
) -> (Vec<Series<R::Block>>, bool) {
    let series = plan.groups.iter().sum();
    let all = (0..series).map(|_| Series::default()).collect();
    let mut comparison = Comparison { runner, plan, is_open, open: vec![true; plan.groups.len()], round: 0, all };
    let end = sit(&mut comparison).expect("failures are kept as such");
    (comparison.all, end != End::Interrupted)
}

struct Comparison<'a, R: Blocks, F> {
    runner: &'a mut R,
    plan: &'a Plan,
    is_open: F,
    /// Whether each group is still measured.
    open: Vec<bool>,
    /// Number of the next round.
    round: u32,
    all: Vec<Series<R::Block>>,
}

impl<R: Blocks, F> Comparison<'_, R, F> {
    /// The range of a group's contenders.
    fn group(&self, group: usize) -> Range<usize> {
        let start = self.plan.groups[..group].iter().sum();
        start..start + self.plan.groups[group]
    }

    fn contender(&self, turn: &Turn) -> usize {
        self.group(turn.group).start + turn.member
    }
}

impl<R: Blocks, F: Fn(Range<usize>, &[Series<R::Block>]) -> bool> Sitting for Comparison<'_, R, F> {
    type Turn = Turn;
    type Block = Taken<R::Block>;

    fn next_round(&mut self) -> Result<ControlFlow<End, Vec<Turn>>> {
        let round = self.round;
        if round == self.plan.rounds {
            return Ok(ControlFlow::Break(End::Finished));
        }
        if looks().take_while(|look| *look <= round).any(|look| look == round) {
            for group in 0..self.open.len() {
                let of = self.group(group);
                self.open[group] = self.open[group] && (self.is_open)(of.clone(), &self.all[of]);
            }
        }
        if !self.open.contains(&true) {
            return Ok(ControlFlow::Break(End::Finished));
        }
        self.round += 1;
        let turns = turns(&self.plan.groups, self.plan.seed, round);
        Ok(ControlFlow::Continue(turns.into_iter().filter(|turn| self.open[turn.group]).collect()))
    }

    fn is_due(&self, turn: &Turn) -> bool {
        self.all[self.contender(turn)].failures.len() < FAILURES
    }

    fn block(&mut self, turn: &Turn) -> Result<Taken<R::Block>> {
        let (contender, round) = (self.contender(turn), self.round - 1);
        let before = (self.runner.probe(contender), self.runner.clocks(contender));
        let block = self.runner.block(contender, round)?;
        let after = (self.runner.probe(contender), self.runner.clocks(contender));
        Ok(Taken { round, probes: [before.0, after.0], clocks: [before.1, after.1], block })
    }

    fn keep(&mut self, turn: Turn, outcome: Result<Taken<R::Block>>) -> Result<()> {
        let contender = self.contender(&turn);
        match outcome {
            Ok(taken) => self.all[contender].blocks.push(taken),
            Err(fault) => self.all[contender].failures.push(fault.to_string()),
        }
        Ok(())
    }

    fn stopped(&self) -> bool {
        self.runner.stopped()
    }
}

#[cfg(test)]
mod tests {
    use machine::Fault;

    use super::*;
    use crate::contrast::{EQUALITY, Verdict};

    /// Two contenders, the first twice as fast; `distance` gives the cores' distance for each block, in ns, or its failure.
    struct Fake<F: FnMut(usize, u32) -> Result<u64>> {
        distance: F,
        now: Result<u64>,
        began: Vec<(usize, u32)>,
        most: usize,
    }

    impl<F: FnMut(usize, u32) -> Result<u64>> Blocks for Fake<F> {
        type Block = f64;

        fn block(&mut self, contender: usize, round: u32) -> Result<f64> {
            self.began.push((contender, round));
            let ns = std::mem::replace(&mut self.now, Ok(50))?;
            let noise = 1.0 + f64::from(round % 3) / 1000.0;
            Ok([100.0, 200.0][contender % 2] * noise * ns as f64 / 50.0)
        }

        fn probe(&mut self, contender: usize) -> Option<Probe> {
            let round = self.began.iter().filter(|(of, _)| *of == contender).count() as u32;
            self.now = (self.distance)(contender, round);
            Some(Probe { half_round_trip_ps: 1000 * *self.now.as_ref().unwrap_or(&50) })
        }

        fn stopped(&self) -> bool {
            self.began.len() >= self.most
        }
    }

    fn fake<F: FnMut(usize, u32) -> Result<u64>>(distance: F) -> Fake<F> {
        Fake { distance, now: Ok(50), began: Vec::new(), most: usize::MAX }
    }

    const PLAN: Plan = Plan { groups: Vec::new(), rounds: 40, seed: 1 };

    fn plan(groups: &[usize]) -> Plan {
        Plan { groups: groups.to_vec(), ..PLAN }
    }

    fn never(_: Range<usize>, _: &[Series<f64>]) -> bool {
        true
    }

    #[test]
    fn a_planted_flip_changes_no_ratio() {
        // Before every third round the first contender's cores move apart, and it takes three times as long.
        let mut fake = fake(|contender, round| Ok(if contender == 0 && round % 3 == 1 { 150 } else { 50 }));
        let (all, whole) = conduct(&mut fake, &plan(&[2]), never);
        let paired = all[0].over(&all[1], |value| Some(*value));
        let found = paired.interval().unwrap();
        assert!(whole && found.low > 0.49 && found.high < 0.51, "{found:?}");
        assert_eq!(paired.ratios.len(), 13);
    }

    #[test]
    fn blocks_of_rounds_next_to_each_other_are_paired_once_each() {
        // The contenders' cores are far apart in different rounds.
        let mut fake = fake(|contender, round| Ok(if contender as u32 % 2 == round / 2 % 2 { 150 } else { 50 }));
        let (all, _) = conduct(&mut fake, &plan(&[2]), never);
        let paired = all[0].over(&all[1], |value| Some(*value));
        let found = paired.interval().unwrap();
        assert!(paired.ratios.len() > 10 && paired.ratios.len() <= 40, "{}", paired.ratios.len());
        assert!(found.low > 0.49 && found.high < 0.51, "{found:?}");
    }

    #[test]
    fn a_group_that_is_decided_gets_no_more_rounds() {
        let undecided = |_: Range<usize>, group: &[Series<f64>]| {
            let ratio = |of: &Series<f64>| of.over(&group[0], |value| Some(*value)).ratios;
            let says = |of: &Series<f64>| {
                let logarithms: Vec<f64> = ratio(of).iter().map(|ratio| ratio.ln()).collect();
                Estimate::of(&logarithms, ERROR).map(|found| found.says(EQUALITY))
            };
            group[1..].iter().any(|of| says(of) == Some(Verdict::CannotTell))
        };
        let first = |group: Range<usize>, all: &[Series<f64>]| group.start > 0 || undecided(group, all);
        let (all, _) = conduct(&mut fake(|_, _| Ok(50)), &plan(&[2, 1]), first);
        assert_eq!(all.iter().map(|of| of.blocks.len()).collect::<Vec<_>>(), [6, 6, 40]);
    }

    #[test]
    fn a_contender_that_fails_twice_is_left_out_and_a_stop_keeps_what_there_is() {
        let failing = |contender, _| match contender {
            1 => Err(Fault::new("the second", "fails", "leave it out")),
            _ => Ok(50),
        };
        let (all, whole) = conduct(&mut fake(failing), &plan(&[2]), never);
        assert!(whole && all[0].blocks.len() == 40 && all[1].blocks.is_empty() && all[1].failures.len() == 2);
        let mut stopped = Fake { most: 5, ..fake(|_, _| Ok(50)) };
        let (all, whole) = conduct(&mut stopped, &plan(&[2]), never);
        assert!(!whole && all[0].blocks.len() + all[1].blocks.len() == 5);
    }
}
