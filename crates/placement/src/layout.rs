//! What is to be placed, where it could go, and what ties it together.

use machine::{Bytes, Site};
use serde::{Deserialize, Serialize};

/// An offcode's (or a rank's) place in [`Layout::units`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnitIndex(pub usize);

/// A site's place in [`Layout::sites`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SiteIndex(pub usize);

/// Core time, as the share of one second of one core: 1.0 keeps a core busy.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Load(pub f64);

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    pub units: Vec<Unit>,
    pub sites: Vec<Candidate>,
    pub channels: Vec<Crossing>,
    pub constraints: Vec<Tie>,
    /// `crossing[a][b]`: core time of one message from site a to site b, in nanoseconds, both ends together.
    pub crossing_ns: Vec<Vec<f64>>,
}

/// What is placed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Unit {
    pub name: String,
    /// Weight of its costs; 100 is neutral, 0 to 1000. Own or inherited.
    pub priority: u32,
    pub memory: Bytes,
    /// One entry a site.
    pub places: Vec<Place>,
}

/// Whether and at which cost a unit can be at one site.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Place {
    Possible(Load),
    /// Why not, a sentence for the user: 'its manifest names no body for xdp'.
    Impossible(String),
}

/// A site and what it holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    pub site: Site,
    pub capacity: Load,
    pub memory: Bytes,
    /// At most so many units.
    pub slots: usize,
}

/// Traffic between two units.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Crossing {
    pub from: UnitIndex,
    pub to: UnitIndex,
    /// Messages a second.
    pub rate: f64,
}

/// A constraint between two units. Link is the absence of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tie {
    /// The same site.
    Pull(UnitIndex, UnitIndex),
    /// Both at a site other than `app`.
    Gang(UnitIndex, UnitIndex),
    /// The user's own: exactly there.
    Pin(UnitIndex, SiteIndex),
}

/// What a site holds only so much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    Load,
    Memory,
    Slots,
}

impl Resource {
    pub const ALL: [Resource; 3] = [Resource::Load, Resource::Memory, Resource::Slots];
}

/// One thing that a layout demands: what can be broken, and what a clash is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Demand {
    /// The place in [`Layout::constraints`].
    Tie(usize),
    /// The unit cannot be at the site.
    Impossible(UnitIndex, SiteIndex),
    /// The site holds no more.
    Capacity(SiteIndex, Resource),
}
