//! Means of each point, and the spread of its runs (claim A13's form: the standard deviation over the mean, by points).

use rounds::statistics::mean_interval;
use serde::Serialize;

use super::{Place, Point};
use crate::axes::Axes;
use crate::campaign::results::{Results, Run};

/// Mean of a figure at a point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Stat {
    pub runs: usize,
    pub mean: f64,
    /// 95 % interval of the mean, by Student's t; `None` for a single run.
    pub interval: Option<(f64, f64)>,
    /// Standard deviation over the mean; `None` for a single run or a mean of 0.
    pub deviation: Option<f64>,
}

/// A point, its runs and their figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    pub place: Place,
    pub axes: Axes,
    /// Runs that count.
    pub runs: usize,
    /// Statistics by figure; `None` where a figure has no value.
    pub figures: Vec<Option<Stat>>,
}

/// Spread of the runs of all points.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Points with more than one run.
    pub points: usize,
    /// Points whose deviation is below 1 %.
    pub below_1: usize,
    /// Points whose deviation is above 2 %.
    pub above_2: usize,
    /// The largest deviation, in per cent.
    pub largest: f64,
}

pub(super) fn cells(results: &Results, points: &[Point], runs: &[Vec<&Run>]) -> Vec<Cell> {
    let of = |(point, runs): (&Point, &Vec<&Run>)| Cell {
        place: point.place.clone(),
        axes: point.axes.clone(),
        runs: runs.len(),
        figures: (0..results.figures.len())
            .map(|figure| stat(runs.iter().filter_map(|run| run.values.get(figure).copied().flatten())))
            .collect(),
    };
    points.iter().zip(runs).map(of).collect()
}

fn stat(values: impl Iterator<Item = f64>) -> Option<Stat> {
    let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    let (mean, interval) = mean_interval(&values)?;
    let n = values.len() as f64;
    let deviation = || (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt() / mean.abs();
    let deviation = (n > 1.0 && mean != 0.0).then(deviation);
    Some(Stat { runs: values.len(), mean, interval, deviation })
}

pub(super) fn spread(cells: &[Cell], figure: usize) -> Option<Spread> {
    let deviations: Vec<f64> =
        cells.iter().filter_map(|cell| Some(100.0 * cell.figures.get(figure).copied()??.deviation?)).collect();
    let count = |of: &dyn Fn(f64) -> bool| deviations.iter().filter(|deviation| of(**deviation)).count();
    (!deviations.is_empty()).then(|| Spread {
        points: deviations.len(),
        below_1: count(&|deviation| deviation < 1.0),
        above_2: count(&|deviation| deviation > 2.0),
        largest: deviations.iter().copied().fold(0.0, f64::max),
    })
}
