//! What is to be placed, where it could go, and what ties it together.

use machine::{Bytes, Site};
use serde::{Deserialize, Serialize};

/// The index of an offcode (or a rank) in [`Layout::units`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnitIndex(pub usize);

/// The index of a site in [`Layout::sites`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SiteIndex(pub usize);

/// Core time, as the share of one second of one core: 1.0 keeps a core busy.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Load(pub f64);

/// What is to be solved: units, sites, and the costs and constraints between them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    /// What is placed; a [`UnitIndex`] points here.
    pub units: Vec<Unit>,
    /// Where it may go; a [`SiteIndex`] points here.
    pub sites: Vec<Candidate>,
    /// The traffic between units.
    pub channels: Vec<Crossing>,
    /// What units demand of each other and the user of them.
    pub constraints: Vec<Tie>,
    /// `crossing_ns[a][b]`: what one message from site a to site b counts, in nanoseconds, both ends together.
    pub crossing_ns: Vec<Vec<f64>>,
}

/// What is placed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Unit {
    /// The offcode's package name, for the user.
    pub name: String,
    /// Weight of the unit's costs: 0 to 1000, 100 is neutral. Its own or inherited.
    pub priority: u32,
    /// Memory that the unit takes at whichever site it is.
    pub memory: Bytes,
    /// One entry for each site: whether and at which load the unit can be there.
    pub places: Vec<Place>,
}

/// Whether and at which cost a unit can be at one site.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Place {
    /// It can be there, and its work takes this load.
    Possible(Load),
    /// It cannot be there; the sentence says why to the user: 'its manifest names no body for xdp'.
    Impossible(String),
}

/// A site and what it holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The site's name.
    pub site: Site,
    /// Load that all units there may take together.
    pub capacity: Load,
    /// Memory that all units there may take together.
    pub memory: Bytes,
    /// Most units that may be there.
    pub slots: usize,
    /// What a second of core time of the units there counts: 1 where it is paid as it is used, 0 where the core burns
    /// anyway and [`Candidate::opening`] is its price.
    pub price: f64,
    /// What it costs, in cores, that any unit is there at all: a core that polls burns whatever it is given.
    pub opening: f64,
}

/// Traffic between two units.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Crossing {
    /// The unit that sends.
    pub from: UnitIndex,
    /// The unit that receives.
    pub to: UnitIndex,
    /// Messages a second.
    pub rate: f64,
}

/// A constraint between two units. Link is the absence of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tie {
    /// Both units at the same site.
    Pull(UnitIndex, UnitIndex),
    /// Both units at sites other than `app`, the same or different ones.
    Gang(UnitIndex, UnitIndex),
    /// The unit at this site and no other, as the user wants it.
    Pin(UnitIndex, SiteIndex),
}

/// A resource of which a site has a limited amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    /// Core time a second.
    Load,
    /// Memory, in bytes.
    Memory,
    /// Number of units.
    Slots,
}

impl Resource {
    /// Every resource, in the order of declaration.
    pub const ALL: [Resource; 3] = [Resource::Load, Resource::Memory, Resource::Slots];
}

/// One demand of a layout: it can be broken, and clashes are sets of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Demand {
    /// A constraint, by its index in [`Layout::constraints`].
    Tie(usize),
    /// The unit cannot be at the site.
    Impossible(UnitIndex, SiteIndex),
    /// The site has no more of this resource than its capacity.
    Capacity(SiteIndex, Resource),
}
