//! Roles of a study's axes and figures in its analysis.

use std::collections::{BTreeMap, BTreeSet};

use machine::{Fault, Result};
use serde::Serialize;

use crate::axes::{Axes, Value};
pub(super) use crate::campaign::definition::PROGRAM;
use crate::campaign::results::Results;

/// Roles that the reader or the study file names; the rest follow from the axes' names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Named {
    /// The axis of clocks.
    pub clock: Option<String>,
    /// The axis of carriers, placements or networks that are compared.
    pub carrier: Option<String>,
    /// The carrier with which the others are compared.
    pub baseline: Option<String>,
    /// The first point of the study file: its carrier is the baseline where none is named.
    pub first: Option<Axes>,
    /// The axis of nodes or ranks.
    pub scale: Option<String>,
    /// The figure of performance.
    pub performance: Option<String>,
}

/// Axes and figures by role.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Roles {
    pub clock: Option<String>,
    pub carrier: Option<String>,
    pub baseline: Option<String>,
    pub scale: Option<String>,
    /// Names of the figures, with units.
    pub figures: Vec<(String, String)>,
    /// Indices into the figures.
    pub performance: usize,
    pub power: Option<usize>,
    pub energy: Option<usize>,
    pub more_is_better: bool,
    /// Whether the axis of clocks slows protocol work alone.
    pub dilated: bool,
    /// Axes without a role that set points apart.
    #[serde(skip)]
    others: BTreeSet<String>,
}

/// Axes that have a role by their name, in the order of preference.
const CLOCKS: [&str; 2] = ["clock", DILATE];
const CARRIERS: [&str; 5] = ["carrier", "adapter", "placement", "semantics", "network"];
const SCALES: [&str; 2] = ["nodes", "ranks"];
const DILATE: &str = "dilate";

impl Roles {
    /// # Errors
    /// No axis or figure has a given name; the study has no figure of performance.
    pub(super) fn of(results: &Results, named: &Named) -> Result<Roles> {
        let mut varied = BTreeSet::new();
        let mut known = BTreeSet::new();
        for (name, _) in results.points.iter().flat_map(|axes| axes.iter()) {
            known.insert(name.to_owned());
        }
        for name in &known {
            let values: BTreeSet<Option<&Value>> = results.points.iter().map(|axes| axes.get(name)).collect();
            if values.len() > 1 {
                varied.insert(name.clone());
            }
        }
        let axis = |role: &str, asked: &Option<String>, names: &[&str]| -> Result<Option<String>> {
            match asked {
                Some(name) if known.contains(name) => Ok(Some(name.clone())),
                Some(name) => {
                    let axes = known.iter().cloned().collect::<Vec<_>>().join(", ");
                    Err(Fault::new(
                        format!("{role} '{name}'"),
                        "the study has no such axis",
                        format!("choose of {axes}"),
                    ))
                }
                None => Ok(names.iter().find(|name| varied.contains(**name)).map(|name| (*name).to_owned())),
            }
        };
        let clock = axis("clock", &named.clock, &CLOCKS)?;
        let carrier = axis("carrier", &named.carrier, &CARRIERS)?;
        let scale = axis("scale", &named.scale, &SCALES)?;
        let carriers: Vec<String> = match &carrier {
            Some(name) => results.points.iter().filter_map(|axes| Some(axes.get(name)?.to_string())).collect(),
            None => Vec::new(),
        };
        let baseline = match &named.baseline {
            Some(asked) if carriers.contains(asked) => Some(asked.clone()),
            Some(asked) => {
                let subject = format!("baseline '{asked}'");
                return Err(Fault::new(subject, "no point has it", format!("choose of {}", carriers.join(", "))));
            }
            None => {
                let first = named.first.as_ref().zip(carrier.as_ref()).and_then(|(first, axis)| first.get(axis));
                first.map(Value::to_string).filter(|first| carriers.contains(first)).or(carriers.first().cloned())
            }
        };
        let mut others = varied;
        for role in [&clock, &carrier, &scale].into_iter().flatten() {
            others.remove(role);
        }
        if let Some(scale) = &scale {
            others.retain(|axis| !follows(results, axis, scale));
        }
        let figure = |name: &str| results.figures.iter().position(|figure| figure.name == name);
        let (power, energy) = (figure("watts"), figure("joules"));
        let other = || (0..results.figures.len()).find(|nth| Some(*nth) != power && Some(*nth) != energy);
        let names = || results.figures.iter().map(|figure| figure.name.as_str()).collect::<Vec<_>>().join(", ");
        let performance = match &named.performance {
            Some(name) => figure(name).ok_or_else(|| {
                let next = format!("choose of {}", names());
                Fault::new(format!("figure '{name}'"), "the study does not have it", next)
            })?,
            None => other().ok_or_else(|| {
                Fault::new("the study", "no figure of it tells performance", "name a [[figure]] in the study file")
            })?,
        };
        Ok(Roles {
            dilated: clock.as_deref() == Some(DILATE),
            clock,
            carrier,
            baseline,
            scale,
            figures: results.figures.iter().map(|figure| (figure.name.clone(), figure.unit.clone())).collect(),
            performance,
            power,
            energy,
            more_is_better: results.figures[performance].more_is_better,
            others,
        })
    }

    /// Whether an axis without a role sets points apart.
    pub(super) fn sets_apart(&self, axis: &str) -> bool {
        self.others.contains(axis)
    }

    /// Whether an axis has a role.
    pub(super) fn has(&self, axis: &str) -> bool {
        [&self.clock, &self.carrier, &self.scale].iter().any(|of| of.as_deref() == Some(axis))
    }

    /// Clock of a point in GHz, or its factor of dilation. Values below 1e6 are in GHz already.
    pub(super) fn clock_of(&self, axes: &Axes) -> Option<f64> {
        let value = axes.get(self.clock.as_ref()?)?.magnitude()?;
        Some(if self.dilated || value < 1e6 { value } else { value / 1e9 })
    }

    /// The figure of performance with its unit: `time, s`.
    pub fn merit(&self) -> String {
        match &self.figures[self.performance] {
            (name, unit) if unit.is_empty() => name.clone(),
            (name, unit) => format!("{name}, {unit}"),
        }
    }
}

/// Whether a value of `of` decides that of `axis` within each program, as nodes decide the ranks a node.
fn follows(results: &Results, axis: &str, of: &str) -> bool {
    let mut known: BTreeMap<(Option<&Value>, &Value), &Value> = BTreeMap::new();
    let mut moves = false;
    for axes in &results.points {
        let (Some(value), Some(of)) = (axes.get(axis), axes.get(of)) else { continue };
        let of_program = axes.get(PROGRAM);
        if *known.entry((of_program, of)).or_insert(value) != value {
            return false;
        }
        moves |= known.iter().any(|((program, _), other)| *program == of_program && *other != value);
    }
    moves
}
