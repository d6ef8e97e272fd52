//! Analysis of a study's runs: watts saved against performance lost at each clock, the gain of one carrier over another and
//! its trend with nodes and clock, and the spread of runs (paper 000, IV).
//!
//! All comparisons are made within a round on one host, so that drift affects both sides. An interval is that of its
//! comparison alone, at 95 %; a change is *sure* if it differs from 0 with an error of 5 % for all comparisons of the
//! analysis together (Bonferroni).

mod change;
mod gain;
mod page;
mod roles;
mod spread;
mod table;
mod terminal;
mod trade;

use std::collections::BTreeMap;

use machine::Result;
use rounds::parallel::in_parallel;
use serde::Serialize;

pub use change::Change;
pub use gain::{Gain, Gained, Trend};
pub use page::page;
pub use roles::{Named, Roles};
pub use spread::{Cell, Spread, Stat};
pub use table::csv;
pub use terminal::terminal;
pub use trade::{Curve, Front, Knee, Step};

use super::results::Results;
use crate::axes::Value;
use change::Series;

/// The result of an analysis, as it is printed, drawn and exported.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Analysis {
    pub roles: Roles,
    /// By point, in the order of the results.
    pub cells: Vec<Cell>,
    pub trades: Vec<Curve>,
    pub gains: Vec<Gain>,
    pub spread: Option<Spread>,
    /// Number of comparisons that share the error.
    pub comparisons: usize,
    pub notes: Vec<String>,
    /// Failed runs, counted by cause.
    pub failures: Vec<String>,
}

/// Place of a point: its values by role, and its other axes as one text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// Axes without a role; empty where there are none.
    pub panel: String,
    pub carrier: Option<String>,
    pub scale: Option<String>,
    pub clock: Option<String>,
}

/// A point with its runs' figures by round.
struct Point<'a> {
    place: Place,
    clock: Option<f64>,
    scale: Option<f64>,
    performance: Series,
    power: Option<Series>,
    energy: Option<Series>,
    axes: &'a crate::axes::Axes,
}

/// # Errors
/// A role names an axis or a figure that the study does not have.
pub fn analyse(results: &Results, named: &Named) -> Result<Analysis> {
    let roles = Roles::of(results, named)?;
    let mut runs: Vec<Vec<&super::results::Run>> = vec![Vec::new(); results.points.len()];
    for run in &results.runs {
        if let Some(of) = runs.get_mut(run.point as usize) {
            of.push(run);
        }
    }
    let text = |value: Option<&Value>| value.map(Value::to_string);
    let points: Vec<Point> = (results.points.iter().zip(&runs).enumerate())
        .map(|(nth, (axes, runs))| {
            let exact = results.simulated.get(nth).copied().unwrap_or(false);
            let role = |name: &Option<String>| name.as_ref().and_then(|name| axes.get(name));
            let panel = axes.iter().filter(|(name, _)| roles.sets_apart(name));
            let panel = panel.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ");
            let (clock, scale) = (role(&roles.clock), role(&roles.scale));
            let of = |figure: usize, more: bool| {
                Series::of(runs, |run| run.values.get(figure).copied().flatten(), more, exact)
            };
            let performance = of(roles.performance, roles.more_is_better);
            let power = roles.power.map(|figure| of(figure, false));
            let energy = match (roles.energy, &power) {
                (Some(figure), _) => Some(of(figure, false)),
                // Energy for the same work: watts over performance.
                (None, Some(power)) => Some(power.times(&performance)),
                (None, None) => None,
            };
            Point {
                place: Place { panel, carrier: text(role(&roles.carrier)), scale: text(scale), clock: text(clock) },
                clock: roles.clock_of(axes),
                scale: scale.and_then(Value::magnitude),
                performance,
                power,
                energy,
                axes,
            }
        })
        .collect();
    let cells = spread::cells(results, &points, &runs);
    let spread = spread::spread(&cells, roles.performance);
    let (trade_plans, gain_plans) = (trade::plans(&points, &roles), gain::plans(&points, &roles));
    let comparisons = trade_plans.iter().map(trade::Plan::comparisons).sum::<usize>()
        + gain_plans.iter().map(gain::Plan::comparisons).sum::<usize>();
    let error = rounds::contrast::ERROR / comparisons.max(1) as f64;
    let trades = in_parallel(&trade_plans, |plan| Ok(trade::curve(plan, &points, error)))?;
    let gains = in_parallel(&gain_plans, |plan| Ok(gain::gain(plan, &points, error)))?;
    let notes = notes(results, &roles, &cells);
    let failures = failures(results);
    Ok(Analysis { roles, cells, trades, gains, spread, comparisons, notes, failures })
}

fn failures(results: &Results) -> Vec<String> {
    let mut failed: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, why) in &results.failures {
        *failed.entry(why).or_default() += 1;
    }
    failed.into_iter().map(|(why, times)| format!("Not counted, {}: {why}", machine::count::of(times, "run"))).collect()
}

/// Indices of the points by key, with keys in the order of their first point.
fn grouped<'a, K: Ord + Clone>(points: &'a [Point<'a>], key: impl Fn(&Point) -> K) -> Vec<(K, Vec<usize>)> {
    let mut order: Vec<K> = Vec::new();
    let mut of: BTreeMap<K, Vec<usize>> = BTreeMap::new();
    for (nth, point) in points.iter().enumerate() {
        let key = key(point);
        let members = of.entry(key.clone()).or_insert_with(|| {
            order.push(key);
            Vec::new()
        });
        members.push(nth);
    }
    order.into_iter().map(|key| (key.clone(), of.remove(&key).unwrap_or_default())).collect()
}

fn notes(results: &Results, roles: &Roles, cells: &[Cell]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |text: String| notes.push(text);
    if roles.clock.is_some() && !roles.dilated && roles.power.is_none() && roles.energy.is_none() {
        note("No watts were measured: nothing is said of power. Name a source under [power] in the study file.".into());
    }
    if roles.dilated {
        note(
            "Protocol work was dilated, the cores' clock was not changed: watts of a lower clock do not show here."
                .into(),
        );
    }
    let is_simulated = |nth: usize| results.simulated.get(nth).copied().unwrap_or(false);
    let simulated = (0..cells.len()).filter(|nth| is_simulated(*nth)).count();
    if simulated > 0 {
        note(format!("{simulated} of {} points are simulated, not measured: they have no interval.", cells.len()));
    }
    let few = cells.iter().enumerate().filter(|(nth, cell)| !is_simulated(*nth) && cell.runs < 6).count();
    if few > 0 && !cells.is_empty() {
        note(format!("{few} of {} points have fewer than 6 runs: their intervals are wide.", cells.len()));
    }
    notes
}

#[cfg(test)]
mod tests;
