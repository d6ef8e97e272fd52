//! Watts saved against performance lost, clock by clock.

use serde::Serialize;

use super::change::{Series, percent_lost, percent_risen, percent_saved};
use super::{Change, Place, Point, Roles, grouped};

/// The clocks of one carrier at one scale, against its full clock.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Curve {
    /// Place of the curve, without a clock.
    pub place: Place,
    /// Full clock, or protocol work that is not dilated.
    pub reference: String,
    /// Steps from the reference on.
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    pub clock: String,
    /// Index of the point.
    pub point: usize,
    /// Clock in GHz, or the factor of a dilation.
    pub at: f64,
    /// Performance lost, in per cent; none at the reference.
    pub lost: Option<Change>,
    /// Watts saved, in per cent.
    pub saved: Option<Change>,
    /// Increase of the energy for the same work, in per cent of the reference's.
    pub energy: Option<Change>,
    pub knee: Knee,
    pub front: Front,
}

/// Whether the watts saved exceed the performance lost by most at this clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Knee {
    Here,
    /// The clock is not surely worse than the knee.
    Perhaps,
    No,
}

/// Whether no other carrier or clock of the same scale gives more performance for fewer watts (Pareto).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Front {
    On,
    /// Another point has better middles, but is not surely better.
    Perhaps,
    /// Another point is surely better in performance or watts, and surely not worse in the other.
    Behind,
    /// No watts were measured.
    Unknown,
}

pub(super) struct Plan {
    place: Place,
    /// Clocks with the indices of their points, the reference first.
    points: Vec<(f64, usize)>,
    changes: usize,
    /// All points of the panel and scale.
    rivals: Vec<usize>,
}

impl Plan {
    pub fn comparisons(&self) -> usize {
        self.points.len().saturating_sub(1) * self.changes
    }
}

pub(super) fn plans(points: &[Point], roles: &Roles) -> Vec<Plan> {
    let rivals = |place: &Place| {
        let same = |point: &Point| point.place.panel == place.panel && point.place.scale == place.scale;
        (0..points.len()).filter(|nth| same(&points[*nth])).collect()
    };
    grouped(points, |point| Place { clock: None, ..point.place.clone() })
        .into_iter()
        .filter_map(|(place, members)| {
            let mut clocks: Vec<(f64, usize)> =
                members.iter().filter_map(|nth| Some((points[*nth].clock?, *nth))).collect();
            clocks.sort_by(|one, other| one.0.total_cmp(&other.0));
            // Clocks begin at the highest, dilations at the least.
            if !roles.dilated {
                clocks.reverse();
            }
            let first = &points[clocks.first()?.1];
            let changes = 1 + usize::from(first.power.is_some()) + usize::from(first.energy.is_some());
            (clocks.len() > 1).then(|| Plan { rivals: rivals(&place), place, points: clocks, changes })
        })
        .collect()
}

pub(super) fn curve(plan: &Plan, points: &[Point], error: f64) -> Curve {
    let reference = &points[plan.points[0].1];
    let between = |of: &Option<Series>, full: &Option<Series>, percent| {
        Change::of(&of.as_ref()?.over(full.as_ref()?), error, percent)
    };
    let mut steps: Vec<Step> = (plan.points.iter().enumerate())
        .map(|(nth, &(at, point))| {
            let of = &points[point];
            let changed = nth > 0;
            let performance = || Change::of(&of.performance.over(&reference.performance), error, percent_lost);
            Step {
                clock: of.place.clock.clone().unwrap_or_default(),
                point,
                at,
                lost: changed.then(performance).flatten(),
                saved: changed.then(|| between(&of.power, &reference.power, percent_saved)).flatten(),
                energy: changed.then(|| between(&of.energy, &reference.energy, percent_risen)).flatten(),
                knee: Knee::No,
                front: front(point, &plan.rivals, points, error),
            }
        })
        .collect();
    knee(&mut steps, points, reference, error);
    let reference = reference.place.clock.clone().unwrap_or_default();
    Curve { place: plan.place.clone(), reference, steps }
}

/// Marks the clock at which the watts saved, in per cent, exceed the performance lost by most, and those not surely worse.
fn knee(steps: &mut [Step], points: &[Point], full: &Point, error: f64) {
    if full.power.is_none() || steps.iter().skip(1).all(|step| step.saved.is_none()) {
        return;
    }
    let net = |step: &Step| match (step.saved, step.lost) {
        (Some(saved), Some(lost)) => Some(saved.middle - lost.middle),
        // The reference saves and loses nothing.
        _ if std::ptr::eq(&points[step.point], full) => Some(0.0),
        _ => None,
    };
    let best = (0..steps.len()).filter_map(|nth| Some((net(&steps[nth])?, nth))).max_by(|a, b| a.0.total_cmp(&b.0));
    let Some((_, best)) = best else { return };
    // By round: saved less lost.
    let by_round = |step: &Step| -> Option<Series> {
        let of = &points[step.point];
        let power = of.power.as_ref()?.over(full.power.as_ref()?);
        let performance = of.performance.over(&full.performance);
        Some(power.with(&performance, |power, performance| percent_saved(power) - percent_lost(performance)))
    };
    let winner = by_round(&steps[best]);
    for (nth, step) in steps.iter_mut().enumerate() {
        let is_near = || {
            let apart = winner.as_ref()?.with(&by_round(step)?, |one, other| one - other);
            Some(apart.estimate(error).is_none_or(|apart| apart.low <= 0.0))
        };
        step.knee = match nth == best {
            true => Knee::Here,
            false if net(step).is_some() && is_near().unwrap_or(false) => Knee::Perhaps,
            false => Knee::No,
        };
    }
}

fn front(point: usize, rivals: &[usize], points: &[Point], error: f64) -> Front {
    let of = &points[point];
    let Some(power) = &of.power else { return Front::Unknown };
    let mut found = Front::On;
    for rival in rivals.iter().filter(|rival| **rival != point).map(|rival| &points[*rival]) {
        let Some(rival_power) = &rival.power else { continue };
        let differences = [rival.performance.over(&of.performance), rival_power.over(power)];
        if differences.iter().any(|of| of.values().iter().sum::<f64>() < 0.0) {
            continue;
        }
        let [Some(faster), Some(cheaper)] = differences.map(|of| of.estimate(error)) else { continue };
        let is_sure = (faster.low > 0.0 && cheaper.low >= 0.0) || (cheaper.low > 0.0 && faster.low >= 0.0);
        if is_sure {
            return Front::Behind;
        }
        found = Front::Perhaps;
    }
    found
}
