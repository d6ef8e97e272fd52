//! The runtime as an application sees it: it creates offcodes, calls them, makes channels to them, and is told where
//! each of them works.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use machine::{Costs, Fault, Result, Site};
use offcode::{Activity, Attributes, Call, Channel, Manifest, OBSOLETE_TIME, Specification};
use serde::{Deserialize, Serialize};

use crate::catalogue::Catalogue;
use crate::channels::Pathway;
use crate::gang::{self, Seated};
use crate::site::residents::Log;
use crate::site::{Evidence, SiteDriver};
use crate::switchboard::Switchboard;

/// How long a call out of band may take unless the caller says otherwise.
pub const CALL_LIMIT: Duration = Duration::from_secs(5);
/// Between two looks for offcodes that nobody uses any more.
const LOOK_FOR_OBSOLETE: Duration = Duration::from_millis(5);

/// An offcode that this runtime created; never used again after it was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OffcodeId(pub(crate) usize);

/// A line of `plimsoll ps`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    pub offcode: String,
    pub version: String,
    pub site: Site,
    pub attributes: Vec<(String, String)>,
    /// Or why it could not be had.
    pub evidence: std::result::Result<Evidence, String>,
}

pub(crate) struct Live {
    pub manifest: Arc<Manifest>,
    pub seated: Seated,
    pub attributes: Attributes,
    /// Its use when last looked at, and since when it is unchanged.
    used: (u64, Instant),
}

type Handler = Box<dyn FnMut(&[u8], &mut dyn Channel) + Send>;

/// Carries out what an application asks for. Dropping it stops every offcode, newest first.
pub struct Runtime {
    pub(crate) catalogue: Catalogue,
    pub(crate) sites: Vec<Box<dyn SiteDriver>>,
    pub(crate) switchboard: Switchboard,
    pub(crate) live: Vec<Option<Live>>,
    handled: Vec<(Pathway, Handler)>,
    looked: Instant,
    pub(crate) log: Log,
    pub(crate) costs: Costs,
}

impl Runtime {
    /// A runtime over these sites, the first of which is usually `app`. Nothing is created yet.
    ///
    /// # Errors
    /// Two drivers of one site; no thread to be had.
    pub fn new(catalogue: Catalogue, sites: Vec<Box<dyn SiteDriver>>, log: Log) -> Result<Runtime> {
        for (n, driver) in sites.iter().enumerate() {
            if sites[..n].iter().any(|other| other.site() == driver.site()) {
                return Err(Fault::new(driver.site().to_string(), "it was given twice", "give each site once"));
            }
        }
        let switchboard = Switchboard::start(log.clone())?;
        let looked = Instant::now();
        Ok(Runtime {
            catalogue,
            sites,
            switchboard,
            live: Vec::new(),
            handled: Vec::new(),
            looked,
            log,
            costs: Costs::modelled(),
        })
    }

    /// What crossings cost here. Without it a model is used.
    pub fn set_costs(&mut self, costs: Costs) {
        self.costs = costs;
    }

    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    pub fn sites(&self) -> impl Iterator<Item = &Site> {
        self.sites.iter().map(|driver| driver.site())
    }

    pub(crate) fn live(&self, id: OffcodeId) -> Result<&Live> {
        self.live.get(id.0).and_then(Option::as_ref).ok_or_else(|| {
            Fault::new(format!("offcode {}", id.0), "it was stopped, or became obsolete", "create it again")
        })
    }

    pub(crate) fn enlist(&mut self, manifest: Arc<Manifest>, seated: Seated, attributes: Attributes) -> OffcodeId {
        self.live.push(Some(Live { manifest, seated, attributes, used: (0, Instant::now()) }));
        OffcodeId(self.live.len() - 1)
    }

    /// The running offcode of this name or GUID.
    pub fn find(&self, wanted: &str) -> Option<OffcodeId> {
        let guid = wanted.parse().ok();
        let is = |live: &Live| live.manifest.package.name == wanted || Some(live.manifest.package.guid) == guid;
        self.live.iter().position(|live| live.as_ref().is_some_and(is)).map(OffcodeId)
    }

    pub fn site_of(&self, offcode: OffcodeId) -> Result<&Site> {
        Ok(self.sites[self.live(offcode)?.seated.site].site())
    }

    /// Calls an offcode over its out-of-band channel and waits for the result, giving `app` its turns meanwhile.
    pub fn invoke<R>(&mut self, offcode: OffcodeId, call: &Call<R>) -> Result<R> {
        let party = self.live(offcode)?.seated.party;
        let Runtime { switchboard, sites, .. } = self;
        let result = switchboard.invoke(party, call.message()?, CALL_LIMIT, || {
            for site in sites.iter_mut() {
                site.turn()?;
            }
            Ok(())
        })?;
        call.result().read(Ok(&result))
    }

    /// Calls an offcode over its out-of-band channel without waiting.
    pub fn notify<R>(&mut self, offcode: OffcodeId, call: &Call<R>) -> Result<()> {
        let party = self.live(offcode)?.seated.party;
        self.switchboard.notify(party, call.message()?)
    }

    /// Step one of a specialized channel: its characteristics and the application's own endpoint.
    pub fn create_channel(&self, specification: Specification) -> Result<Pathway> {
        Pathway::create(specification)
    }

    /// Step two: constructs the endpoint at the offcode's site and tells the offcode, which knows the channel by `name`.
    pub fn attach(&mut self, channel: &mut Pathway, offcode: OffcodeId, name: &str) -> Result<()> {
        let seated = self.live(offcode)?.seated;
        let site = &mut self.sites[seated.site];
        let outer = |fault: Fault| fault.within(format!("channel '{name}'"));
        match channel.specification().cast {
            offcode::Cast::Unicast if channel.is_taken() => Err(Fault::new(
                format!("channel '{name}'"),
                "it is unicast and an offcode is attached to it",
                "create it as multicast, or create another one",
            )),
            offcode::Cast::Multicast if site.adopts() => {
                let reader = channel.reader().map_err(outer)?;
                site.adopt(seated.slot, name, Box::new(reader)).map(|_| ()).map_err(outer)
            }
            _ => {
                // To a reader elsewhere a multicast channel is one more way with two ends.
                let specification = Specification { cast: offcode::Cast::Unicast, ..*channel.specification() };
                let end = site.connect(seated.slot, name, specification).map_err(outer)?;
                channel.take(end);
                Ok(())
            }
        }
    }

    /// Joins two running offcodes by a channel that each knows under its own name for it.
    pub fn join(
        &mut self,
        (from, our_name): (OffcodeId, &str),
        (to, their_name): (OffcodeId, &str),
        specification: Specification,
    ) -> Result<()> {
        let (from, to) = (self.live(from)?.seated, self.live(to)?.seated);
        gang::join(&mut self.sites, &self.switchboard, (from, our_name), (to, their_name), specification)
    }

    /// A multicast channel from one running offcode to several, all of which know it under one name.
    ///
    /// # Errors
    /// The writer's site shares no memory with this process, so that one write cannot serve all.
    pub fn fan_out(
        &mut self,
        (from, name): (OffcodeId, &str),
        to: &[OffcodeId],
        specification: Specification,
    ) -> Result<()> {
        let seated = self.live(from)?.seated;
        if !self.sites[seated.site].adopts() {
            let site = self.sites[seated.site].site();
            return Err(Fault::new(
                format!("multicast channel '{name}' from {site}"),
                "this site shares no memory with this process",
                "create a unicast channel to each reader",
            ));
        }
        let mut pathway = self.create_channel(specification)?;
        for &reader in to {
            self.attach(&mut pathway, reader, name)?;
        }
        self.sites[seated.site].adopt(seated.slot, name, Box::new(pathway)).map(|_| ())
    }

    /// Registers a dispatch handler: in each turn it gets every message that has arrived on the channel.
    pub fn dispatch(&mut self, channel: Pathway, handler: impl FnMut(&[u8], &mut dyn Channel) + Send + 'static) {
        self.handled.push((channel, Box::new(handler)));
    }

    /// Gives a running offcode an endpoint that was made elsewhere, such as for another process.
    ///
    /// # Errors
    /// Its site does not share memory with this process.
    pub fn adopt(&mut self, offcode: OffcodeId, name: &str, end: Box<dyn Channel>) -> Result<()> {
        let seated = self.live(offcode)?.seated;
        let site = &mut self.sites[seated.site];
        if !site.adopts() {
            let subject = format!("channel '{name}' to {}", site.site());
            return Err(Fault::new(
                subject,
                "this site shares no memory with other processes",
                "attach to it from here",
            ));
        }
        site.adopt(seated.slot, name, end).map(|_| ())
    }

    pub fn attribute(&self, offcode: OffcodeId, name: &str) -> Result<Option<&str>> {
        Ok(self.live(offcode)?.attributes.get(name))
    }

    pub fn set_attribute(&mut self, offcode: OffcodeId, name: &str, value: &str) -> Result<()> {
        let seated = self.live(offcode)?.seated;
        if let Some(live) = self.live[offcode.0].as_mut() {
            live.attributes.set(name, value)?;
        }
        self.sites[seated.site].set_attribute(seated.slot, name, value)
    }

    /// Gives the offcodes at `app` their turn, runs dispatch handlers, and removes what has become obsolete.
    pub fn turn(&mut self) -> Result<Activity> {
        let mut activity = Activity::Idle;
        for site in &mut self.sites {
            if site.turn()? == Activity::Worked {
                activity = Activity::Worked;
            }
        }
        for (channel, handler) in &mut self.handled {
            let mut message = Vec::new();
            while channel.read_with(&mut |arrived| message = arrived.to_vec())? {
                handler(&message, channel);
                activity = Activity::Worked;
            }
        }
        if self.looked.elapsed() > LOOK_FOR_OBSOLETE {
            self.looked = Instant::now();
            self.remove_obsolete()?;
        }
        Ok(activity)
    }

    fn remove_obsolete(&mut self) -> Result<()> {
        for index in 0..self.live.len() {
            let Some(live) = &self.live[index] else { continue };
            let Some(limit) = live.attributes.get(OBSOLETE_TIME).and_then(|ms| ms.parse().ok()) else { continue };
            let evidence = self.sites[live.seated.site].evidence(live.seated.slot)?;
            let used = evidence.uses;
            let Some(live) = &mut self.live[index] else { continue };
            if used != live.used.0 {
                live.used = (used, Instant::now());
            } else if live.used.1.elapsed() > Duration::from_millis(limit) {
                (self.log)(&format!("{}: obsolete, unused for {limit} ms", live.manifest.package.name));
                self.stop(OffcodeId(index))?;
            }
        }
        Ok(())
    }

    /// An offcode was asked for again: it is not obsolete.
    pub(crate) fn touch(&mut self, offcode: OffcodeId) {
        if let Some(live) = self.live.get_mut(offcode.0).and_then(Option::as_mut) {
            live.used.1 = Instant::now();
        }
    }

    /// Stops an offcode and takes it out. Others that call it are refused from now on.
    pub fn stop(&mut self, offcode: OffcodeId) -> Result<()> {
        let Some(live) = self.live.get_mut(offcode.0).and_then(Option::take) else { return Ok(()) };
        self.switchboard.remove(live.seated.party);
        let name = &live.manifest.package.name;
        self.sites[live.seated.site].remove(live.seated.slot).map_err(|fault| fault.within(format!("offcode {name}")))
    }

    /// Every running offcode, its site, and what proves that it works there.
    pub fn status(&mut self) -> Vec<Running> {
        let mut lines = Vec::new();
        for live in self.live.iter().flatten() {
            let site = &mut self.sites[live.seated.site];
            lines.push(Running {
                offcode: live.manifest.package.name.clone(),
                version: live.manifest.package.version.clone(),
                site: site.site().clone(),
                attributes: live.attributes.iter().map(|(n, v)| (n.into(), v.into())).collect(),
                evidence: site.evidence(live.seated.slot).map_err(|fault| fault.to_string()),
            });
        }
        lines
    }

    /// The running offcodes, by GUID.
    pub(crate) fn running(&self) -> HashMap<offcode::Guid, OffcodeId> {
        let id = |(n, live): (usize, &Option<Live>)| live.as_ref().map(|l| (l.manifest.package.guid, OffcodeId(n)));
        self.live.iter().enumerate().filter_map(id).collect()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.handled.clear();
        for index in (0..self.live.len()).rev() {
            if let Err(fault) = self.stop(OffcodeId(index)) {
                (self.log)(&fault.to_string());
            }
        }
    }
}
