//! From an application file to a running application.

use std::time::Instant;

use linux::contention::Excluded;
use machine::{Costs, Fault, Machine, Result, Site, Source, XdpMode};
use offcode::depot::Depot;
use offcode::{Channel, Registry};
use placement::Effort;

use crate::app_file::{AppFile, NamedChannel, Party};
use crate::application::{OffcodeId, Runtime};
use crate::catalogue::Catalogue;
use crate::channels::Pathway;
use crate::costs;
use crate::create::Wanted;
use crate::draft::draft;
use crate::expectation::{self, Expectation};
use crate::grounds;
use crate::layout::Ground;
use crate::site::SiteDriver;
use crate::site::agent::AgentSite;
use crate::site::app::AppSite;
use crate::site::core::{CoreSite, Protection};
use crate::site::residents::{Log, Residents};
use crate::site::xdp::XdpSite;

/// A running application.
pub struct Assembly {
    pub runtime: Runtime,
    /// The application's ends of the file's channels, by their names.
    pub channels: Vec<(String, Pathway)>,
    /// What was done to make room, a sentence each.
    pub notes: Vec<String>,
    /// Messages that offcodes sent to the application.
    pub arrived: u64,
    // The application's thread stays off the dedicated cores while these live.
    _beside: Vec<Excluded>,
}

/// An application whose offcodes have their places. Nothing of it runs yet.
pub struct Planned<'a> {
    file: &'a AppFile,
    catalogue: Catalogue,
    costs: Costs,
    /// With a pin each.
    wanted: Vec<Wanted>,
    /// Those that the plan uses.
    grounds: Vec<Ground>,
    notes: Vec<String>,
    /// What its offcodes are expected to take where they are.
    pub expected: Vec<Expectation>,
}

/// Gives the offcodes of `file` their places. Those that are not in its depots come from `registry`.
///
/// # Errors
/// No plan satisfies the file.
pub fn plan(file: &AppFile, registry: Registry) -> Result<Planned<'_>> {
    let depots = file.depots.iter().map(|folder| Depot::open(folder)).collect::<Result<Vec<_>>>()?;
    let catalogue = Catalogue::new(registry, depots)?;
    let usable = linux::affinity::allowed()?;
    let grounds = grounds::survey(file, &Machine::read(&Source::live())?, &usable);
    let (costs, uncertain) = costs::known()?;
    let mut wanted: Vec<Wanted> = file.wanted();
    let drafted = draft(&catalogue, &grounds, &costs, &wanted, &file.channels, &[])?;
    let plan = placement::solve(&drafted.layout, &Effort::default())?;
    let expected = expectation::expect(&catalogue, &drafted.closure, &drafted.layout, &grounds, &plan, &costs)?;
    for (member, ground) in drafted.closure.members.iter().zip(&plan.assignment) {
        // What the file does not name is pulled or ganged along, and gets its place in the same way.
        let package = &member.manifest.package;
        let named = wanted.iter_mut().find(|w| w.offcode == package.name || w.offcode == package.guid.to_string());
        let pin = Some(grounds[ground.0].site.clone());
        match named {
            Some(named) => named.pin = pin,
            None => wanted.push(Wanted { offcode: package.name.clone(), pin, ..Wanted::default() }),
        }
    }
    let used = |n: &usize| plan.assignment.iter().any(|ground| ground.0 == *n);
    let grounds = grounds.into_iter().enumerate().filter(|(n, _)| used(n)).map(|(_, ground)| ground).collect();
    Ok(Planned { file, catalogue, costs, wanted, grounds, notes: Vec::from_iter(uncertain), expected })
}

/// Starts what was planned, all or nothing. Only sites that the plan uses are opened: a dedicated core that polls for
/// nobody would only burn.
///
/// # Errors
/// A site cannot be opened; a step of the start failed and everything was rolled back.
pub fn start(planned: Planned, protection: Protection, log: Log) -> Result<Assembly> {
    let Planned { file, catalogue, costs, wanted, grounds, mut notes, .. } = planned;
    let origin = Instant::now();
    let mut sites: Vec<Box<dyn SiteDriver>> = Vec::new();
    let mut beside = Vec::new();
    for ground in &grounds {
        match &ground.site {
            Site::App => sites.push(Box::new(AppSite::new(Residents::new(Site::App, origin, log.clone())))),
            Site::Core(core) => {
                let (site, excluded) = CoreSite::protected(*core, protection, origin, log.clone())?;
                notes.extend(site.placed().notes.iter().cloned());
                if protection != Protection::Nothing {
                    notes.push(format!("{core} is protected by {}", site.protection()));
                }
                beside.extend(excluded);
                sites.push(Box::new(site));
            }
            Site::Xdp(interface) => {
                sites.push(Box::new(XdpSite::open(interface, ground.mode.unwrap_or(XdpMode::Native))?));
            }
            Site::Agent(name) => sites.push(Box::new(agent(file, name)?)),
        }
    }
    let mut runtime = Runtime::new(catalogue, sites, log)?;
    runtime.set_costs(costs);
    runtime.create_offcodes(&wanted)?;
    let mut channels = Vec::new();
    for channel in &file.channels {
        let outer = |fault: Fault| fault.within(format!("channel '{}'", channel.name));
        channels.extend(connect(&mut runtime, channel).map_err(outer)?.map(|pathway| (channel.name.clone(), pathway)));
    }
    Ok(Assembly { runtime, channels, notes, arrived: 0, _beside: beside })
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

    /// Calls, messages and packets that its offcodes were given, together.
    pub fn uses(&mut self) -> u64 {
        self.runtime.status().iter().filter_map(|line| line.evidence.as_ref().ok()).map(|e| e.uses).sum()
    }
}

fn agent(file: &AppFile, name: &str) -> Result<AgentSite> {
    let agent = file.agents.get(name).ok_or_else(|| {
        Fault::new(format!("agent:{name}"), "the file does not say its address", format!("add [agents.{name}] to it"))
    })?;
    AgentSite::join(name, &agent.address, agent.keys.as_deref())
}

fn found(runtime: &Runtime, party: &Party) -> Result<OffcodeId> {
    let Party::Offcode(name) = party else {
        return Err(Fault::new("the application", "it is at both ends", "attach an offcode"));
    };
    runtime.find(name).ok_or_else(|| {
        Fault::new(format!("offcode {name}"), "it is not among those that were created", "create it in the file too")
    })
}

/// The application's end, where it has one.
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
