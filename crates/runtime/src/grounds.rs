//! The grounds of an application file on this host: what each site could hold, or why it is closed.

use std::collections::BTreeMap;
use std::sync::Arc;

use linux::xdp::Point;
use machine::choice::Choice;
use machine::interface::{Interface, Xdp};
use machine::site::Direction;
use machine::{CoreId, Fault, Machine, Result, Site, SiteInMode, SiteKind, XdpMode};
use placement::layout::Load;

use crate::agent::Survey;
use crate::app_file::{Agent, AppFile, Sites};
use crate::ground::Ground;
use crate::site::agent::Connection;

/// One ground a site that may be used, `app` first: where it may not be used it is closed, but the application's own
/// thread is there. `usable` are the cores that this process may run on. Opens nothing and asks no other host.
pub fn survey(app: &AppFile, machine: &Machine, usable: &[CoreId]) -> Vec<Ground> {
    let chosen = match &app.sites {
        Sites::Named(chosen) => chosen.clone(),
        Sites::All => {
            // A second thread of a core takes from the first, and is used only where it is named.
            let choice = Choice::among(&machine.topology, usable.iter().copied());
            let cores = choice.for_polling(machine.network_node()).into_iter().map(Site::Core);
            let agents = app.agents.keys().map(|host| Site::Agent(host.clone()));
            let all = std::iter::once(Site::App).chain(cores).chain(agents);
            all.map(SiteInMode::from).collect()
        }
    };
    let mut grounds = vec![Ground { cores: Some(usable.to_vec()), ..Ground::of(Site::App) }];
    if !chosen.iter().any(|chosen| chosen.site == Site::App) {
        grounds[0].closed = Some("the application file does not name app among its sites".to_owned());
    }
    for SiteInMode { site, mode } in chosen.into_iter().filter(|chosen| chosen.site != Site::App) {
        let closed = match (&site, mode) {
            (Site::Core(core), _) => core_closed(*core, usable),
            (Site::Xdp(interface), mode) => hook_closed(interface, mode.unwrap_or(XdpMode::Native), machine),
            (Site::Tc(interface, _), _) => no_program_at(interface, machine),
            (Site::App | Site::Agent(_), _) => None,
        };
        let usual = Ground::of(site);
        let cores = match &usual.site {
            Site::Xdp(interface) | Site::Tc(interface, Direction::Ingress) => interrupted(interface, machine),
            _ => usual.cores.clone(),
        };
        let slots = mode.map_or(usual.slots, |mode| Point::Xdp(mode).most());
        grounds.push(Ground { mode: mode.or(usual.mode), slots, closed, cores, ..usual });
    }
    for ground in &mut grounds {
        limit(app, ground);
    }
    grounds
}

/// Applies the application file's capacities of the site.
fn limit(app: &AppFile, ground: &mut Ground) {
    let Some(capacity) = app.capacities.get(&ground.site) else { return };
    ground.capacity = capacity.load.map_or(ground.capacity, Load);
    ground.memory = capacity.memory.unwrap_or(ground.memory);
    ground.slots = capacity.offcodes.unwrap_or(ground.slots);
}

/// Asks the agents among the grounds what they offer, all at once; one that does not answer is closed, with the reason.
/// Where all sites may be used, the other cores of each agent come after it.
pub fn ask(app: &AppFile, grounds: &mut Vec<Ground>) {
    let mut hosts: Vec<String> = grounds.iter().filter_map(|ground| Some(ground.site.agent()?.0.to_owned())).collect();
    hosts.dedup();
    let answers: Vec<(String, Result<Survey>)> = std::thread::scope(|scope| {
        let asked: Vec<_> = hosts
            .into_iter()
            .map(|host| {
                let name = host.clone();
                (host, scope.spawn(move || agent(&app.agents, &name)?.survey()))
            })
            .collect();
        let lost = |_| Err(Fault::new("agent", "the thread that asked it panicked", "report this"));
        asked.into_iter().map(|(host, thread)| (host, thread.join().unwrap_or_else(lost))).collect()
    });
    for (host, answer) in answers {
        let survey = match answer {
            Ok(survey) => survey,
            Err(fault) => {
                let theirs = grounds.iter_mut().filter(|ground| ground.site.agent().is_some_and(|(of, _)| of == host));
                theirs.for_each(|ground| ground.closed = Some(format!("{}: {}", fault.subject(), fault.cause())));
                continue;
            }
        };
        if app.sites == Sites::All {
            let more = survey.cores().skip(1).map(|part| Ground::of(Site::Agent(format!("{host}/{part}"))));
            grounds.extend(more);
        }
        let whole = grounds.iter().any(|ground| ground.site == Site::Agent(host.clone()));
        for ground in grounds.iter_mut() {
            let Some((of, part)) = ground.site.agent() else { continue };
            if of != host {
                continue;
            }
            let number = survey.number(part, ground.mode);
            ground.closed = match &number {
                Err(fault) => Some(format!("{}; {}", fault.cause(), fault.next())),
                Ok(0) if part.is_some() && whole => Some(format!("it is agent:{host}, which may be used already")),
                Ok(_) => None,
            };
            let offcodes = usize::try_from(survey.offcodes).unwrap_or(usize::MAX);
            ground.buffers = ground.buffers.min(survey.buffers);
            (ground.memory, ground.slots) = match ground.site.kind() {
                SiteKind::Xdp => (survey.maps, ground.slots.min(offcodes)),
                _ => (survey.memory, offcodes),
            };
            if let Some(share) = survey.cpu_share
                && ground.site.kind() != SiteKind::Xdp
            {
                ground.capacity = Load(f64::from(share) / 100.0);
            }
            ground.environment =
                number.ok().and_then(|number| survey.services.get(number)).cloned().unwrap_or_default();
            ground.native = Some(survey.native.clone());
            limit(app, ground);
        }
    }
}

/// The connection to an agent of the application file.
pub(crate) fn agent(agents: &BTreeMap<String, Agent>, name: &str) -> Result<Arc<Connection>> {
    let agent = agents.get(name).ok_or_else(|| {
        Fault::new(format!("agent:{name}"), "the file does not say its address", format!("add [agents.{name}] to it"))
    })?;
    Connection::open(name, &agent.address, agent.keys.as_deref())
}

/// Cores that run the driver's hook, where its interrupts tell.
fn interrupted(name: &str, machine: &Machine) -> Option<Vec<CoreId>> {
    let interface = machine.interfaces.iter().find(|interface| interface.name == name)?;
    let cores = interface.irqs.iter().map(|irq| Some(irq.cores.as_ref()?.iter())).collect::<Option<Vec<_>>>()?;
    (!cores.is_empty()).then(|| cores.into_iter().flatten().collect())
}

fn core_closed(core: CoreId, usable: &[CoreId]) -> Option<String> {
    let listed = || usable.iter().map(|core| core.0.to_string()).collect::<Vec<_>>().join(", ");
    (!usable.contains(&core)).then(|| format!("this process may not use {core}; it may use {}", listed()))
}

/// Why no program may be at the driver hook of an interface of this host in this mode, as far as that is known without
/// trying.
pub fn hook_closed(name: &str, mode: XdpMode, machine: &Machine) -> Option<String> {
    let interface = machine.interfaces.iter().find(|interface| interface.name == name);
    no_program_at(name, machine).or_else(|| not_offered(interface?, mode))
}

/// Why no program may be at any hook of an interface.
fn no_program_at(name: &str, machine: &Machine) -> Option<String> {
    if let Some(why) = &machine.interfaces_hidden {
        return Some(why.clone());
    }
    if !machine.interfaces.iter().any(|interface| interface.name == name) {
        let known: Vec<_> = machine.interfaces.iter().map(|interface| interface.name.as_str()).collect();
        return Some(format!("this host has no interface {name}; it has {}", known.join(", ")));
    }
    let why = "not permitted: loading and attaching a program needs CAP_BPF and CAP_NET_ADMIN, or root";
    (!machine.privileges.may_attach_bpf()).then(|| why.to_owned())
}

/// Why the driver does not offer the mode, as far as that is known without trying.
fn not_offered(interface: &Interface, mode: XdpMode) -> Option<String> {
    let driver = interface.driver.as_deref().unwrap_or("unknown");
    match (mode, &interface.xdp) {
        (XdpMode::Native, Xdp::Generic { reason }) => Some(format!("no native mode at {}: {reason}", interface.name)),
        // The only driver in the kernel that passes programs to its NIC.
        (XdpMode::Hardware, _) if driver != "nfp" => {
            Some(format!("no hardware mode at {}: driver {driver} does not pass programs to its NIC", interface.name))
        }
        _ => None,
    }
}
