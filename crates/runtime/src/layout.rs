//! The layout of a closure over sites: which offcode could be where at which cost, and for each place that is impossible
//! the reason.

use machine::costs::{Cost, Interval, Item};
use machine::{BodyKind, Bytes, Costs, Result, Site, SiteKind, XdpMode};
use offcode::manifest::{Constraint, Target};
use offcode::{Guid, Manifest};
use placement::layout::{Candidate, Crossing, Layout, Load, Place, SiteIndex, Tie, Unit, UnitIndex};

use crate::closure::Closure;

/// Messages a second where a manifest does not say.
pub const UNKNOWN_RATE: u64 = 1000;

/// Which body of an offcode runs at a kind of site.
pub type BodyAt<'a> = &'a dyn Fn(&Manifest, SiteKind) -> Result<BodyKind>;

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

    /// The body of `manifest` that runs here, with its target; or why it cannot be here.
    fn takes<'a>(&self, manifest: &'a Manifest, body: BodyAt) -> Result<(&'a Target, BodyKind), String> {
        let kind = self.site.kind();
        if let Some(why) = &self.closed {
            return Err(why.clone());
        }
        let Some(target) = manifest.hardware.iter().find(|target| target.site == kind) else {
            return Err(format!("its manifest names no target of kind {kind}"));
        };
        if let Some(mode) = self.mode {
            let asked = if target.modes.is_empty() { &[XdpMode::Native][..] } else { &target.modes };
            if !asked.contains(&mode) {
                return Err(format!("it wants the mode {asked:?}, and the site is in mode {mode:?}").to_lowercase());
            }
        }
        if target.memory.0 > self.memory.0 {
            return Err(format!("it takes {} of memory, and the site has {}", target.memory, self.memory));
        }
        if let Some(missing) = manifest.software.environment.iter().find(|guid| !self.environment.contains(guid)) {
            return Err(format!("it needs interface {missing} of the site's runtime, which does not offer it"));
        }
        body(manifest, kind).map(|body| (target, body)).map_err(|fault| fault.cause().to_string())
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

/// Core time that an offcode takes for a message where `body` runs at `target`, in nanoseconds: its work and the call of
/// the body, without the channel. At least: no work where the manifest states none, and of a sandbox the part of one call
/// that hands over as many messages as it takes.
pub fn handling(target: &Target, body: BodyKind, costs: &Costs) -> Interval {
    // An author's machine is another.
    let stated = |ns: f64| Interval { low: ns / AUTHORS, middle: ns, high: ns * AUTHORS };
    let assumed = || Interval { low: 0.0, ..known(costs.get(&Item::Work)) };
    let work = target.work.map_or_else(assumed, |work| stated(work.0 as f64));
    let entry = known(costs.get(&Item::Entry(body)));
    let together = if body == BodyKind::Wasm { f64::from(wasm::BATCH) } else { 1.0 };
    work.plus(Interval { low: entry.low / together, ..entry })
}

/// How many times as long, or as short, what a manifest states may take here.
const AUTHORS: f64 = 2.0;

fn known(cost: Cost) -> Interval {
    *cost.reading.value().expect("what layouts need has a model")
}

/// What the application is called among the units.
pub const APPLICATION: &str = "application";

/// Lays a closure out over grounds. Units are the members in their order; where there is traffic to or from the
/// application and a ground `app`, the application is one more, the last. Costs are taken at the middle of their intervals.
pub fn lay_out(closure: &Closure, grounds: &[Ground], body: BodyAt, costs: &Costs, wishes: &Wishes) -> Layout {
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
    let units = members.iter().zip(rates).map(|(member, rate)| {
        let manifest = &member.manifest;
        let rate = if rate == 0.0 { UNKNOWN_RATE as f64 } else { rate };
        let memory = manifest.hardware.iter().map(|target| target.memory).max().unwrap_or(Bytes(0));
        let place = |ground: &Ground| match ground.takes(manifest, body) {
            Err(why) => Place::Impossible(why),
            Ok((target, body)) => Place::Possible(Load(rate * handling(target, body, costs).middle * 1e-9)),
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
            .map(|one| grounds.iter().map(|other| known(costs.crossing(&one.site, &other.site)).middle).collect())
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use machine::costs::Row;
    use machine::{CoreId, Nanoseconds, Reading};
    use offcode::manifest::{Package, Software};
    use placement::Effort;

    use super::*;
    use crate::closure::resolve;

    /// An offcode with a wasm body for `app` and a native one for cores.
    fn closure() -> Closure {
        let target = |site| Target { site, modes: Vec::new(), memory: Bytes(0), work: Some(Nanoseconds(100)) };
        let package = Package {
            guid: Guid::named("both"),
            name: "test.both".into(),
            version: "1".into(),
            description: String::new(),
            interfaces: Vec::new(),
            bodies: Vec::new(),
            attributes: Vec::new(),
        };
        let hardware = [SiteKind::App, SiteKind::Core].map(target).to_vec();
        let manifest = Arc::new(Manifest { package, hardware, software: Software::default() });
        resolve(&[(manifest.clone(), None)], &[manifest]).unwrap()
    }

    /// A machine whose calls of bodies take so long, and whose channels take next to nothing.
    fn costs(native: f64, wasm: f64) -> Costs {
        let row = |(item, ns)| Row {
            item,
            size: None,
            cost: Reading::Measured(Interval::exactly(ns)),
            source: "a test".into(),
            taken: Nanoseconds(1),
        };
        let crossing = Item::crossing(SiteKind::App, SiteKind::Core);
        let entries = [(Item::Entry(BodyKind::Native), native), (Item::Entry(BodyKind::Wasm), wasm)];
        Costs::of(entries.into_iter().chain([(Item::Call, 1.0), (crossing, 2.0)]).map(row).collect())
    }

    #[test]
    fn what_a_call_of_its_body_costs_decides_where_an_offcode_goes() {
        let grounds = [Site::App, Site::Core(CoreId(1))].map(Ground::of);
        let body = |_: &Manifest, kind| Ok(if kind == SiteKind::App { BodyKind::Wasm } else { BodyKind::Native });
        let traffic = vec![Traffic { from: End::Application, to: End::Member(0), rate: 1_000_000 }];
        let wishes = Wishes { traffic, ..Wishes::default() };
        let placed = |costs: &Costs| {
            let layout = lay_out(&closure(), &grounds, &body, costs, &wishes);
            let plan = placement::solve(&layout, &Effort::default()).unwrap();
            (plan.assignment[0].0, plan.usage[plan.assignment[0].0].load)
        };
        let (site, load) = placed(&costs(20.0, 120.0));
        assert!(site == 1 && (load.0 - 0.12).abs() < 1e-9, "{site} {load:?}");
        let (site, load) = placed(&costs(120.0, 20.0));
        assert!(site == 0 && (load.0 - 0.12).abs() < 1e-9, "{site} {load:?}");
    }
}
