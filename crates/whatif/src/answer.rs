//! Answers: the effect of a lever as an interval over the unknown costs, with its evidence.
//!
//! Each draw takes every uncertain cost from its interval, once for all messages; learns the residuals that make the recorded
//! run come back; and replays with the lever pulled. The time before is the measured one in each, so that the difference stays
//! narrow. Draws cover what the costs leave open; that the model may be wrong they do not, which the ledger shows.

mod against;
mod residuals;
mod slack;
mod walk;

use std::borrow::Cow;

use machine::costs::Interval;
use machine::{Costs, Result};
use rounds::random::Random;

use crate::gradient::{Gradients, gradients};
use crate::graph::{Graph, Lengths, Message, Reach};
use crate::lever::mapping::{self, SAMPLED};
use crate::lever::{Change, Lever, Mapping, Scale, Unknown};
use crate::model::{Draw, Prices, Progress, Ways};
use crate::path::{Path, critical};
use crate::replay::{Buffer, Conditions, Order, PS, Replayed, Residuals, replay, replay_in, timed};
use crate::sockets::{self, Sockets, Softirqs};
use crate::work::Work;
use residuals::{scaled, typical};

pub use against::Against;
pub use rounds::parallel::in_parallel;
pub use slack::Slack;
pub use walk::walk;

/// The number of draws: fewer for more calls.
const DRAWS: std::ops::RangeInclusive<usize> = 8..=64;
const DRAWS_TIMES_CALLS: usize = 20_000_000;

/// The most draws of a program over sockets, each of which takes a fit.
const DRAWS_OVER_SOCKETS: usize = 16;

/// A draw fits the recording if it leaves at most this share of the time in calls more unexplained than the best one does: the
/// recording measures the costs of its carrier.
const FITS: f64 = 0.05;

/// The least number of draws that are taken, those that fit best.
const FEWEST: usize = 8;

/// The miss, as a share of the time in calls, from which on a model contradicts the recording.
const CONTRADICTS: f64 = 1.0;

/// Steps of a search, each four times the last: from 1 ns to 4 s and more.
const STEPS: usize = 17;

const SEED: u64 = 0x0051_1A11_0000_0007;

/// A recorded program, or a schedule, under the costs of a machine.
#[derive(Debug)]
pub struct Program<'a> {
    pub(crate) graph: &'a Graph,
    costs: &'a Costs,
    /// The carriers of the recorded messages.
    pub(crate) ways: Ways,
    buffer: Buffer,
    /// Its messages in pieces, beside softirqs that were sampled.
    sockets: Option<Sockets<'a>>,
    /// Draws that fit the recording, the most likely first.
    draws: Vec<(Draw, Unknown)>,
    /// What the likeliest draw leaves unexplained of the time in calls, as a share.
    pub misfit: f64,
    /// Whether the measured costs contradict the recording.
    pub contradicted: bool,
}

/// Checks of the model by a replay of the recording.
#[derive(Debug, Clone)]
pub struct Check {
    /// The recorded time, ns; of a schedule the replayed one.
    pub recorded: f64,
    /// The replay with each call's residual, over the recorded time: 1, or the reader is wrong.
    pub identity: f64,
    /// The replay with residuals of their class, over the recorded time.
    pub of_classes: f64,
    pub path: Path,
    /// Derivatives of the time by messages' costs.
    pub gradients: Gradients,
    /// Calls that ended, by the recorded clocks, before the call was entered that began what they waited for: number, and
    /// the most, ps.
    pub backwards: (u64, i64),
}

/// The answer to a lever.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The time after the change over that before, both without what recording took.
    pub time: Interval,
    /// The critical path after it, all costs in the middle of their intervals.
    pub path: Path,
    pub draws: usize,
    /// The increase of `time`, all costs in the middle, if engines' cores and links served in the recorded order; contained in
    /// `time`. `None`: nothing queues.
    pub order: Option<f64>,
    /// Work for messages before and after, all costs in the middle.
    pub work: [Work; 2],
}

/// The increase of a trip's latency that slows the program by a given share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// 0.01 for 1 %.
    pub more: f64,
    /// Nanoseconds; `None`: no latency slows it as much.
    pub latency: Option<f64>,
}

impl<'a> Program<'a> {
    /// # Errors
    /// A cost was never measured here, or the recording contradicts itself.
    pub fn new(graph: &'a Graph, costs: &'a Costs, ways: Ways) -> Result<Program<'a>> {
        Program::over(graph, costs, ways, Buffer::Unlimited)
    }

    /// A program whose connections had this `buffer` when it was recorded.
    ///
    /// # Errors
    /// The errors of [`Program::new`].
    pub fn over(graph: &'a Graph, costs: &'a Costs, ways: Ways, buffer: Buffer) -> Result<Program<'a>> {
        Program::beside(graph, costs, ways, buffer, None)
    }

    /// A program with softirqs that were sampled on its cores.
    ///
    /// # Errors
    /// The errors of [`Program::new`].
    pub fn beside(
        graph: &'a Graph,
        costs: &'a Costs,
        ways: Ways,
        buffer: Buffer,
        softirqs: Option<Softirqs>,
    ) -> Result<Program<'a>> {
        let number = (DRAWS_TIMES_CALLS / graph.len().max(1)).clamp(*DRAWS.start(), *DRAWS.end());
        let all: Vec<(Draw, Unknown)> = (0..number).map(|number| drawn(number as u64)).collect();
        let mut program =
            Program { graph, costs, ways, buffer, sockets: None, draws: Vec::new(), misfit: 0.0, contradicted: false };
        if let Some(softirqs) = softirqs.filter(|_| program.ways.progress() == Progress::Calls) {
            let sockets = Sockets::of(
                graph,
                costs,
                program.ways.clone(),
                buffer,
                softirqs,
                &all[..number.min(DRAWS_OVER_SOCKETS)],
            )?;
            program.misfit = sockets.misfit;
            program.contradicted = sockets.misfit > CONTRADICTS;
            (program.sockets, program.draws) = (Some(sockets), vec![all[0]]);
            return Ok(program);
        }
        let inside: i64 = (0..graph.len() as u32).map(|call| graph.calls.inside.get(call) * PS).sum();
        let misfit = |drawn: &(Draw, Unknown)| {
            let (residuals, _) = program.learn(&program.conditions(drawn)?)?;
            let missed: i64 = residuals.iter().map(|residual| residual.abs()).sum();
            Ok(missed as f64 / inside.max(1) as f64)
        };
        let misfits = in_parallel(&all, misfit)?;
        let mut by_fit: Vec<(f64, (Draw, Unknown))> = misfits.into_iter().zip(all).collect();
        by_fit.sort_by(|one, other| one.0.total_cmp(&other.0));
        let best = by_fit[0].0;
        program.misfit = best;
        program.contradicted = best > CONTRADICTS;
        by_fit.truncate(by_fit.partition_point(|(misfit, _)| *misfit <= best + FITS).max(FEWEST));
        program.draws = by_fit.into_iter().map(|(_, draw)| draw).collect();
        Ok(program)
    }

    /// The time of a recorded program without what recording took, ns, all costs in the middle of their intervals.
    ///
    /// # Errors
    /// The errors of [`Program::new`].
    pub fn unrecorded(graph: &Graph, costs: &Costs, ways: Ways) -> Result<f64> {
        let draws = vec![drawn(0)];
        let program = Program {
            graph,
            costs,
            ways,
            buffer: Buffer::Unlimited,
            sockets: None,
            draws,
            misfit: 0.0,
            contradicted: false,
        };
        Ok(Base::of(&program, &program.draws[0])?.now as f64 / 1e3)
    }

    fn conditions(&self, (draw, _): &(Draw, Unknown)) -> Result<Conditions> {
        self.conditions_of(self.graph, draw)
    }

    fn conditions_of(&self, graph: &Graph, draw: &Draw) -> Result<Conditions> {
        let prices = Prices::of(graph, self.costs, &self.ways, draw)?;
        Ok(Conditions { buffer: self.buffer, ..Conditions::of(graph, prices, self.ways.progress()) })
    }

    fn learn(&self, conditions: &Conditions) -> Result<(Vec<i64>, Replayed)> {
        if self.graph.scheduled {
            return Ok((vec![0; self.graph.len()], timed(self.graph, conditions, Residuals::None)?));
        }
        let mut residuals = Vec::new();
        let learned = timed(self.graph, conditions, Residuals::Learn(&mut residuals))?;
        Ok((residuals, learned))
    }

    /// # Errors
    /// A cost was never measured here, or the recording contradicts itself.
    pub fn check(&self) -> Result<Check> {
        let conditions = self.conditions(&self.draws[0])?;
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
        let graphs: Vec<Cow<Graph>> = levers.iter().map(|lever| self.graph_of(lever)).collect();
        let draws: Vec<(usize, &(Draw, Unknown))> = self.draws.iter().enumerate().collect();
        let mut drawn = in_parallel(&draws, |(nth, draw)| {
            let base = Base::of(self, draw)?;
            let one = |(lever, graph): (&&Lever, &Cow<Graph>)| match nth {
                0 => base.middle(lever, graph).map(|(time, middle)| (time, Some(middle))),
                _ => Ok((base.time(lever, graph)?, None)),
            };
            levers.iter().zip(&graphs).map(one).collect::<Result<Vec<(f64, Option<Middle>)>>>()
        })?;
        let middles: Vec<Middle> = drawn[0].iter_mut().filter_map(|of| of.1.take()).collect();
        let answer = |(nth, Middle { path, work, order }): (usize, Middle)| {
            let time = interval(drawn.iter().map(|of| of[nth].0).collect());
            let more = order.unwrap_or(0.0);
            let time = Interval { low: time.low + more.min(0.0), high: time.high + more.max(0.0), ..time };
            Answer { time, path, draws: drawn.len(), order, work }
        };
        Ok(middles.into_iter().enumerate().map(answer).collect())
    }

    /// The graph with the lever's mapping.
    fn graph_of(&self, lever: &Lever) -> Cow<'a, Graph> {
        let moved = lever.mapping.as_ref().filter(|mapping| mapping.hosts != self.graph.hosts);
        moved.map_or(Cow::Borrowed(self.graph), |mapping| Cow::Owned(mapping.of(self.graph)))
    }

    /// Conditions under a lever, and the scale of residuals by class. `graph` is the mapped one; `recorded` has the
    /// conditions before.
    fn pull(
        &self,
        lever: &Lever,
        recorded: (&Graph, &Conditions),
        graph: &Graph,
        (draw, unknown): &(Draw, Unknown),
    ) -> Result<(Conditions, Vec<Scale>)> {
        // Prices depend on hosts: ranks on other cores of their hosts have the recorded ones.
        let moved = lever.mapping.as_ref().is_some_and(|mapping| mapping.hosts != recorded.0.hosts);
        let mapped = moved.then(|| self.conditions_of(graph, draw)).transpose()?;
        let (after, mut scale) = lever.pull(graph, self.costs, mapped.as_ref().unwrap_or(recorded.1), unknown)?;
        if let Some(mapped) = &mapped {
            let ratios = mapping::ratios((recorded.0, &recorded.1.prices), (graph, &mapped.prices));
            for (scale, ratio) in scale.iter_mut().zip(ratios) {
                *scale = Scale { follows: unknown.residual_follows, ..scale.after(ratio) };
            }
        }
        Ok((after, scale))
    }

    /// An evaluator of mappings, all costs in the middle of their intervals.
    ///
    /// # Errors
    /// A cost was never measured here.
    pub fn mapper(&self) -> Result<Mapper<'_>> {
        Ok(match &self.sockets {
            Some(sockets) => Mapper(Replays::OverSockets(sockets.bases()?)),
            None => Mapper(Replays::Whole(Box::new(Base::of(self, &self.draws[0])?))),
        })
    }

    /// The times under mappings over that of the program as it is.
    ///
    /// # Errors
    /// A cost was never measured here.
    pub fn mapped(&self, mappings: &[Mapping]) -> Result<Vec<Interval>> {
        if let Some(sockets) = &self.sockets {
            let drawn = sockets.times(mappings)?;
            let of = |nth| sockets::interval(drawn.iter().map(|times| times[nth]).collect());
            return Ok((0..mappings.len()).map(of).collect());
        }
        let levers = mappings.iter().map(|of| Lever { mapping: Some(of.clone()), ..Lever::default() });
        let levers: Vec<Lever> = levers.collect();
        Ok(self.ask(&levers.iter().collect::<Vec<_>>())?.into_iter().map(|answer| answer.time).collect())
    }

    /// The share of the run that its threads are in calls.
    pub fn in_calls(&self) -> f64 {
        let sum = |lengths: &Lengths| (0..lengths.len() as u32).map(|call| lengths.get(call)).sum::<i64>() as f64;
        let (inside, gaps) = (sum(&self.graph.calls.inside), sum(&self.graph.calls.gap));
        inside / (inside + gaps).max(1.0)
    }

    /// The tolerances for each of `more`, shares of the time.
    ///
    /// # Errors
    /// The errors of [`Program::ask`].
    pub fn tolerances(&self, more: &[f64]) -> Result<Vec<Tolerance>> {
        let before = self.conditions(&self.draws[0])?;
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
        let tolerance = |more: &f64| Ok(Tolerance { more: *more, latency: reach(recorded, *more, 1.0, at)? });
        more.iter().map(tolerance).collect()
    }
}

/// The results of an answer with all costs in the middle of their intervals.
struct Middle {
    path: Path,
    work: [Work; 2],
    order: Option<f64>,
}

/// A program in one draw, with its residuals, to which levers are applied.
#[derive(Debug)]
struct Base<'p> {
    program: &'p Program<'p>,
    draw: Draw,
    unknown: Unknown,
    conditions: Conditions,
    residuals: Vec<i64>,
    /// By class: the usual residual, ps.
    typical: Vec<f64>,
    /// By message: when it began to move in the recorded run, ps.
    began: Vec<i64>,
    /// The present time of the program, without the overhead of recording, ps.
    now: i64,
}

impl<'p> Base<'p> {
    fn of(program: &'p Program<'p>, drawn: &(Draw, Unknown)) -> Result<Base<'p>> {
        let conditions = program.conditions(drawn)?;
        let (residuals, learned) = program.learn(&conditions)?;
        let (draw, unknown) = drawn;
        let trip = |message: &Message| conditions.prices.kinds[message.kind as usize].trip;
        let mut began = learned.over;
        for (began, message) in began.iter_mut().zip(&program.graph.messages) {
            *began = began.saturating_sub(trip(message));
        }
        let unrecorded = Conditions { unrecorded: true, ..conditions.clone() };
        let now = timed(program.graph, &unrecorded, Residuals::Own(&residuals))?.total;
        let typical = typical(program.graph, &residuals);
        Ok(Base { program, draw: *draw, unknown: *unknown, conditions, residuals, typical, began, now })
    }

    /// Conditions and residuals under a lever, whose graph is `graph`.
    fn under(&self, lever: &Lever, graph: &Graph) -> Result<(Conditions, Cow<'_, [i64]>)> {
        let recorded = (self.program.graph, &self.conditions);
        let (after, scale) = self.program.pull(lever, recorded, graph, &(self.draw, self.unknown))?;
        let residuals = scaled(&self.residuals, &self.typical, graph, &scale);
        Ok((Conditions { unrecorded: true, ..after }, residuals))
    }

    /// The time under a lever over that of the program as it is.
    fn time(&self, lever: &Lever, graph: &Graph) -> Result<f64> {
        let (after, residuals) = self.under(lever, graph)?;
        Ok(self.over(&timed(graph, &after, Residuals::Own(&residuals))?))
    }

    /// The same time, with the critical path and the rest of a [`Middle`].
    fn middle(&self, lever: &Lever, graph: &Graph) -> Result<(f64, Middle)> {
        let (after, residuals) = self.under(lever, graph)?;
        let replayed = replay(graph, &after, Residuals::Own(&residuals))?;
        let work = [Work::of(self.program.graph, &self.conditions.prices), replayed.work];
        let order = self.in_order(graph, &after, &residuals, &replayed);
        Ok((self.over(&replayed), Middle { path: critical(graph, &after, &replayed), work, order }))
    }

    /// The increase of the time in the recorded order of service; `None`: nothing queues, or that order is impossible.
    fn in_order(&self, graph: &Graph, after: &Conditions, residuals: &[i64], free: &Replayed) -> Option<f64> {
        let order = Order::of(graph, &self.began, after)?;
        let kept = replay_in(Some(order), graph, after, Residuals::Own(residuals)).ok()?;
        Some(self.over(&kept) - self.over(free))
    }

    /// The time of a replay over the program's present time.
    fn over(&self, replayed: &Replayed) -> f64 {
        replayed.total as f64 / self.now.max(1) as f64
    }
}

/// A program that was learned once, for many mappings.
#[derive(Debug)]
pub struct Mapper<'p>(Replays<'p>);

#[derive(Debug)]
enum Replays<'p> {
    /// Messages are priced as a whole.
    Whole(Box<Base<'p>>),
    OverSockets(Vec<sockets::Base<'p>>),
}

impl Mapper<'_> {
    /// The time under a mapping over that of the program as it is.
    ///
    /// # Errors
    /// A cost was never measured here.
    pub fn time(&self, mapping: Mapping) -> Result<f64> {
        match &self.0 {
            Replays::OverSockets(bases) => {
                let times = bases.iter().map(|base| base.time(&mapping)).collect::<Result<Vec<f64>>>()?;
                Ok(times.iter().sum::<f64>() / times.len() as f64)
            }
            Replays::Whole(base) => {
                let lever = Lever { mapping: Some(mapping), ..Lever::default() };
                let graph = base.program.graph_of(&lever);
                base.time(&lever, &graph)
            }
        }
    }
}

/// The place where a convex time, which `at` gives with its slope, exceeds `recorded` by the share `more`; `None`: nowhere.
/// `step`: the first place to look at.
fn reach(recorded: f64, more: f64, mut step: f64, at: impl Fn(f64) -> Result<(f64, f64)>) -> Result<Option<f64>> {
    let wanted = recorded * (1.0 + more);
    // From a point beyond, Newton's steps converge without passing the mark.
    let mut place = 0.0;
    let (mut time, mut slope) = at(place)?;
    for _ in 0..STEPS {
        if time >= wanted {
            break;
        }
        place = if slope > 0.0 { place + ((wanted - time) / slope).max(step) } else { step };
        (time, slope) = at(place)?;
        step *= 4.0;
    }
    if time < wanted {
        return Ok(None);
    }
    for _ in 0..32 {
        if slope <= 0.0 || time - wanted <= recorded * 1e-6 {
            break;
        }
        place = (place - (time - wanted) / slope).max(0.0);
        (time, slope) = at(place)?;
    }
    Ok(Some(place))
}

/// The interval that contains 95 % of the draws.
fn interval(mut drawn: Vec<f64>) -> Interval {
    drawn.sort_by(f64::total_cmp);
    let quantile = |part: f64| drawn[((drawn.len() - 1) as f64 * part).round() as usize];
    Interval { low: quantile(0.025), middle: quantile(0.5), high: quantile(0.975) }
}

/// The draw of a number; number 0 has everything in its middle.
fn drawn(number: u64) -> (Draw, Unknown) {
    if number == 0 {
        return (
            Draw::default(),
            Unknown {
                costs: Draw::default(),
                follows_clock: 0.5,
                residual_follows: 0.5,
                softirqs_inside: 0.5,
                // The capability as it was sampled.
                capability_stays: (1.0 - SAMPLED.0) / (SAMPLED.1 - SAMPLED.0),
                residual_stays: 1.0,
            },
        );
    }
    let mut random = Random::stream(SEED, number);
    let mut place = || 2.0 * random.unit() - 1.0;
    let mut draw = || Draw { trip: [place(), place()], work: [place(), place()] };
    let (recorded, costs) = (draw(), draw());
    let (follows_clock, residual_follows, softirqs_inside) = (random.unit(), random.unit(), random.unit());
    let capability_stays = random.unit();
    let residual_stays = 0.5 + random.unit();
    let unknown = Unknown { costs, follows_clock, residual_follows, softirqs_inside, capability_stays, residual_stays };
    (recorded, unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_convex_time_is_reached_from_either_side() {
        // Flat up to 2, then 5 a step, from 4 on 50.
        let lines = [(100.0, 0.0), (90.0, 5.0), (-90.0, 50.0)];
        let at = |place: f64| {
            let line = |(start, slope): &(f64, f64)| (start + slope * place, *slope);
            Ok(lines.iter().map(line).max_by(|one, other| one.0.total_cmp(&other.0)).expect("three"))
        };
        for (more, step, expected) in [(0.05, 0.1, 3.0), (0.05, 50.0, 3.0), (0.6, 1.0, 5.0)] {
            let place = reach(100.0, more, step, at).unwrap().unwrap();
            assert!((place - expected).abs() < 1e-4, "{more}: {place}");
        }
        assert_eq!(reach(100.0, 0.01, 1.0, |_| Ok((100.0, 0.0))).unwrap(), None);
    }
}
