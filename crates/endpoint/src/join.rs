//! Endpoints that find their peers by name.

use machine::{Fault, PeerIndex, Result, Site};

use crate::driver::{Buffer, Driver};
use crate::endpoint::Endpoint;
use crate::name::Name;
use crate::paths::Paths;
use crate::report::{PortReport, Report};
use crate::settings::Settings;
use crate::settle::Placed;

impl<B: Buffer> Endpoint<Paths, B> {
    /// Opens an endpoint and its ways to others; peers are added by name while it is used.
    pub fn join(settings: &Settings) -> Result<Self> {
        let site = &settings.placement;
        let placed = Placed { asked: site.clone(), ran: site.clone(), yields: false, notes: Vec::new() };
        match site {
            Site::App => Ok(Endpoint::over(Driver::admitting(Paths::open(settings)?, Paths::admit), placed)),
            _ => Err(Fault::new(
                format!("placement {site}"),
                "an endpoint that finds its peers by name runs at app or core:N",
                "choose app or core:N",
            )),
        }
    }

    /// What other endpoints need to reach this one.
    pub fn name(&self) -> Name {
        *self.paths().name()
    }

    /// Makes the endpoint of that name a peer; the same name again gives the same index. Nothing is sent before the first
    /// message.
    pub fn insert(&mut self, name: &Name) -> Result<PeerIndex> {
        let driver = self.driver_mut();
        let peer = driver.port_mut().insert(name);
        driver.admit();
        Ok(peer)
    }

    pub fn report(&mut self) -> Result<Report> {
        let counters = self.counters()?;
        let placed = self.placed().clone();
        let paths = self.paths();
        let mut notes = placed.notes;
        if paths.unreadable_peers() > 0 {
            notes.push(format!(
                "the kernel does not let this process read the memory of {} peers on this host (CMA): their large messages \
                 come in packets; relax kernel.yama.ptrace_scope for single copies",
                paths.unreadable_peers()
            ));
        }
        notes.extend(paths.network().wire().notes());
        if let Some(injected) = paths.network().injected() {
            notes.push(format!(
                "faults were made on the way out: {} lost, {} doubled, {} reordered",
                injected.lost, injected.duplicated, injected.reordered
            ));
        }
        let ports = vec![
            PortReport { port: "shm".into(), carried: paths.over_shm() },
            PortReport { port: paths.network().asked().to_string(), carried: paths.over_network() },
        ];
        Ok(Report::of(placed.asked.to_string(), placed.ran.to_string(), &counters, ports, notes))
    }
}
