//! The grounds of an application file on this host: what each site could hold, or why it is closed.

use machine::choice::Choice;
use machine::interface::{Interface, Xdp};
use machine::{CoreId, Machine, Site, XdpMode};
use placement::layout::Load;

use crate::app_file::{AppFile, Chosen, Sites};
use crate::layout::Ground;

/// One ground a site that may be used, `app` first: where it may not be used it is closed, but the application's own
/// thread is there. `usable` are the cores that this process may run on. Opens nothing and asks no other host.
pub fn survey(app: &AppFile, machine: &Machine, usable: &[CoreId]) -> Vec<Ground> {
    let chosen = match &app.sites {
        Sites::Named(chosen) => chosen.clone(),
        Sites::All => {
            // A second thread of a core takes from the first: it is a place for those who name it.
            let choice = Choice::among(&machine.topology, usable.iter().copied());
            let cores = choice.for_polling(machine.network_node()).into_iter().map(Site::Core);
            let agents = app.agents.keys().map(|host| Site::Agent(host.clone()));
            let all = std::iter::once(Site::App).chain(cores).chain(agents);
            all.map(|site| Chosen { site, mode: None }).collect()
        }
    };
    let mut grounds = vec![Ground::of(Site::App)];
    if !chosen.iter().any(|chosen| chosen.site == Site::App) {
        grounds[0].closed = Some("the application file does not name app among its sites".to_owned());
    }
    for Chosen { site, mode } in chosen.into_iter().filter(|chosen| chosen.site != Site::App) {
        let closed = match (&site, mode) {
            (Site::Core(core), _) => core_closed(*core, usable),
            (Site::Xdp(interface), mode) => hook_closed(interface, mode.unwrap_or(XdpMode::Native), machine),
            (Site::App | Site::Agent(_), _) => None,
        };
        grounds.push(Ground { mode: mode.or(Ground::of(site.clone()).mode), closed, ..Ground::of(site) });
    }
    for ground in &mut grounds {
        let Some(capacity) = app.capacities.get(&ground.site) else { continue };
        ground.capacity = capacity.load.map_or(ground.capacity, Load);
        ground.memory = capacity.memory.unwrap_or(ground.memory);
        ground.slots = capacity.offcodes.unwrap_or(ground.slots);
    }
    grounds
}

fn core_closed(core: CoreId, usable: &[CoreId]) -> Option<String> {
    let listed = || usable.iter().map(|core| core.0.to_string()).collect::<Vec<_>>().join(", ");
    (!usable.contains(&core)).then(|| format!("this process may not use {core}; it may use {}", listed()))
}

fn hook_closed(name: &str, mode: XdpMode, machine: &Machine) -> Option<String> {
    let Some(interface) = machine.interfaces.iter().find(|interface| interface.name == name) else {
        let known: Vec<_> = machine.interfaces.iter().map(|interface| interface.name.as_str()).collect();
        return Some(format!("this host has no interface {name}; it has {}", known.join(", ")));
    };
    if !machine.privileges.may_attach_bpf() {
        let why = "not permitted: loading and attaching a program needs CAP_BPF and CAP_NET_ADMIN, or root";
        return Some(why.to_owned());
    }
    not_offered(interface, mode)
}

/// Why the driver does not offer the mode, as far as that is known without trying.
fn not_offered(interface: &Interface, mode: XdpMode) -> Option<String> {
    let driver = interface.driver.as_deref().unwrap_or("unknown");
    match (mode, &interface.xdp) {
        (XdpMode::Native, Xdp::Generic { reason }) => Some(format!("no native mode at {}: {reason}", interface.name)),
        // The one driver in the kernel that passes programs to its NIC.
        (XdpMode::Hardware, _) if driver != "nfp" => {
            Some(format!("no hardware mode at {}: driver {driver} does not pass programs to its NIC", interface.name))
        }
        _ => None,
    }
}
