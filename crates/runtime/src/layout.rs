//! The layout of a closure over sites: which offcode could be where at which cost, and for each place that is impossible
//! the reason.

use machine::costs::{Interval, Item, how};
use machine::{BodyKind, Bytes, Costs, Site, SiteKind};
use offcode::Manifest;
use offcode::manifest::{Constraint, ProgramRole, Target};
use offcode::odf::Part;
use placement::layout::{Candidate, Crossing, Layout, Load, Place, SiteIndex, Tie, Unit, UnitIndex};

use crate::closure::{Closure, Member};
use crate::ground::Ground;
use crate::measured::{Build, Earlier, RATE, SourcedInterval, rate_on, work_at};
use crate::objective::{Objective, known};
use crate::possible::{self, BodyAt, Origin, Side, Why};

/// Messages a second where a manifest does not say.
pub const UNKNOWN_RATE: u64 = 1000;

/// The application's additions to the manifests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// The user's own choices of place: member and ground.
    pub pins: Vec<(usize, usize)>,
    pub traffic: Vec<Traffic>,
    /// Members that run already, with the ends of channels that they have: their requirements are joined.
    pub held: Vec<(usize, Vec<possible::End>)>,
    /// Ends of the application's channels, by member.
    pub ends: Vec<(usize, possible::End)>,
}

/// Messages that travel on behalf of the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    pub from: FlowEnd,
    pub to: FlowEnd,
    /// The channel's name at the receiver; `None`: calls out of band.
    pub channel: Option<String>,
    /// Messages a second; 0: unknown, taken as [`UNKNOWN_RATE`].
    pub rate: u64,
}

/// The sender or the receiver of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowEnd {
    /// The application's own thread, which is at `app`.
    Application,
    /// The member at this place of the closure.
    Member(usize),
}

/// Core time that an offcode takes for a message where `body` runs at `target`, in nanoseconds: its work and the call of
/// the body, without the channel. At least: no work where the manifest states none, and of a sandbox the part of one call
/// that hands over as many messages as it takes.
pub fn handling(target: &Target, body: BodyKind, costs: &Costs) -> Interval {
    // The author measured on another machine.
    let stated = |ns: f64| Interval { low: ns / AUTHORS, middle: ns, high: ns * AUTHORS };
    let assumed = || Interval { low: 0.0, ..known(costs.get(&Item::Work)) };
    let work = target.work.map_or_else(assumed, |work| stated(work.0 as f64));
    let entry = known(costs.get(&Item::Entry(body)));
    let together = if body == BodyKind::Wasm { f64::from(wasm::BATCH) } else { 1.0 };
    work.plus(Interval { low: entry.low / together, ..entry })
}

/// Factor by which the work that a manifest states may be longer or shorter here.
const AUTHORS: f64 = 2.0;

/// The name of the application among the units.
pub const APPLICATION: &str = "application";

/// Finds the source position of a demand, as far as that is known.
pub type PlaceOf<'a> = &'a dyn Fn(&Origin) -> Option<String>;

/// The data that prices rest on.
#[derive(Clone, Copy)]
pub struct Knowledge<'a> {
    pub costs: &'a Costs,
    /// The build of a member's body for a kind of site, or of all of them.
    pub build: &'a dyn Fn(&Member, Option<SiteKind>) -> Option<Build>,
    pub earlier: Earlier<'a>,
    pub objective: &'a Objective,
}

impl<'a> Knowledge<'a> {
    /// Knowledge of the costs alone.
    pub fn of(costs: &'a Costs) -> Knowledge<'a> {
        Knowledge { costs, build: &|_, _| None, earlier: &crate::measured::nothing, objective: &Objective::HostCpu }
    }

    /// What an offcode takes for a message at a ground: as it was measured there, or with the same body at another site of
    /// this host, or else as its manifest states it, with what a call of the body takes.
    fn work(&self, member: &Member, grounds: &[Ground], at: usize, target: &Target, body: BodyKind) -> SourcedInterval {
        let site = &grounds[at].site;
        let told = (self.build)(member, Some(site.kind())).and_then(|build| {
            let here = (self.earlier)(&build, &work_at(site))
                .map(|told| SourcedInterval { how: format!("measured: {}", told.how), ..told });
            here.or_else(|| {
                let mut others = grounds.iter().map(|ground| &ground.site).filter(|other| other.kind().maps_memory());
                let same = site.kind().maps_memory();
                let found = others.find_map(|other| Some((other, (self.earlier)(&build, &work_at(other))?)));
                let (other, told) = found.filter(|_| same)?;
                Some(SourcedInterval {
                    interval: told.interval.widened(2.0),
                    how: format!("measured at {other}: {}", told.how),
                })
            })
        });
        let told = told.unwrap_or_else(|| {
            let entry = how(&self.costs.get(&Item::Entry(body)).reading);
            let how = match target.work {
                Some(work) => format!("stated: its manifest says {work}, with a call of its {body} body, {entry}"),
                None => format!("modelled: its manifest states no work; with a call of its {body} body, {entry}"),
            };
            SourcedInterval { interval: handling(target, body, self.costs), how }
        });
        SourcedInterval { interval: self.costs.placed(&Item::Work, told.interval), ..told }
    }
}

/// A closure laid out over grounds, with the basis of its prices.
#[derive(Debug, Clone)]
pub struct Laid {
    pub layout: Layout,
    /// Core time for a message, by member and ground; `None`: it cannot be there.
    pub works: Vec<Vec<Option<SourcedInterval>>>,
    /// Messages a second, by channel of the layout.
    pub rates: Vec<SourcedInterval>,
    /// Stated traffic between members and the application.
    pub flows: Vec<Traffic>,
}

/// Lays a closure out over grounds. Units are the members in their order; where there is traffic to or from the
/// application and a ground `app`, the application is one more, the last. Costs are taken at the middle of their intervals.
///
/// `place` says where a demand is written, for the reason of a place that is impossible.
pub fn lay_out(
    closure: &Closure,
    grounds: &[Ground],
    (body, place): (BodyAt, PlaceOf),
    know: &Knowledge,
    wishes: &Wishes,
) -> Laid {
    let demands = demands(closure, wishes);
    let members = &closure.members;
    let pin = |&(member, ground): &(usize, usize)| Tie::Pin(UnitIndex(member), SiteIndex(ground));
    let mut constraints: Vec<Tie> = wishes.pins.iter().map(pin).collect();
    let mut flows = wishes.traffic.clone();
    for (from, member) in members.iter().enumerate() {
        for (required, to) in member.requirements() {
            let channel = required.channel.map(|_| peers_name(&member.name, &required.name));
            flows.push(Traffic { from: FlowEnd::Member(from), to: FlowEnd::Member(to), channel, rate: required.rate });
            match required.constraint {
                Constraint::Pull if from != to => constraints.push(Tie::Pull(UnitIndex(from), UnitIndex(to))),
                Constraint::Gang if from != to => constraints.push(Tie::Gang(UnitIndex(from), UnitIndex(to))),
                _ => {}
            }
        }
    }
    // Calls that nobody states are assumed only where an offcode would be given nothing.
    let reached = |flow: &Traffic| flow.channel.is_some() || flow.from != FlowEnd::Application || flow.rate > 0;
    let given: Vec<FlowEnd> = flows.iter().filter(|flow| reached(flow)).map(|flow| flow.to).collect();
    flows.retain(|flow| reached(flow) || !given.contains(&flow.to));
    let wholes: Vec<Option<Build>> = members.iter().map(|member| (know.build)(member, None)).collect();
    let told: Vec<SourcedInterval> = flows.iter().map(|flow| rate(flow, &flows, &wholes, know)).collect();
    let app = grounds.iter().position(|ground| ground.site == Site::App);
    let mut application = None;
    let (mut given, mut sent) = (vec![0.0; members.len()], vec![0.0; members.len()]);
    let (mut channels, mut rates) = (Vec::new(), Vec::new());
    for (flow, told) in flows.iter().zip(told) {
        let rate = told.interval.middle;
        if let FlowEnd::Member(from) = flow.from {
            sent[from] += rate;
        }
        if let FlowEnd::Member(to) = flow.to {
            given[to] += rate;
        }
        let mut unit = |end| match end {
            FlowEnd::Member(member) => Some(UnitIndex(member)),
            FlowEnd::Application => {
                application = app;
                app.map(|_| UnitIndex(members.len()))
            }
        };
        if let (Some(from), Some(to)) = (unit(flow.from), unit(flow.to))
            && from != to
        {
            channels.push(Crossing { from, to, rate });
            rates.push(told);
        }
    }
    let mut works = Vec::with_capacity(members.len());
    let mut units: Vec<Unit> = Vec::with_capacity(members.len() + 1);
    for (n, (member, demanded)) in members.iter().zip(demands).enumerate() {
        let manifest = &member.manifest;
        let earlier = wholes[n].as_ref().and_then(|build| (know.earlier)(build, RATE));
        // A source is given nothing: it works for what it sends.
        let stated = [given[n], sent[n], UNKNOWN_RATE as f64].into_iter().find(|rate| *rate > 0.0);
        let rate = earlier.map(|told| told.interval.middle).or(stated).unwrap_or_default();
        let memory = manifest.hardware.iter().map(|target| target.memory).max().unwrap_or(Bytes(0));
        let mut of_member = Vec::with_capacity(grounds.len());
        let can = |ground: usize| {
            let chosen = possible::body(&grounds[ground], manifest, body)?;
            demanded.met(&grounds[ground], &chosen.facts)?;
            let kind = chosen.facts.kind();
            let told = know.work(member, grounds, ground, chosen.target, kind);
            // A producer of live frames keeps its core busy as long as there are any to make.
            let burns = kind == BodyKind::Bpf && produces(manifest);
            Ok((Load(if burns { 1.0 } else { rate * told.interval.middle * 1e-9 }), told))
        };
        let mut places = Vec::with_capacity(grounds.len());
        for ground in 0..grounds.len() {
            let can: Result<_, Why> = can(ground);
            of_member.push(can.as_ref().ok().map(|(_, told)| told.clone()));
            places.push(match can {
                Ok((load, _)) => Place::Possible(load),
                Err(Why { sentence, at, .. }) => Place::Impossible(match at.as_ref().and_then(place) {
                    Some(place) => format!("{sentence} ({place})"),
                    None => sentence,
                }),
            });
        }
        works.push(of_member);
        units.push(Unit { name: member.name.clone(), priority: member.priority, memory, places });
    }
    if let Some(app) = application {
        constraints.push(Tie::Pin(UnitIndex(members.len()), SiteIndex(app)));
        let elsewhere = || Place::Impossible("the application's own thread is at app".to_owned());
        let place = |ground| if ground == app { Place::Possible(Load(0.0)) } else { elsewhere() };
        let places = (0..grounds.len()).map(place).collect();
        let name = APPLICATION.to_owned();
        units.push(Unit { name, priority: crate::closure::NEUTRAL, memory: Bytes(0), places });
    }
    let sites = grounds.iter().map(|ground| Candidate {
        site: ground.site.clone(),
        capacity: ground.capacity,
        memory: ground.memory,
        slots: ground.slots,
        price: 1.0,
        opening: 0.0,
    });
    let mut layout = Layout { units, sites: sites.collect(), channels, constraints, crossing_ns: Vec::new() };
    know.objective.price(&mut layout, grounds, know.costs);
    Laid { layout, works, rates, flows }
}

/// Messages a second of one flow: as earlier runs counted them, or as they are stated. Calls out of band are counted
/// together, and shared out as they are stated.
fn rate(flow: &Traffic, flows: &[Traffic], wholes: &[Option<Build>], know: &Knowledge) -> SourcedInterval {
    let stated = |flow: &Traffic| if flow.rate == 0 { UNKNOWN_RATE } else { flow.rate } as f64;
    let build = match flow.to {
        FlowEnd::Member(to) => wholes[to].as_ref(),
        FlowEnd::Application => None,
    };
    let counted = build.and_then(|build| (know.earlier)(build, &rate_on(flow.channel.as_deref().unwrap_or(""))));
    if let Some(told) = counted {
        let alike = flows.iter().filter(|other| (other.to, &other.channel) == (flow.to, &flow.channel));
        let share = stated(flow) / alike.map(stated).sum::<f64>();
        return SourcedInterval { interval: told.interval.times(share), how: format!("measured: {}", told.how) };
    }
    let how = if flow.rate == 0 { "assumed" } else { "stated" };
    SourcedInterval { interval: Interval::exactly(stated(flow)), how: how.to_owned() }
}

fn produces(manifest: &Manifest) -> bool {
    let programs = manifest.package.bodies.iter().filter_map(|body| body.program.as_ref());
    programs.into_iter().any(|program| program.role == ProgramRole::Producer)
}

/// The demands of channels on one member, wherever it is.
#[derive(Default)]
struct Demanded {
    ends: Vec<possible::End>,
    /// Callers out of band, with the source position of each.
    callers: Vec<(String, Origin)>,
}

impl Demanded {
    fn met(&self, ground: &Ground, facts: &possible::Facts) -> Result<(), Why> {
        possible::ends(ground, facts, &self.ends)?;
        self.callers.iter().try_for_each(|(by, origin)| possible::called(facts, by, origin.clone()))
    }
}

fn demands(closure: &Closure, wishes: &Wishes) -> Vec<Demanded> {
    let members = &closure.members;
    let mut all: Vec<Demanded> = members.iter().map(|_| Demanded::default()).collect();
    for (member, ends) in &wishes.held {
        all[*member].ends.clone_from(ends);
    }
    for (from, member) in members.iter().enumerate() {
        let is_held = wishes.held.iter().any(|(held, _)| *held == from);
        for (required, to) in member.requirements() {
            let origin = Origin::of(&member.manifest, Part::Peer(required.name.clone()));
            match required.channel {
                // The channels of a running member are among its ends.
                Some(_) if is_held => {}
                Some(specification) => {
                    let end =
                        |name, side| possible::End { name, specification, side, attached: 1, origin: origin.clone() };
                    all[from].ends.push(end(required.name.clone(), Side::Creator));
                    all[to].ends.push(end(peers_name(&member.name, &required.name), Side::Attached));
                }
                None => all[to].callers.push((member.name.clone(), origin)),
            }
        }
    }
    for (member, end) in &wishes.ends {
        all[*member].ends.push(end.clone());
    }
    all
}

/// The peer's name for the channel that an instance requires to it.
pub(crate) fn peers_name(from: &str, peer: &str) -> String {
    format!("{from}/{peer}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use machine::costs::Row;
    use machine::{CoreId, Nanoseconds, Reading};
    use offcode::Manifest;
    use offcode::manifest::{Package, Software};
    use placement::Effort;

    use super::*;
    use crate::closure::{Asked, resolve};
    use crate::possible::Facts;

    /// An offcode with a wasm body for `app` and a native one for cores.
    fn closure() -> Closure {
        let target = |site| Target { site, modes: Vec::new(), memory: Bytes(0), work: Some(Nanoseconds(100)) };
        let package = Package {
            guid: offcode::Guid::named("both"),
            name: "test.both".into(),
            version: "1".into(),
            description: String::new(),
            interfaces: Vec::new(),
            bodies: Vec::new(),
            attributes: Vec::new(),
            state: Default::default(),
        };
        let hardware = [SiteKind::App, SiteKind::Core].map(target).to_vec();
        let manifest = Arc::new(Manifest { package, hardware, software: Software::default() });
        let offcode = manifest.package.guid;
        let asked = Asked { offcode, instance: None, versions: None, peers: Vec::new(), priority: None };
        resolve(&[asked], &[], &[manifest]).unwrap()
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
        let body = |_: &Manifest, kind| Ok(if kind == SiteKind::App { Facts::Wasm(Bytes(0)) } else { Facts::Native });
        let traffic =
            vec![Traffic { from: FlowEnd::Application, to: FlowEnd::Member(0), channel: None, rate: 1_000_000 }];
        let wishes = Wishes { traffic, ..Wishes::default() };
        let placed = |costs: &Costs| {
            let know = Knowledge { objective: &Objective::Latency, ..Knowledge::of(costs) };
            let layout = lay_out(&closure(), &grounds, (&body, &|_| None), &know, &wishes).layout;
            let plan = placement::solve(&layout, &Effort::default()).unwrap();
            (plan.assignment[0].0, plan.usage[plan.assignment[0].0].load)
        };
        let (site, load) = placed(&costs(20.0, 120.0));
        assert!(site == 1 && (load.0 - 0.12).abs() < 1e-9, "{site} {load:?}");
        let (site, load) = placed(&costs(120.0, 20.0));
        assert!(site == 0 && (load.0 - 0.12).abs() < 1e-9, "{site} {load:?}");
    }
}
