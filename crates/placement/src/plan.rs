//! What the solver answers: where each unit goes, at which cost, and why not elsewhere.

use std::fmt;

use machine::{Bytes, Fault};
use serde::{Deserialize, Serialize};

use crate::clash::Clash;
use crate::layout::{Demand, Layout, Load, Place, Resource, SiteIndex, UnitIndex};
use crate::model::{channel_weight, weight};

/// An assignment that meets every constraint and capacity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// One site a unit.
    pub assignment: Vec<SiteIndex>,
    pub cost: Cost,
    /// One entry a unit: the sites that it did not get, in their order.
    pub rejected: Vec<Vec<Rejection>>,
    /// One entry a site.
    pub usage: Vec<Usage>,
}

/// Weighted seconds of core time a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// `work + crossings`.
    pub total: f64,
    /// Of the units at their sites, each times its priority / 100.
    pub work: f64,
    /// Of the channels, each times the larger priority of its ends / 100.
    pub crossings: f64,
}

/// What a site was given.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    pub load: Load,
    pub memory: Bytes,
    pub slots: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rejection {
    pub site: SiteIndex,
    pub reason: Reason,
}

/// Why a unit is not at a site.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reason {
    /// The layout's own sentence.
    Impossible(String),
    /// By `by`, which concerns the unit itself or one that it is tied to over `chain`, Pulls by their place in
    /// [`Layout::constraints`], from the unit to that one.
    Forbidden { by: Demand, chain: Vec<usize> },
    /// With it (and what Pull brings along) the site is overfull, and no few moves of others were found to help.
    Overflow {
        resource: Resource,
        /// Cores, bytes or slots that it and its Pull group take there.
        needs: f64,
        /// What the others leave; less than `needs`.
        left: f64,
        /// It does not even fit alone.
        alone: bool,
    },
    /// It would cost `more` after the best local repair found, in which `moves` others give way.
    Costlier { more: f64, moves: Vec<(UnitIndex, SiteIndex)> },
}

/// Why there is no plan.
#[derive(Debug)]
pub enum Unsolved {
    /// The layout makes no sense.
    Invalid(Fault),
    /// Nothing satisfies it: proven.
    Clash(Clash),
    /// Nothing satisfies it: proven, but the demands that clash could not be told apart in the effort given.
    Nothing,
    /// None found in the effort given; neither is it proven that there is none.
    NotFound { steps: u64 },
}

impl fmt::Display for Unsolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsolved::Invalid(fault) => fault.fmt(f),
            Unsolved::Clash(clash) => clash.fmt(f),
            Unsolved::Nothing => {
                write!(f, "nothing satisfies the layout; the search for the demands that clash was cut short")
            }
            Unsolved::NotFound { steps } => {
                write!(f, "no assignment was found in {steps} steps; whether there is one is not known")
            }
        }
    }
}

impl std::error::Error for Unsolved {}

impl From<Unsolved> for Fault {
    fn from(unsolved: Unsolved) -> Fault {
        let text = unsolved.to_string();
        match unsolved {
            Unsolved::Invalid(fault) => fault,
            Unsolved::Clash(clash) => {
                let parts: Vec<&str> = clash.parts.iter().map(|part| part.sentence.as_str()).collect();
                let cause = format!("these clash ({}): {}", clash.minimality.sentence(), parts.join("; "));
                Fault::new("layout", cause, "give up one of them")
            }
            Unsolved::Nothing => Fault::new("layout", text, "relax a capacity or a constraint"),
            Unsolved::NotFound { .. } => {
                Fault::new("layout", text, "allow more steps, or relax a capacity or a constraint")
            }
        }
    }
}

impl Layout {
    /// What `assignment` costs, whether or not it is permitted: one site a unit, `f64::INFINITY` where one is impossible.
    pub fn cost(&self, assignment: &[SiteIndex]) -> Cost {
        let mut cost = Cost::default();
        for (unit, site) in self.units.iter().zip(assignment) {
            cost.work += match &unit.places[site.0] {
                Place::Possible(load) => weight(unit.priority) * load.0,
                Place::Impossible(_) => f64::INFINITY,
            };
        }
        for channel in &self.channels {
            let crossing = self.crossing_ns[assignment[channel.from.0].0][assignment[channel.to.0].0];
            cost.crossings += channel_weight(self, channel) * channel.rate * crossing * 1e-9;
        }
        cost.total = cost.work + cost.crossings;
        cost
    }

    pub(crate) fn usage(&self, assignment: &[SiteIndex]) -> Vec<Usage> {
        let mut usage = vec![Usage { load: Load(0.0), memory: Bytes(0), slots: 0 }; self.sites.len()];
        for (unit, site) in self.units.iter().zip(assignment) {
            let site_usage = &mut usage[site.0];
            if let Place::Possible(load) = &unit.places[site.0] {
                site_usage.load.0 += load.0;
            }
            site_usage.memory.0 += unit.memory.0;
            site_usage.slots += 1;
        }
        usage
    }
}
