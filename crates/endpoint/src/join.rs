//! Endpoints that find their peers by name.

use linux::clock;
use machine::{Fault, PeerIndex, Result, Site};

use crate::dilated;
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
    /// Opens an endpoint and its ports; peers are added by name while it is used. At `app` the engine runs in the caller's own
    /// calls; at `core:N` in the node's engine process ([`crate::node`]), which is found or started.
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
                let place = if settings.semantics != Semantics::Matched {
                    let pairs = QueuePairs::admitting(paths, settings.semantics, Paths::admit)?;
                    Place::QueuePairs(Box::new(pairs))
                } else if settings.dilation.is_none() {
                    Place::app(Driver::admitting(paths, Paths::admit))
                } else {
                    Place::dilated(dilated::driver(paths, settings.dilation))
                };
                Ok(Endpoint::at(place, placed))
            }
            Site::Core(core) => {
                let (client, placed) = NodeClient::join(*core, settings, settings.program.as_deref())?;
                Ok(Endpoint::at(Place::Node(Box::new(client)), placed))
            }
            Site::Xdp(_) | Site::Tc(..) | Site::Agent(_) => Err(Fault::new(
                format!("placement {site}"),
                "the message engine runs at app or core:N; receive processing alone runs in a driver's hook",
                "choose app or core:N, and for receive processing network xdp:IFACE",
            )),
        }
    }

    /// The name by which other endpoints reach this one.
    pub fn name(&mut self) -> Name {
        match self.place_mut().port() {
            Ok(paths) => *paths.name(),
            Err(node) => node.name().expect("an endpoint that has joined"),
        }
    }

    /// Makes the endpoint of that name a peer; the same name again gives the same index. Nothing is sent before the first
    /// message.
    pub fn insert(&mut self, name: &Name) -> Result<PeerIndex> {
        let place = self.place_mut();
        let peer = match place.port() {
            Ok(paths) => paths.insert(name),
            Err(node) => return node.insert(name),
        };
        place.admit();
        if place.port().is_ok_and(|paths| paths.on_this_host() > settle::cores()) {
            self.crowd();
        }
        Ok(peer)
    }

    /// The next peer that could not be reached, and why. It is told once, before the first of its requests completes as
    /// [`Status::PeerDead`](engine::Status::PeerDead); peers that were reached and ended later are not told.
    pub fn next_lost(&mut self) -> Option<(PeerIndex, Fault)> {
        match self.place_mut().port() {
            Ok(paths) => paths.next_lost(),
            Err(node) => node.next_lost(),
        }
    }

    /// What was asked, what ran, and what has carried the messages so far.
    pub fn report(&mut self) -> Result<Report> {
        let placed = self.placed().clone();
        let place = self.place_mut();
        let mut report = match place {
            Place::App(driver) => Report::of(driver, &placed),
            Place::Dilated(dilated) => Report { dilated: dilated.0.port().counts(), ..Report::of(&dilated.0, &placed) },
            Place::QueuePairs(pairs) => pairs.report(&placed),
            Place::Node(node) => {
                let report = node.report()?;
                return Ok(Report { notes: [placed.notes, report.notes].concat(), ..report });
            }
        };
        if let Ok(paths) = place.port() {
            describe(paths, &mut report);
        }
        Ok(report)
    }
}

/// Calls of an engine whose port finds peers by name.
pub(crate) const BY_NAME: ByName<Paths> = ByName { insert: Paths::insert, next_lost: Paths::next_lost, describe };

/// Writes the paths' part of a report.
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
