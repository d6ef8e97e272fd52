//! Endpoints that find their peers by name.

use linux::clock;
use machine::{Fault, PeerIndex, Result, Site};

use crate::driver::{Buffer, Driver};
use crate::endpoint::{Endpoint, Place};
use crate::name::Name;
use crate::node::{ByName, NodeClient};
use crate::paths::Paths;
use crate::report::{PortReport, Report};
use crate::semantics::Semantics;
use crate::settings::Settings;
use crate::settle::{self, Placed};
use crate::verbs::QueuePairs;

impl<B: Buffer> Endpoint<Paths, B> {
    /// Opens an endpoint and its ports; peers are added by name while it is used. At `app` the engine turns in
    /// the caller's own calls; at `core:N` in the node's engine process ([`crate::node`]), which is found or started.
    pub fn join(settings: &Settings) -> Result<Self> {
        let site = &settings.placement;
        if settings.semantics != Semantics::Matched && (*site != Site::App || !settings.dilation.is_none()) {
            return Err(Fault::new(
                format!("semantics {}", settings.semantics),
                "queue pairs run in the application's calls, at the speed they have",
                "choose placement app and no dilation, or semantics matched",
            ));
        }
        match site {
            Site::App => {
                let placed = Placed { asked: site.clone(), ran: site.clone(), yields: false, notes: Vec::new() };
                let paths = Paths::open(settings)?;
                if settings.semantics != Semantics::Matched {
                    let pairs = QueuePairs::admitting(paths, settings.semantics, Paths::admit)?;
                    return Ok(Endpoint::over_queue_pairs(pairs, placed));
                }
                let mut driver = Driver::admitting(paths, Paths::admit);
                driver.dilate(settings.dilation);
                Ok(Endpoint::over(driver, placed))
            }
            Site::Core(core) => {
                let (client, placed) = NodeClient::join(*core, settings, settings.program.as_deref())?;
                Ok(Endpoint::at_node(client, placed))
            }
            Site::Xdp(_) | Site::Tc(..) | Site::Agent(_) => Err(Fault::new(
                format!("placement {site}"),
                "the message engine runs at app or core:N; receive processing alone runs in a driver's hook",
                "choose app or core:N, and for receive processing network xdp:IFACE",
            )),
        }
    }

    /// What other endpoints need to reach this one.
    pub fn name(&mut self) -> Name {
        match self.place_mut() {
            Place::App(driver) | Place::Dilated(driver) => *driver.port().name(),
            Place::QueuePairs(pairs) => *pairs.end.adapter().port().name(),
            Place::Node(node) => node.name().expect("an endpoint that has joined"),
        }
    }

    /// Makes the endpoint of that name a peer; the same name again gives the same index. Nothing is sent before the first
    /// message.
    pub fn insert(&mut self, name: &Name) -> Result<PeerIndex> {
        let (peer, here) = match self.place_mut() {
            Place::App(driver) | Place::Dilated(driver) => {
                let peer = driver.port_mut().insert(name);
                driver.admit();
                (peer, driver.port().on_this_host())
            }
            Place::QueuePairs(pairs) => {
                let peer = pairs.end.port_mut().insert(name);
                pairs.admit();
                (peer, pairs.end.adapter().port().on_this_host())
            }
            Place::Node(node) => return node.insert(name),
        };
        if here > settle::cores() {
            self.crowd();
        }
        Ok(peer)
    }

    /// A peer that could not be reached, and why; each is told of once, before the first of its requests completes as
    /// [`Status::PeerDead`](engine::Status::PeerDead). Nothing is told of peers that were reached and have ended since.
    pub fn next_lost(&mut self) -> Option<(PeerIndex, Fault)> {
        match self.place_mut() {
            Place::App(driver) | Place::Dilated(driver) => driver.port_mut().next_lost(),
            Place::QueuePairs(pairs) => pairs.end.port_mut().next_lost(),
            Place::Node(node) => node.next_lost(),
        }
    }

    /// What was asked, what ran, and what carried the messages so far.
    pub fn report(&mut self) -> Result<Report> {
        let placed = self.placed().clone();
        match self.place_mut() {
            Place::App(driver) | Place::Dilated(driver) => {
                let mut report = Report::of(driver, &placed);
                describe(driver.port(), &mut report);
                Ok(report)
            }
            Place::QueuePairs(pairs) => {
                let mut report = pairs.report(&placed);
                describe(pairs.end.adapter().port(), &mut report);
                Ok(report)
            }
            Place::Node(node) => {
                let report = node.report()?;
                Ok(Report { notes: [placed.notes, report.notes].concat(), ..report })
            }
        }
    }
}

/// How an engine works for an endpoint with a name.
pub(crate) const BY_NAME: ByName<Paths> = ByName { insert: Paths::insert, next_lost: Paths::next_lost, describe };

/// What paths have to report.
fn describe(paths: &Paths, report: &mut Report) {
    let is_timed = report.dilated.is_some() || report.adapter.is_some();
    let notes = &mut report.notes;
    if is_timed && !clock::is_counted() {
        notes.push(clock::NOT_COUNTED.into());
    }
    if paths.unreadable_peers() > 0 {
        notes.push(format!(
            "the kernel does not let this process read the memory of {} peers on this host (CMA): their large messages come \
             in packets; relax kernel.yama.ptrace_scope for single copies",
            paths.unreadable_peers()
        ));
    }
    notes.extend(paths.setbacks());
    if paths.unseen_peers() > 0 {
        notes.push(format!(
            "{} peers on this host are in a PID namespace that this process does not see (another container): their large \
             messages come in packets; start the containers in one PID namespace for single copies",
            paths.unseen_peers()
        ));
    }
    notes.extend(paths.network().wire().notes());
    if let Some(injected) = paths.network().injected() {
        notes.push(format!(
            "faults were made on the way out: {} lost, {} duplicated, {} reordered",
            injected.lost, injected.duplicated, injected.reordered
        ));
    }
    report.ports = vec![
        PortReport { port: "shm".into(), carried: paths.over_shm() },
        PortReport { port: paths.network().asked().to_string(), carried: paths.over_network() },
    ];
}
