//! From an application file to a running application.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linux::contention::Excluded;
use linux::doorbell::Sleep;
use machine::{Costs, Fault, Machine, Result, Site, Source, XdpMode};
use offcode::depot::Depot;
use offcode::{Channel, Registry};
use placement::Effort;

use crate::app_file::{Agent, AppFile, NamedChannel, Party};
use crate::application::{Opened, Runtime};
use crate::catalogue::Catalogue;
use crate::channels::Pathway;
use crate::closure;
use crate::costs;
use crate::draft::{build, draft};
use crate::expectation::{self, Expectation};
use crate::ground::Ground;
use crate::grounds;
use crate::layout::Knowledge;
use crate::live::OffcodeId;
use crate::measured::Earlier;
use crate::objective::Objective;
use crate::site::SiteDriver;
use crate::site::agent::Connection;
use crate::site::app::AppSite;
use crate::site::core::{CoreSite, Protection};
use crate::site::residents::{Log, Residents};
use crate::site::xdp::XdpSite;
use crate::wanted::Wanted;

/// A running application.
pub struct Assembly {
    pub runtime: Runtime,
    /// The application's ends of the file's channels, by their names.
    pub channels: Vec<(String, Pathway)>,
    /// Measures taken to make room, a sentence each.
    pub notes: Vec<String>,
    /// Messages that offcodes sent to the application.
    pub arrived: u64,
    // These keep the application's thread off the dedicated cores.
    _beside: Vec<Excluded>,
}

/// An application whose offcodes have their places. Nothing of it runs yet.
pub struct Planned<'a> {
    file: &'a AppFile,
    catalogue: Catalogue,
    costs: Costs,
    objective: Objective,
    /// Its offcodes, each with a pin.
    wanted: Vec<Wanted>,
    /// The sites, those that the plan uses first.
    grounds: Vec<Ground>,
    used: usize,
    notes: Vec<String>,
    /// Expected figures of its offcodes at their places.
    pub expected: Vec<Expectation>,
}

/// Gives the offcodes of `file` their places, such that `objective` is kept small, by the costs of this machine and what
/// `earlier` runs measured. Those that are not in its depots come from `registry`.
///
/// # Errors
/// No plan satisfies the file.
pub fn plan<'a>(file: &'a AppFile, registry: Registry, objective: &Objective, earlier: Earlier) -> Result<Planned<'a>> {
    let depots = file.depots.iter().map(|folder| Depot::open(folder)).collect::<Result<Vec<_>>>()?;
    let catalogue = Catalogue::new(registry, depots)?;
    let usable = linux::affinity::allowed()?;
    let mut grounds = grounds::survey(file, &Machine::read(&Source::live())?, &usable);
    grounds::ask(file, &mut grounds);
    let (costs, uncertain) = costs::known()?;
    let mut wanted: Vec<Wanted> = file.offcodes.clone();
    let build = build(&catalogue);
    let know = Knowledge { costs: &costs, build: &build, earlier, objective };
    let drafted = draft(&catalogue, &grounds, &know, &wanted, &file.channels, &[])?;
    let plan = placement::solve(&drafted.laid.layout, &Effort::default())?;
    let expected = expectation::expect(&catalogue, &drafted, &grounds, &plan, &know)?;
    drop(build);
    let members = &drafted.closure.members;
    for (n, (member, ground)) in members.iter().zip(&plan.assignment).enumerate() {
        // Offcodes that the file does not name are required by others, and get their places in the same way.
        let package = &member.manifest.package;
        if n >= wanted.len() {
            wanted.push(Wanted::new(package.guid.to_string()).named(&*member.name));
        }
        let of = &mut wanted[n];
        of.pin = Some(grounds[ground.0].site.clone());
        of.version = package.semantic().map(|version| closure::versions(&format!("={version}"))).transpose()?;
        of.peers = member.requirements().map(|(of, to)| (of.name.clone(), members[to].name.clone())).collect();
    }
    let is_used = |n: usize| plan.assignment.iter().any(|ground| ground.0 == n);
    let (used, spare): (Vec<_>, Vec<_>) = grounds.into_iter().enumerate().partition(|(n, _)| is_used(*n));
    let count = used.len();
    let grounds = used.into_iter().chain(spare).map(|(_, ground)| ground).collect();
    let (objective, notes) = (objective.clone(), Vec::from_iter(uncertain));
    Ok(Planned { file, catalogue, costs, objective, wanted, grounds, used: count, notes, expected })
}

/// Starts what was planned, all or nothing. Only sites that the plan uses are opened: a dedicated core that polls for
/// nobody would only burn.
///
/// # Errors
/// A site cannot be opened; a step of the start failed and everything was rolled back.
pub fn start(planned: Planned, protection: Protection, log: Log) -> Result<Assembly> {
    let Planned { file, catalogue, costs, objective, wanted, grounds, used, mut notes, .. } = planned;
    let mut opening = Opening {
        grounds,
        agents: file.agents.clone(),
        connections: BTreeMap::new(),
        protection,
        origin: Instant::now(),
        log: log.clone(),
    };
    let mut sites: Vec<Box<dyn SiteDriver>> = Vec::new();
    let mut beside = Vec::new();
    for n in 0..used {
        let site = opening.grounds[n].site.clone();
        let (driver, excluded) = opening.open(&site, &mut notes)?;
        beside.extend(excluded);
        sites.push(driver);
    }
    let mut runtime = Runtime::new(catalogue, sites, log)?;
    runtime.set_costs(costs);
    let closed = opening.grounds[used..].iter().filter(|ground| ground.closed.is_none());
    let closed = closed.map(|ground| ground.site.clone()).collect();
    let opener = move |site: &Site| {
        if let Some(why) =
            opening.grounds.iter().find(|ground| ground.site == *site).and_then(|ground| ground.closed.as_ref())
        {
            return Err(Fault::new(site.to_string(), why.clone(), "name another site"));
        }
        let mut notes = Vec::new();
        let (driver, beside) = opening.open(site, &mut notes)?;
        Ok(Opened { driver, beside, notes })
    };
    runtime.set_opener(Box::new(opener), closed);
    runtime.set_objective(objective);
    runtime.create_offcodes(&wanted)?;
    let mut channels = Vec::new();
    for channel in &file.channels {
        let outer = |fault: Fault| fault.within(format!("channel '{}'", channel.name));
        channels.extend(connect(&mut runtime, channel).map_err(outer)?.map(|pathway| (channel.name.clone(), pathway)));
    }
    Ok(Assembly { runtime, channels, notes, arrived: 0, _beside: beside })
}

/// Everything needed to open a site of the file.
struct Opening {
    grounds: Vec<Ground>,
    agents: BTreeMap<String, Agent>,
    connections: BTreeMap<String, Arc<Connection>>,
    protection: Protection,
    origin: Instant,
    log: Log,
}

impl Opening {
    fn open(&mut self, site: &Site, notes: &mut Vec<String>) -> Result<(Box<dyn SiteDriver>, Option<Excluded>)> {
        let Some(ground) = self.grounds.iter().find(|ground| ground.site == *site) else {
            let known: Vec<_> = self.grounds.iter().map(|ground| ground.site.to_string()).collect();
            let cause = format!("the application file offers no such site; it offers {}", known.join(", "));
            return Err(Fault::new(site.to_string(), cause, "name one of these, or add it to the file's sites"));
        };
        let (origin, log) = (self.origin, self.log.clone());
        Ok(match site {
            Site::App => (Box::new(AppSite::new(Residents::new(Site::App, origin, log))), None),
            Site::Core(core) => {
                let (site, excluded) = CoreSite::protected(*core, self.protection, origin, log)?;
                notes.extend(site.placed().notes.iter().cloned());
                if self.protection != Protection::Nothing {
                    notes.push(format!("{core} is protected by {}", site.protection()));
                }
                (Box::new(site), excluded)
            }
            Site::Xdp(interface) => (Box::new(XdpSite::open(interface, ground.mode.unwrap_or(XdpMode::Native))?), None),
            Site::Tc(interface, direction) => (Box::new(XdpSite::open(interface, *direction)?), None),
            Site::Agent(name) => {
                // Several sites of one agent are reached by one connection.
                let (host, part) = site.agent().unwrap_or((name, None));
                let connection = match self.connections.get(host) {
                    Some(connection) => connection.clone(),
                    None => {
                        self.connections.entry(host.to_owned()).or_insert(grounds::agent(&self.agents, host)?).clone()
                    }
                };
                let opened = match site.interface() {
                    Some(interface) => connection.hook(interface, ground.mode.unwrap_or(XdpMode::Native)),
                    None => connection.site(part),
                };
                (Box::new(opened?), None)
            }
        })
    }
}

impl Assembly {
    /// Takes what offcodes send to the application on the file's channels, counts it and lets it go.
    pub fn drain(&mut self) -> Result<()> {
        for (_, pathway) in &mut self.channels {
            while pathway.poll()? && pathway.read_with(&mut |_| {})? {
                self.arrived += 1;
            }
        }
        Ok(())
    }

    /// Before the application's thread sleeps; as [`Runtime::arm`].
    pub fn arm(&mut self, sleep: &mut Sleep, turn: Duration) -> bool {
        self.runtime.arm(sleep, turn) && self.channels.iter_mut().all(|(_, pathway)| pathway.arm(sleep))
    }

    /// Calls, messages and packets that its offcodes were given in total.
    pub fn uses(&mut self) -> u64 {
        self.runtime.uses()
    }
}

fn found(runtime: &Runtime, party: &Party) -> Result<OffcodeId> {
    let Party::Offcode(name) = party else {
        return Err(Fault::new("the application", "it is at both ends", "attach an offcode"));
    };
    runtime.named(name)
}

/// Makes a channel of the file. Returns the application's end, where it has one.
fn connect(runtime: &mut Runtime, channel: &NamedChannel) -> Result<Option<Pathway>> {
    match &channel.from {
        Party::Application => {
            let mut pathway = runtime.create_channel(channel.specification)?;
            for to in &channel.to {
                let offcode = found(runtime, to)?;
                runtime.attach(&mut pathway, offcode, &channel.name)?;
            }
            Ok(Some(pathway))
        }
        from => {
            let from = found(runtime, from)?;
            let others = channel.to.iter().map(|to| found(runtime, to)).collect::<Result<Vec<_>>>()?;
            match others.as_slice() {
                [one] => runtime.join((from, &channel.name), (*one, &channel.name), channel.specification)?,
                several => runtime.fan_out((from, &channel.name), several, channel.specification)?,
            }
            Ok(None)
        }
    }
}
