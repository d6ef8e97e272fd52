//! The layout of a closure over sites: which offcode could be where at which cost, and for each place that is impossible
//! the reason.

use machine::costs::{Cost, Item};
use machine::{Bytes, Costs, Result, Site, SiteKind, XdpMode};
use offcode::manifest::Constraint;
use offcode::{Guid, Manifest};
use placement::layout::{Candidate, Crossing, Layout, Load, Place, SiteIndex, Tie, Unit, UnitIndex};

use crate::closure::Closure;

/// Messages a second where a manifest does not say.
pub const UNKNOWN_RATE: u64 = 1000;

/// Whether there is code of an offcode for a kind of site.
pub type HasCode<'a> = &'a dyn Fn(&Manifest, SiteKind) -> Result<()>;

/// What one site offers. Known without opening it, so that a plan can be made for sites that are not up.
#[derive(Debug, Clone, PartialEq)]
pub struct Ground {
    pub site: Site,
    /// The driver mode, at `xdp` only.
    pub mode: Option<XdpMode>,
    pub capacity: Load,
    pub memory: Bytes,
    pub slots: usize,
    /// Interfaces of the site's runtime beyond the basic ones.
    pub environment: Vec<Guid>,
    /// Why nothing can be there now: no such core, not permitted.
    pub closed: Option<String>,
}

impl Ground {
    /// A site with the usual capacities of its kind.
    pub fn of(site: Site) -> Ground {
        let (mode, slots) = match site.kind() {
            SiteKind::Xdp => (Some(XdpMode::Native), 1),
            _ => (None, 1024),
        };
        let environment = Vec::new();
        Ground { site, mode, capacity: Load(1.0), memory: Bytes(1 << 30), slots, environment, closed: None }
    }

    /// Why `manifest` cannot be here, where it cannot.
    fn refuses(&self, manifest: &Manifest, has_code: HasCode) -> Option<String> {
        let kind = self.site.kind();
        if let Some(why) = &self.closed {
            return Some(why.clone());
        }
        let Some(target) = manifest.hardware.iter().find(|target| target.site == kind) else {
            return Some(format!("its manifest names no target of kind {kind}"));
        };
        if let Some(mode) = self.mode {
            let asked = if target.modes.is_empty() { &[XdpMode::Native][..] } else { &target.modes };
            if !asked.contains(&mode) {
                return Some(format!("it wants the mode {asked:?}, and the site is in mode {mode:?}").to_lowercase());
            }
        }
        if target.memory.0 > self.memory.0 {
            return Some(format!("it takes {} of memory, and the site has {}", target.memory, self.memory));
        }
        if let Some(missing) = manifest.software.environment.iter().find(|guid| !self.environment.contains(guid)) {
            return Some(format!("it needs interface {missing} of the site's runtime, which does not offer it"));
        }
        has_code(manifest, kind).err().map(|fault| fault.cause().to_string())
    }
}

/// What the application adds to what the manifests say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// The user's own choices: member and ground.
    pub pins: Vec<(usize, usize)>,
    pub traffic: Vec<Traffic>,
}

/// Messages that travel on behalf of the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    pub from: End,
    pub to: End,
    /// A second; 0: unknown, taken as [`UNKNOWN_RATE`].
    pub rate: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Its own thread, which is at `app`.
    Application,
    /// By its place in the closure.
    Member(usize),
}

/// What the application is called among the units.
pub const APPLICATION: &str = "application";

/// Lays a closure out over grounds. Units are the members in their order; where there is traffic to or from the
/// application and a ground `app`, the application is one more, the last. Costs are taken at the middle of their intervals.
pub fn lay_out(closure: &Closure, grounds: &[Ground], has_code: HasCode, costs: &Costs, wishes: &Wishes) -> Layout {
    let members = &closure.members;
    let mut channels = Vec::new();
    let pin = |&(member, ground): &(usize, usize)| Tie::Pin(UnitIndex(member), SiteIndex(ground));
    let mut constraints: Vec<Tie> = wishes.pins.iter().map(pin).collect();
    let mut rates = vec![0.0; members.len()];
    let app = grounds.iter().position(|ground| ground.site == Site::App);
    let mut application = None;
    for traffic in &wishes.traffic {
        let rate = if traffic.rate == 0 { UNKNOWN_RATE } else { traffic.rate } as f64;
        let mut unit = |end| match end {
            End::Member(member) => {
                rates[member] += rate;
                Some(UnitIndex(member))
            }
            End::Application => {
                application = app;
                app.map(|_| UnitIndex(members.len()))
            }
        };
        if let (Some(from), Some(to)) = (unit(traffic.from), unit(traffic.to)) {
            channels.push(Crossing { from, to, rate });
        }
    }
    for (from, member) in members.iter().enumerate() {
        for (required, &to) in member.manifest.software.peers.iter().zip(&member.peers) {
            let rate = if required.rate == 0 { UNKNOWN_RATE } else { required.rate } as f64;
            rates[from] += rate;
            if from != to {
                rates[to] += rate;
                channels.push(Crossing { from: UnitIndex(from), to: UnitIndex(to), rate });
                match required.constraint {
                    Constraint::Link => {}
                    Constraint::Pull => constraints.push(Tie::Pull(UnitIndex(from), UnitIndex(to))),
                    Constraint::Gang => constraints.push(Tie::Gang(UnitIndex(from), UnitIndex(to))),
                }
            }
        }
    }
    let middle = |cost: Cost| cost.reading.value().expect("crossings and work have a model").middle;
    let unknown_work = middle(costs.get(&Item::Work));
    let units = members.iter().zip(rates).map(|(member, rate)| {
        let manifest = &member.manifest;
        let rate = if rate == 0.0 { UNKNOWN_RATE as f64 } else { rate };
        let memory = manifest.hardware.iter().map(|target| target.memory).max().unwrap_or(Bytes(0));
        let place = |ground: &Ground| match ground.refuses(manifest, has_code) {
            Some(why) => Place::Impossible(why),
            None => {
                let target = manifest.hardware.iter().find(|target| target.site == ground.site.kind());
                let ns = target.and_then(|t| t.work).map_or(unknown_work, |work| work.0 as f64);
                Place::Possible(Load(rate * ns * 1e-9))
            }
        };
        Unit {
            name: manifest.package.name.clone(),
            priority: member.priority,
            memory,
            places: grounds.iter().map(place).collect(),
        }
    });
    let application = application.map(|app| {
        constraints.push(Tie::Pin(UnitIndex(members.len()), SiteIndex(app)));
        let elsewhere = || Place::Impossible("the application's own thread is at app".to_owned());
        let place = |ground| if ground == app { Place::Possible(Load(0.0)) } else { elsewhere() };
        let places = (0..grounds.len()).map(place).collect();
        Unit { name: APPLICATION.to_owned(), priority: crate::closure::NEUTRAL, memory: Bytes(0), places }
    });
    let sites = grounds.iter().map(|ground| Candidate {
        site: ground.site.clone(),
        capacity: ground.capacity,
        memory: ground.memory,
        slots: ground.slots,
    });
    Layout {
        units: units.chain(application).collect(),
        sites: sites.collect(),
        channels,
        constraints,
        crossing_ns: grounds
            .iter()
            .map(|one| grounds.iter().map(|other| middle(costs.crossing(&one.site, &other.site))).collect())
            .collect(),
    }
}
