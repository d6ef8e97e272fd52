//! Answers: what a lever changes, as an interval over what is not known, with what the answer rests on.
//!
//! Each draw takes every uncertain cost from its interval, once for all messages; learns the residuals that make the recorded
//! run come back; and replays with the lever pulled. The time before is the measured one in each, so that the difference stays
//! narrow. Draws cover what the costs leave open; that the model may be wrong they do not, which the ledger shows.

use experiment::random::Random;
use machine::costs::Interval;
use machine::{Costs, Result};

use crate::gradient::{Gradients, gradients};
use crate::graph::{Graph, Reach};
use crate::lever::{Change, Lever, Unknown};
use crate::model::{Draw, Prices, Ways};
use crate::path::{Path, critical};
use crate::replay::{Conditions, PS, Replayed, Residuals, replay};

mod against;

pub use against::Against;

/// Draws that are made: fewer, where calls are many.
const DRAWS: std::ops::RangeInclusive<usize> = 8..=64;
const DRAWS_TIMES_CALLS: usize = 20_000_000;

/// Draws that leave no more of the time in calls unexplained than the best one and this share fit the recording: it measures
/// the costs of what carried it.
const FITS: f64 = 0.05;

/// At least so many are taken, those that fit best.
const FEWEST: usize = 8;

/// A model that misses the time in calls by as much contradicts the recording.
const CONTRADICTS: f64 = 1.0;

const SEED: u64 = 0x0051_1A11_0000_0007;

/// A recorded program, or a schedule, under the costs of a machine.
#[derive(Debug)]
pub struct Program<'a> {
    graph: &'a Graph,
    costs: &'a Costs,
    /// What carried its messages when it was recorded.
    ways: Ways,
    /// What fits the recording, most likely first.
    draws: Vec<(Draw, Unknown)>,
    /// Whether what was measured of the costs contradicts the recording.
    pub contradicted: bool,
}

/// What a replay of what was recorded says of the model.
#[derive(Debug, Clone)]
pub struct Check {
    /// The recorded time, ns; of a schedule the replayed one.
    pub recorded: f64,
    /// The replay with each call's residual, over the recorded time: 1, or the reader is wrong.
    pub identity: f64,
    /// The replay with residuals of their class, over the recorded time.
    pub of_classes: f64,
    pub path: Path,
    /// What the time changes by where messages cost a little more, or less.
    pub gradients: Gradients,
    /// Calls that were over before what they waited for began, by the recorded clocks, and the most, ps.
    pub backwards: (u64, i64),
}

/// What came of a lever.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The time after the change over that before, both without what recording took.
    pub time: Interval,
    /// The critical path after it, all costs in the middle of their intervals.
    pub path: Path,
    pub draws: usize,
}

/// How much more latency a trip could have for this much more time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// 0.01 for 1 %.
    pub more: f64,
    /// Nanoseconds; `None`: no latency whatever makes it so slow.
    pub latency: Option<f64>,
}

impl<'a> Program<'a> {
    /// # Errors
    /// A cost was never measured here, or the recording contradicts itself.
    pub fn new(graph: &'a Graph, costs: &'a Costs, ways: Ways) -> Result<Program<'a>> {
        let mut program = Program { graph, costs, ways, draws: Vec::new(), contradicted: false };
        let number = (DRAWS_TIMES_CALLS / graph.len().max(1)).clamp(*DRAWS.start(), *DRAWS.end());
        let inside: i64 = (0..graph.len() as u32).map(|call| graph.calls.inside.get(call) * PS).sum();
        let all: Vec<(Draw, Unknown)> = (0..number).map(|number| drawn(number as u64)).collect();
        let misfits = in_parallel(&all, |(draw, _)| {
            let (residuals, _) = program.learn(&program.conditions(draw)?)?;
            let missed: i64 = residuals.iter().map(|residual| residual.abs()).sum();
            Ok(missed as f64 / inside.max(1) as f64)
        })?;
        let mut by_fit: Vec<(f64, (Draw, Unknown))> = misfits.into_iter().zip(all).collect();
        by_fit.sort_by(|one, other| one.0.total_cmp(&other.0));
        let best = by_fit[0].0;
        program.contradicted = best > CONTRADICTS;
        by_fit.truncate(by_fit.partition_point(|(misfit, _)| *misfit <= best + FITS).max(FEWEST));
        program.draws = by_fit.into_iter().map(|(_, draw)| draw).collect();
        Ok(program)
    }

    fn conditions(&self, draw: &Draw) -> Result<Conditions> {
        self.conditions_of(self.graph, draw)
    }

    fn conditions_of(&self, graph: &Graph, draw: &Draw) -> Result<Conditions> {
        let prices = Prices::of(graph, self.costs, &self.ways, draw)?;
        Ok(Conditions {
            prices,
            computing: vec![1.0; graph.lanes.len()],
            progress: self.ways.progress(),
            unrecorded: false,
        })
    }

    fn learn(&self, conditions: &Conditions) -> Result<(Vec<i64>, Replayed)> {
        if self.graph.scheduled {
            return Ok((vec![0; self.graph.len()], replay(self.graph, conditions, Residuals::None)?));
        }
        let mut residuals = Vec::new();
        let learned = replay(self.graph, conditions, Residuals::Learn(&mut residuals))?;
        Ok((residuals, learned))
    }

    /// # Errors
    /// A cost was never measured here, or the recording contradicts itself.
    pub fn check(&self) -> Result<Check> {
        let conditions = self.conditions(&self.draws[0].0)?;
        let (residuals, learned) = self.learn(&conditions)?;
        let own = replay(self.graph, &conditions, Residuals::Own(&residuals))?;
        let classes = self.class_means(&residuals);
        let of_classes = replay(self.graph, &conditions, Residuals::Class(&classes))?;
        let over = |replayed: &Replayed| replayed.total as f64 / learned.total.max(1) as f64;
        Ok(Check {
            recorded: learned.total as f64 / 1e3,
            identity: over(&own),
            of_classes: over(&of_classes),
            path: critical(self.graph, &conditions, &own),
            gradients: gradients(self.graph, &conditions, &own, |call| residuals[call as usize]),
            backwards: learned.backwards,
        })
    }

    /// The mean of the residuals of each class.
    fn class_means(&self, residuals: &[i64]) -> Vec<i64> {
        let mut sums = vec![(0i128, 0i128); self.graph.classes.len()];
        for (class, residual) in self.graph.calls.class.iter().zip(residuals) {
            let of = &mut sums[*class as usize];
            *of = (of.0 + i128::from(*residual), of.1 + 1);
        }
        sums.into_iter().map(|(sum, count)| (sum / count.max(1)) as i64).collect()
    }

    /// An answer for each of `levers`.
    ///
    /// # Errors
    /// A cost was never measured here.
    pub fn ask(&self, levers: &[&Lever]) -> Result<Vec<Answer>> {
        let drawn = in_parallel(&self.draws, |draw| self.pulled(levers, draw))?;
        let answer = |nth: usize| {
            let time = interval(drawn.iter().map(|of| of[nth].0).collect());
            Answer { time, path: drawn[0][nth].1.clone(), draws: drawn.len() }
        };
        Ok((0..levers.len()).map(answer).collect())
    }

    /// The time over that of the program as it is, both without what recording took, and the critical path: of each lever.
    fn pulled(&self, levers: &[&Lever], (of_recorded, unknown): &(Draw, Unknown)) -> Result<Vec<(f64, Path)>> {
        let before = self.conditions(of_recorded)?;
        let (learned, _) = self.learn(&before)?;
        let unrecorded = Conditions { unrecorded: true, ..before.clone() };
        let now = replay(self.graph, &unrecorded, Residuals::Own(&learned))?;
        let mut residuals = Vec::new();
        let one = |lever: &&Lever| {
            let (after, scale) = lever.pull(self.graph, self.costs, &before, unknown)?;
            residuals.clone_from(&learned);
            for (residual, class) in residuals.iter_mut().zip(&self.graph.calls.class) {
                let factor = scale[*class as usize];
                if factor != 1.0 {
                    *residual = (*residual as f64 * factor) as i64;
                }
            }
            let after = Conditions { unrecorded: true, ..after };
            let replayed = replay(self.graph, &after, Residuals::Own(&residuals))?;
            let time = replayed.total as f64 / now.total.max(1) as f64;
            Ok((time, critical(self.graph, &after, &replayed)))
        };
        levers.iter().map(one).collect()
    }

    /// How much more latency a trip could have for so much more time, each of `more`.
    ///
    /// # Errors
    /// As of [`Program::ask`].
    pub fn tolerances(&self, more: &[f64]) -> Result<Vec<Tolerance>> {
        let before = self.conditions(&self.draws[0].0)?;
        let (residuals, learned) = self.learn(&before)?;
        let between = self.graph.kinds.iter().any(|kind| kind.reach == Reach::Between);
        let at = |ns: f64| -> Result<(f64, f64)> {
            let lever = Lever { latency: Some(Change::By(ns)), ..Lever::default() };
            let (after, _) = lever.pull(self.graph, self.costs, &before, &Unknown::default())?;
            let replayed = replay(self.graph, &after, Residuals::Own(&residuals))?;
            let trips = critical(self.graph, &after, &replayed).counts[usize::from(between)].trips;
            Ok((replayed.total as f64 / 1e3, trips as f64))
        };
        let recorded = learned.total as f64 / 1e3;
        more.iter()
            .map(|more| {
                let wanted = recorded * (1.0 + more);
                // Time is convex in the latency: from a point beyond, Newton's steps come back without passing the mark.
                let (mut latency, mut step) = (0.0, 1.0);
                let (mut time, mut slope) = at(latency)?;
                while time < wanted && step < 1e10 {
                    latency = if slope > 0.0 { latency + ((wanted - time) / slope).max(step) } else { step };
                    (time, slope) = at(latency)?;
                    step *= 4.0;
                }
                if time < wanted {
                    return Ok(Tolerance { more: *more, latency: None });
                }
                for _ in 0..32 {
                    if slope <= 0.0 || time - wanted <= recorded * 1e-6 {
                        break;
                    }
                    latency = (latency - (time - wanted) / slope).max(0.0);
                    (time, slope) = at(latency)?;
                }
                Ok(Tolerance { more: *more, latency: Some(latency) })
            })
            .collect()
    }
}

/// What holds 95 % of the draws.
fn interval(mut drawn: Vec<f64>) -> Interval {
    drawn.sort_by(f64::total_cmp);
    let quantile = |part: f64| drawn[((drawn.len() - 1) as f64 * part).round() as usize];
    Interval { low: quantile(0.025), middle: quantile(0.5), high: quantile(0.975) }
}

/// `work` of each of `all`, by the cores that there are.
fn in_parallel<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let each = all.len().div_ceil(cores).max(1);
    std::thread::scope(|scope| {
        let work = &work;
        let parts: Vec<_> = all
            .chunks(each)
            .map(|part| scope.spawn(move || part.iter().map(work).collect::<Result<Vec<R>>>()))
            .collect();
        let mut done = Vec::with_capacity(all.len());
        for part in parts {
            done.extend(part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(done)
    })
}

/// The first has everything in its middle.
fn drawn(number: u64) -> (Draw, Unknown) {
    if number == 0 {
        return (Draw::default(), Unknown { costs: Draw::default(), follows_clock: 0.5, residual_follows: 0.5 });
    }
    let mut random = Random::stream(SEED, number);
    let mut place = || 2.0 * random.unit() - 1.0;
    let mut draw = || Draw { trip: [place(), place()], work: [place(), place()] };
    let (recorded, costs) = (draw(), draw());
    (recorded, Unknown { costs, follows_clock: random.unit(), residual_follows: random.unit() })
}
