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
    /// The site of each unit.
    pub assignment: Vec<SiteIndex>,
    /// What the assignment costs.
    pub cost: Cost,
    /// For each unit the sites that it did not get, in the order of [`Layout::sites`].
    pub rejected: Vec<Vec<Rejection>>,
    /// What each site was given.
    pub usage: Vec<Usage>,
}

/// The cost of a plan, in weighted seconds of core time a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// `work + crossings + opening`.
    pub total: f64,
    /// Load of the units at their sites, each times the site's price and the unit's priority / 100.
    pub work: f64,
    /// Core time of the channels' messages, each channel times the larger priority of its ends / 100.
    pub crossings: f64,
    /// What opening the sites with units costs.
    pub opening: f64,
}

/// What a plan uses of a site.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Load of the units there, together.
    pub load: Load,
    /// Memory of the units there, together.
    pub memory: Bytes,
    /// Number of units there.
    pub slots: usize,
}

/// A site that a unit did not get, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rejection {
    /// The site.
    pub site: SiteIndex,
    /// The reason against it.
    pub reason: Reason,
}

/// Why a unit is not at a site.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reason {
    /// The unit cannot be there; the sentence is that of [`Place::Impossible`].
    Impossible(String),
    /// A demand of the unit itself, or of one that Pulls tie it to, forbids the site.
    Forbidden {
        /// The demand that forbids it.
        by: Demand,
        /// The Pulls from the unit to the one that the demand concerns, by their place in [`Layout::constraints`].
        chain: Vec<usize>,
    },
    /// With the unit and its Pull group the site would hold more than it can; no small set of moves of other units was
    /// found to make room.
    Overflow {
        /// What the site has too little of.
        resource: Resource,
        /// Cores, bytes or slots that the unit and its Pull group take there.
        needs: f64,
        /// What the others leave; less than `needs`.
        left: f64,
        /// The unit and its Pull group would not fit even if the site held nothing else.
        alone: bool,
    },
    /// The unit could be there, but the best plan found with it there costs more.
    Costlier {
        /// Additional cost, in the unit of [`Cost`].
        more: f64,
        /// The other units that this plan moves, each with its new site.
        moves: Vec<(UnitIndex, SiteIndex)>,
    },
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
    NotFound {
        /// The effort that was spent, as [`crate::Effort::steps`] counts it.
        steps: u64,
    },
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
                Place::Possible(load) => weight(unit.priority) * self.sites[site.0].price * load.0,
                Place::Impossible(_) => f64::INFINITY,
            };
        }
        for channel in &self.channels {
            let crossing = self.crossing_ns[assignment[channel.from.0].0][assignment[channel.to.0].0];
            cost.crossings += channel_weight(self, channel) * channel.rate * crossing * 1e-9;
        }
        let used = |site: usize| assignment.contains(&SiteIndex(site));
        cost.opening = (0..self.sites.len()).filter(|&site| used(site)).map(|site| self.sites[site].opening).sum();
        cost.total = cost.work + cost.crossings + cost.opening;
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
