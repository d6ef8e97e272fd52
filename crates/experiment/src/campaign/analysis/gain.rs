//! The gain of a carrier over the baseline, and its trend with nodes and with clock.

use serde::Serialize;

use super::change::{Series, percent_gained, percent_saved};
use super::{Change, Place, Point, Roles, grouped};

/// One carrier against the baseline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gain {
    pub panel: String,
    pub carrier: String,
    pub baseline: String,
    pub steps: Vec<Gained>,
    pub trends: Vec<Trend>,
}

/// The gain at one scale and clock.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gained {
    pub scale: Option<String>,
    pub clock: Option<String>,
    /// More performance, in per cent of the baseline's.
    pub performance: Option<Change>,
    /// Fewer watts, in per cent of the baseline's.
    pub power: Option<Change>,
}

/// Change of the gain along an axis, with the other one fixed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trend {
    /// `a doubling of nodes`, `a GHz`.
    pub by: String,
    /// `clock 1.9GHz`; absent where the other axis does not vary.
    pub at: Option<String>,
    /// Change of the gain in performance, in per cent.
    pub change: Option<Change>,
}

pub(super) struct Plan {
    panel: String,
    carrier: String,
    baseline: String,
    /// Index of the carrier's point and of the baseline's.
    pairs: Vec<(usize, usize)>,
    trends: Vec<TrendPairs>,
    with_power: bool,
}

struct TrendPairs {
    by: String,
    at: Option<String>,
    /// Value on the axis, and pair.
    pairs: Vec<(f64, (usize, usize))>,
}

impl Plan {
    pub fn comparisons(&self) -> usize {
        self.pairs.len() * (1 + usize::from(self.with_power)) + self.trends.len()
    }
}

pub(super) fn plans(points: &[Point], roles: &Roles) -> Vec<Plan> {
    let Some(baseline) = &roles.baseline else { return Vec::new() };
    let mut plans = Vec::new();
    for ((panel, carrier), members) in grouped(points, |point| (point.place.panel.clone(), point.place.carrier.clone()))
    {
        let Some(carrier) = carrier.filter(|carrier| carrier != baseline) else { continue };
        let pair = |&one: &usize| {
            let place = Place { carrier: Some(baseline.clone()), ..points[one].place.clone() };
            Some((one, points.iter().position(|point| point.place == place)?))
        };
        let pairs: Vec<(usize, usize)> = members.iter().filter_map(pair).collect();
        if pairs.is_empty() {
            continue;
        }
        let scale = roles.scale.clone().unwrap_or_default();
        let clock = if roles.dilated { "each further time of the protocol's work" } else { "a GHz" };
        let mut trends = along(points, &pairs, &format!("a doubling of {scale}"), &roles.clock, |point| {
            (point.scale.filter(|scale| *scale > 0.0).map(f64::log2), point.place.clock.clone())
        });
        trends.extend(along(points, &pairs, clock, &roles.scale, |point| (point.clock, point.place.scale.clone())));
        let with_power = points[pairs[0].0].power.is_some();
        plans.push(Plan { panel, carrier, baseline: baseline.clone(), pairs, trends, with_power });
    }
    plans
}

/// The pairs of each trend along an axis: those of one value of the `fixed` axis, if they vary along the other.
fn along(
    points: &[Point],
    pairs: &[(usize, usize)],
    by: &str,
    fixed: &Option<String>,
    place: impl Fn(&Point) -> (Option<f64>, Option<String>),
) -> Vec<TrendPairs> {
    let mut trends: Vec<TrendPairs> = Vec::new();
    for &pair in pairs {
        let (Some(x), at) = place(&points[pair.0]) else { continue };
        let at = fixed.as_ref().zip(at).map(|(name, value)| format!("{name} {value}"));
        match trends.iter_mut().find(|trend| trend.at == at) {
            Some(trend) => trend.pairs.push((x, pair)),
            None => trends.push(TrendPairs { by: by.to_owned(), at, pairs: vec![(x, pair)] }),
        }
    }
    let varies = |trend: &TrendPairs| trend.pairs.iter().any(|(x, _)| *x != trend.pairs[0].0);
    trends.retain(varies);
    trends
}

pub(super) fn gain(plan: &Plan, points: &[Point], error: f64) -> Gain {
    let over = |(one, other): (usize, usize)| points[one].performance.over(&points[other].performance);
    let step = |&(one, other): &(usize, usize)| {
        let (of, base) = (&points[one], &points[other]);
        let power = || Some(of.power.as_ref()?.over(base.power.as_ref()?));
        Gained {
            scale: of.place.scale.clone(),
            clock: of.place.clock.clone(),
            performance: Change::of(&over((one, other)), error, percent_gained),
            power: power().and_then(|ratios| Change::of(&ratios, error, percent_saved)),
        }
    };
    let trend = |along: &TrendPairs| {
        let series: Vec<(f64, Series)> = along.pairs.iter().map(|(x, pair)| (*x, over(*pair))).collect();
        let change = Change::of(&Series::slopes(&series), error, percent_gained);
        Trend { by: along.by.clone(), at: along.at.clone(), change }
    };
    Gain {
        panel: plan.panel.clone(),
        carrier: plan.carrier.clone(),
        baseline: plan.baseline.clone(),
        steps: plan.pairs.iter().map(step).collect(),
        trends: plan.trends.iter().map(trend).collect(),
    }
}
