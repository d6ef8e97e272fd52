//! Figures under which a replay ends the recorded calls when they ended.
//!
//! From random figures, and from those of them that fit best, steps of Gauss and Newton lead to figures that leave the least of
//! the calls' ends unexplained, in the sum of absolute differences (each step weighs a call by the reciprocal of its own). The
//! other draws begin between that fit and random figures, and lead to others that fit nearly as well: where the recording does
//! not tell a figure, they differ in it.

use machine::{Bytes, Result};
use rounds::parallel::in_parallel;
use rounds::random::Random;

use super::stages::{FIGURES, MOST, PIECE, Trips, figure};
use super::{Drawn, Figures, Sockets};
use crate::causal::inverse;
use crate::graph::{Lengths, Message, Reach};
use crate::lever::Unknown;
use crate::model::Draw;
use crate::replay::{Buffer, PS};

/// The most calls, with the pieces of their messages, that a fit replays.
const REPLAYED: usize = 4_000;

/// Random figures, how many of them lead to a fit of the first part of the calls, and how many of those to one of all.
const STARTS: usize = 96;
const FITTED: [usize; 2] = [6, 3];

/// The first part of the calls: ends depend on all that was before, so that a fit of few finds the way to one of many.
const FIRST: usize = 8;

/// The most steps of a fit, and of another draw.
const STEPS: usize = 10;
const STEPS_OF_DRAW: usize = 3;

/// Distances at which a fit looks on along each figure where no step betters it.
const AROUND: [f64; 3] = [0.1, 0.03, 0.005];

/// What a derivative moves a figure by.
const MOVED: f64 = 0.01;

/// Factors of the diagonal that shorten a step.
const DAMPING: [f64; 4] = [1e-4, 1e-2, 0.3, 10.0];

/// The weight of what a measured exchange takes beside the time of all calls.
const EXCHANGED: f64 = 0.02;

/// The misfit from which on nothing more is told.
const EXACT: f64 = 2e-5;

/// The share of the way from the best fit to random figures at which other draws begin.
const ASTRAY: f64 = 0.5;

/// Another draw leaves at most so many times unexplained what the best fit does, and this share of the time in calls.
const FITS: (f64, f64) = (1.3, 0.003);

const SEED: u64 = 0x0051_1A11_0000_0009;

/// Figures with what they leave unexplained, as shares of the time in calls: in sum and by call.
#[derive(Debug, Clone)]
struct Fit {
    misfit: f64,
    figures: Figures,
    late: Vec<f64>,
}

impl Sockets<'_> {
    /// The least misfit, and the draws that fit, the best first.
    pub(super) fn fitted(&self, drawn: &[(Draw, Unknown)]) -> Result<(f64, Vec<Drawn>)> {
        let active = self.active();
        let middle = drawn[0].0;
        let random = |number: usize| {
            let mut random = Random::stream(SEED, number as u64);
            let mut figures = Figures([0.5; FIGURES]);
            active.iter().for_each(|which| figures.0[*which] = random.unit());
            // Costs were measured on cores that are near, or on such that are far.
            figures.0[figure::MEASURED] = figures.0[figure::MEASURED].round();
            figures
        };
        let calls = self.graph.len();
        let all = calls.min(calls * REPLAYED / self.replayed().max(1)).max(self.graph.lanes.len());
        let first = calls.div_ceil(FIRST).min(all);
        let by_misfit = |mut fits: Vec<Fit>, number: usize| {
            fits.sort_by(|one, other| one.misfit.total_cmp(&other.misfit));
            fits.truncate(number);
            fits
        };
        let numbers: Vec<usize> = (0..STARTS).collect();
        let starts = in_parallel(&numbers, |number| self.fit(&middle, random(*number), first))?;
        let starts = in_parallel(&by_misfit(starts, FITTED[0]), |start| {
            let found = self.descended(&middle, start.clone(), &active, first, (STEPS, &AROUND))?;
            self.fit(&middle, found.figures, all)
        })?;
        let starts = by_misfit(starts, FITTED[1]);
        let mut best = starts[0].clone();
        for start in starts {
            if best.misfit < EXACT {
                break;
            }
            let found = self.descended(&middle, start, &active, all, (STEPS, &AROUND))?;
            if found.misfit < best.misfit {
                best = found;
            }
        }
        let most = best.misfit * FITS.0 + FITS.1;
        let numbers: Vec<usize> = (0..drawn.len()).collect();
        let draws = in_parallel(&numbers, |number| {
            let (draw, unknown) = drawn[*number];
            let mut figures = best.figures;
            if *number > 0 {
                let other = random(STARTS + number);
                let between = |which: usize| figures.0[which] + ASTRAY * (other.0[which] - figures.0[which]);
                let start = self.fit(&middle, Figures(std::array::from_fn(between)), all)?;
                let found = self.descended(&middle, start, &active, all, (STEPS_OF_DRAW, &[]))?;
                if found.misfit <= most {
                    figures = found.figures;
                }
            }
            Ok(Drawn { draw, unknown, figures })
        })?;
        Ok((best.misfit, draws))
    }

    /// Calls, and pieces of their messages.
    fn replayed(&self) -> usize {
        let pieces = |of: &Message| self.graph.kinds[of.kind as usize].bytes.div_ceil(PIECE).min(MOST) as usize;
        self.graph.len() + self.graph.messages.iter().map(pieces).sum::<usize>()
    }

    /// The figures on which a replay of this program depends.
    fn active(&self) -> Vec<usize> {
        let Sockets { graph, softirqs, buffer, .. } = self;
        let has = |reach| graph.kinds.iter().any(|kind| kind.reach == reach);
        let on_cores = softirqs.hosts.iter().any(|ns| *ns > 0.0);
        let far = softirqs.far.iter().any(|far| *far);
        let library = matches!(buffer, Buffer::Behind { .. });
        let is_active = |which: &usize| match *which {
            figure::ACKNOWLEDGES => on_cores,
            figure::FAR | figure::MEASURED => far,
            figure::MEASURED_WITHIN => far && has(Reach::Host),
            figure::COPIED | figure::WAITS => library,
            figure::DEVICE => !on_cores,
            _ => true,
        };
        (0..FIGURES).filter(is_active).collect()
    }

    /// The fit to which steps of Gauss and Newton lead.
    fn descended(
        &self,
        draw: &Draw,
        mut at: Fit,
        active: &[usize],
        calls: usize,
        (steps, around): (usize, &[f64]),
    ) -> Result<Fit> {
        for _ in 0..steps {
            if at.misfit < EXACT {
                break;
            }
            let moved = in_parallel(active, |which| {
                let mut figures = at.figures;
                let by = if figures.0[*which] > 0.5 { -MOVED } else { MOVED };
                figures.0[*which] += by;
                Ok((by, self.fit(draw, figures, calls)?.late))
            })?;
            let derivative = |(by, late): &(f64, Vec<f64>)| -> Vec<f64> {
                late.iter().zip(&at.late).map(|(one, other)| (one - other) / by).collect()
            };
            let columns: Vec<Vec<f64>> = moved.iter().map(derivative).collect();
            let least = (at.misfit / at.late.len().max(1) as f64 / 10.0).max(f64::MIN_POSITIVE);
            let weights: Vec<f64> = at.late.iter().map(|late| late.abs().max(least).recip()).collect();
            let product = |one: &[f64], other: &[f64]| -> f64 {
                one.iter().zip(other).zip(&weights).map(|((one, other), weight)| one * other * weight).sum()
            };
            let gradient: Vec<f64> = columns.iter().map(|column| product(column, &at.late)).collect();
            let matrix: Vec<Vec<f64>> =
                columns.iter().map(|row| columns.iter().map(|column| product(row, column)).collect()).collect();
            let largest = (0..active.len()).map(|place| matrix[place][place]).fold(0.0, f64::max);
            if largest <= 0.0 {
                break;
            }
            let tried = in_parallel(&DAMPING, |damping| {
                let mut damped = matrix.clone();
                (0..active.len()).for_each(|place| {
                    damped[place][place] += damping * (matrix[place][place] + 1e-6 * largest);
                });
                let mut figures = at.figures;
                if let Some(inverse) = inverse(damped) {
                    for (row, which) in inverse.iter().zip(active) {
                        let step: f64 = row.iter().zip(&gradient).map(|(one, other)| one * other).sum();
                        figures.0[*which] = (figures.0[*which] - step).clamp(0.0, 1.0);
                    }
                }
                self.fit(draw, figures, calls)
            })?;
            let least = |fits: Vec<Fit>| fits.into_iter().min_by(|one, other| one.misfit.total_cmp(&other.misfit));
            let betters = |best: &Fit| best.misfit < at.misfit * 0.999;
            let mut next = least(tried).filter(betters);
            for step in around.iter().copied() {
                if next.is_some() {
                    break;
                }
                let around: Vec<(usize, f64)> =
                    active.iter().flat_map(|which| [(*which, step), (*which, -step)]).collect();
                let tried = in_parallel(&around, |(which, by)| {
                    let mut figures = at.figures;
                    figures.0[*which] = (figures.0[*which] + by).clamp(0.0, 1.0);
                    self.fit(draw, figures, calls)
                })?;
                next = least(tried).filter(betters);
            }
            match next {
                Some(next) => at = next,
                None => break,
            }
        }
        Ok(at)
    }

    fn has_costs_between(&self) -> bool {
        Trips::of(self.costs, &self.ways, &Draw::default()).stream(Bytes(1)).is_ok()
    }

    /// What figures leave unexplained.
    fn fit(&self, draw: &Draw, figures: Figures, calls: usize) -> Result<Fit> {
        let sum = |lengths: &Lengths| (0..lengths.len() as u32).map(|call| lengths.get(call)).sum::<i64>();
        let part = (calls as f64 / self.graph.len().max(1) as f64).min(1.0);
        let all = part * (sum(&self.graph.calls.inside) * PS).max(1) as f64;
        let drawn = Drawn { draw: *draw, unknown: Unknown::default(), figures };
        let priced = self.stages(&drawn)?;
        let learned = self.learn(&priced, calls)?;
        let mut late: Vec<f64> = learned.late.iter().map(|late| *late as f64 / all).collect();
        if self.has_costs_between() {
            let trips = Trips::of(self.costs, &self.ways, draw);
            let missed = self.exchanges.missed(&priced.0, &trips, self.buffer)?;
            late.extend(missed.into_iter().map(|missed| EXCHANGED * missed));
        }
        Ok(Fit { misfit: late.iter().map(|late| late.abs()).sum(), figures, late })
    }
}
