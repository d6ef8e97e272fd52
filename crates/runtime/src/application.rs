//! The runtime as an application sees it: it creates offcodes, calls them, makes channels to them, and is told where
//! each of them works.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use attach::control::Running;
use linux::contention::Excluded;
use linux::doorbell::Sleep;
use linux::xdp::SharedWords;
use machine::{Costs, Fault, Result, Site, SiteInMode, SiteKind};
use offcode::channel::Content;
use offcode::{Activity, Call, Channel, Guid, Specification};

use crate::catalogue::Catalogue;
use crate::channels::Pathway;
use crate::gang::{self, Bridged, Seated};
use crate::instance;
use crate::live::{Live, OffcodeId};
use crate::objective::Objective;
use crate::possible::{self, Carriage, End, Facts, Origin, Side, Why};
use crate::site::residents::Log;
use crate::site::{Deployment, Evidence, Names, SiteDriver};
use crate::switchboard::Switchboard;
use crate::trace::Watch;

/// Time limit of a call out of band unless the caller states another.
pub const CALL_LIMIT: Duration = Duration::from_secs(5);
/// The name of the application where it makes channels.
const APPLICATION: &str = "the application";
/// Time between two looks for offcodes that nobody uses any more.
const OBSOLETE_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A site that an offcode is to move to.
pub struct Opened {
    pub driver: Box<dyn SiteDriver>,
    /// Keeps other threads off the site's core as long as the site is open.
    pub beside: Option<Excluded>,
    /// Lines for the log once the offcode is there.
    pub notes: Vec<String>,
}

/// Opens a site that an offcode is to move to.
pub type Opener = Box<dyn FnMut(&Site) -> Result<Opened> + Send>;

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
    pub(crate) objective: Objective,
    opener: Option<Opener>,
    /// Sites that the opener can open.
    closed: Vec<Site>,
    /// Numbers of the sites that are gone.
    lost: Vec<usize>,
    /// Exclusions held for the sites that were opened, by site number.
    beside: Vec<(usize, Excluded)>,
    /// Words that offcodes of this process share.
    pub(crate) names: Names,
    pub(crate) watched: HashMap<OffcodeId, Watch>,
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
            objective: Objective::default(),
            opener: None,
            closed: Vec::new(),
            lost: Vec::new(),
            beside: Vec::new(),
            names: Names::default(),
            watched: HashMap::new(),
        })
    }

    /// Sets the costs of crossings here. Without them a model is used.
    pub fn set_costs(&mut self, costs: Costs) {
        self.costs = costs;
    }

    /// Sets the objective for offcodes that are created without a pin.
    pub fn set_objective(&mut self, objective: Objective) {
        self.objective = objective;
    }

    /// Sets how to open sites for offcodes that move there, and which sites can be opened.
    pub fn set_opener(&mut self, opener: Opener, closed: Vec<Site>) {
        self.opener = Some(opener);
        self.closed = closed;
    }

    /// Sites where an offcode could be moved, those that are open first.
    pub(crate) fn offered(&self) -> Vec<Site> {
        let mut sites: Vec<Site> = self.sites().cloned().collect();
        let more: Vec<Site> = self.closed.iter().filter(|site| !sites.contains(site)).cloned().collect();
        sites.extend(more);
        sites
    }

    /// The number of a site, and notes if it was opened for this.
    pub(crate) fn site_or_open(&mut self, site: &Site) -> Result<(usize, Vec<String>)> {
        if let Some(at) = self.sites.iter().position(|driver| driver.site() == site) {
            return Ok((at, Vec::new()));
        }
        let Some(opener) = &mut self.opener else {
            let known: Vec<_> = self.sites.iter().map(|driver| driver.site().to_string()).collect();
            let cause = format!("this runtime has no such site; it has {}", known.join(", "));
            return Err(Fault::new(site.to_string(), cause, "name one of these"));
        };
        let Opened { driver, beside, notes } = opener(site)?;
        let at = self.sites.len();
        self.beside.extend(beside.map(|beside| (at, beside)));
        self.sites.push(driver);
        Ok((at, notes))
    }

    /// # Errors
    /// The driver hook is open here in another mode.
    pub(crate) fn check_mode(&self, wanted: &SiteInMode) -> Result<()> {
        let open = self.sites.iter().find(|driver| *driver.site() == wanted.site).and_then(|open| open.ground().mode);
        match open.zip(wanted.mode).filter(|(open, wanted)| open != wanted) {
            Some((open, _)) => {
                let cause = format!("this driver hook runs in mode {open}");
                Err(Fault::new(wanted.to_string(), cause, format!("name it as {}:{open}", wanted.site)))
            }
            None => Ok(()),
        }
    }

    /// Closes the sites from number `first` on, unless an offcode is at one of them.
    pub(crate) fn close_from(&mut self, first: usize) {
        if self.live.iter().flatten().all(|live| live.seated.site < first) {
            self.sites.truncate(first);
            self.beside.retain(|(at, _)| *at < first);
            self.lost.retain(|at| *at < first);
        }
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

    pub(crate) fn live_mut(&mut self, id: OffcodeId) -> Option<&mut Live> {
        self.live.get_mut(id.0).and_then(Option::as_mut)
    }

    pub(crate) fn enlist(&mut self, deployment: Deployment, seated: Seated) -> Result<OffcodeId> {
        let Deployment { manifest, attributes, name, .. } = deployment;
        let kind = self.sites[seated.site].site().kind();
        let facts = self.catalogue.facts(&manifest, kind).map_err(|why| why.fault(format!("offcode {name}")))?;
        self.live.push(Some(Live {
            name,
            peers: Vec::new(),
            manifest,
            seated,
            attributes,
            facts,
            ends: Vec::new(),
            bridges: Vec::new(),
            before: 0,
            others: HashMap::new(),
            lost_in_moves: HashMap::new(),
            used: (0, Instant::now()),
        }));
        Ok(OffcodeId(self.live.len() - 1))
    }

    /// Records which instances meet the peers of a new one.
    pub(crate) fn meet(&mut self, offcode: OffcodeId, peers: Vec<Option<OffcodeId>>) {
        if let Some(live) = self.live_mut(offcode) {
            live.peers = peers;
        }
    }

    pub(crate) fn enlist_bridges(&mut self, bridged: Bridged) {
        for (party, bridge) in bridged {
            let live = self.live.iter_mut().flatten().find(|live| live.seated.party == party);
            live.into_iter().for_each(|live| live.bridges.push(bridge));
        }
    }

    pub(crate) fn note(&mut self, offcode: OffcodeId, end: End) {
        if let Some(live) = self.live_mut(offcode) {
            live.ends.push(end);
        }
    }

    /// Checks that the offcode can have one more end of a channel where it is; returns its place and the end.
    fn can_have(
        &self,
        offcode: OffcodeId,
        name: &str,
        (side, attached): (Side, usize),
        specification: Specification,
    ) -> Result<(Seated, End)> {
        let live = self.live(offcode)?;
        let ground = self.sites[live.seated.site].ground();
        let end = End { name: name.into(), specification, side, attached, origin: Origin::Program };
        let all: Vec<End> = live.ends.iter().cloned().chain([end.clone()]).collect();
        let refused = |why: Why| why.fault(format!("offcode {} at {}", live.name, ground.site));
        possible::ends(&ground, &live.facts, &all).map_err(refused)?;
        Ok((live.seated, end))
    }

    /// The running instance of this name; of a package name or GUID the only one.
    pub fn find(&self, wanted: &str) -> Option<OffcodeId> {
        self.named(wanted).ok()
    }

    /// The running instance that [`Runtime::find`] finds, or the reason why there is none.
    ///
    /// # Errors
    /// No such instance runs, or the name fits several.
    pub fn named(&self, wanted: &str) -> Result<OffcodeId> {
        let all = self.running().filter_map(|id| Some((id, self.live(id).ok()?)));
        let found = instance::meant(wanted, all.map(|(id, live)| (id, live.name.as_str(), &live.manifest.package)))?;
        found.ok_or_else(|| {
            Fault::new(format!("offcode {wanted}"), "it does not run here", "see `plimsoll ps` for what does")
        })
    }

    /// The entries of a map or of a variable of an offcode's object.
    pub fn map(&mut self, offcode: OffcodeId, name: &str) -> Result<linux::xdp::Dump> {
        let seated = self.live(offcode)?.seated;
        self.sites[seated.site].map(seated.slot, name)
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
                // The application learns of a lost site in `turn`.
                if let Err(fault) = site.turn()
                    && site.lost().is_none()
                {
                    return Err(fault);
                }
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
        let outer = |fault: Fault| fault.within(format!("channel '{name}'"));
        if channel.is_taken() {
            let next = "create it as multicast, or create another one";
            return Err(outer(Fault::new("its other end", "it is unicast and an offcode is attached to it", next)));
        }
        let (seated, end) = self.can_have(offcode, name, (Side::Attached, 1), *channel.specification())?;
        let site = &mut self.sites[seated.site];
        let shared = Carriage::between(SiteKind::App, site.site().kind()) == Carriage::Memory;
        let mut bridged = Bridged::new();
        if shared && channel.specification().cast == offcode::Cast::Multicast {
            let reader = channel.reader().map_err(outer)?;
            site.adopt(seated.slot, name, Box::new(reader)).map_err(outer)?;
        } else {
            // To a reader elsewhere a multicast channel is one more channel with two ends.
            let specification = Specification { cast: offcode::Cast::Unicast, ..*channel.specification() };
            let mut near = site.connect(seated.slot, name, specification).map_err(outer)?;
            if seated.bridged {
                let (end, bridge) = self.switchboard.bridge_anew(name, near).map_err(outer)?;
                bridged.push((seated.party, bridge));
                near = end;
            }
            channel.take(near);
        }
        self.note(offcode, end);
        self.joined(offcode, name, APPLICATION);
        self.enlist_bridges(bridged);
        Ok(())
    }

    /// Joins two running offcodes by a channel; each gives its own name to it.
    pub fn join(
        &mut self,
        (from, our_name): (OffcodeId, &str),
        (to, their_name): (OffcodeId, &str),
        specification: Specification,
    ) -> Result<()> {
        let (creator, ours) = self.can_have(from, our_name, (Side::Creator, 1), specification)?;
        let (attached, theirs) = self.can_have(to, their_name, (Side::Attached, 1), specification)?;
        let both = ((creator, our_name), (attached, their_name));
        let bridged = gang::join(&mut self.sites, &self.switchboard, both.0, both.1, specification)?;
        self.enlist_bridges(bridged);
        self.note(from, ours);
        self.note(to, theirs);
        let names = [from, to].map(|id| self.live(id).map(|live| live.name.clone()));
        if let [Ok(creators), Ok(attacheds)] = names {
            self.joined(from, our_name, &attacheds);
            self.joined(to, their_name, &creators);
        }
        Ok(())
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
        let (seated, end) = self.can_have(from, name, (Side::Creator, to.len()), specification)?;
        let mut pathway = self.create_channel(specification)?;
        for &reader in to {
            self.attach(&mut pathway, reader, name)?;
        }
        self.sites[seated.site].adopt(seated.slot, name, Box::new(pathway))?;
        self.note(from, end);
        let names = |id: &OffcodeId| Ok(self.live(*id)?.name.clone());
        let (writer, readers) = (names(&from)?, to.iter().map(names).collect::<Result<Vec<_>>>()?);
        self.joined(from, name, &readers.join(", "));
        to.iter().for_each(|reader| self.joined(*reader, name, &writer));
        Ok(())
    }

    /// Registers a dispatch handler, called by [`Runtime::turn`] with every message that has arrived on the channel.
    pub fn dispatch(&mut self, channel: Pathway, handler: impl FnMut(&[u8], &mut dyn Channel) + Send + 'static) {
        self.handled.push((channel, Box::new(handler)));
    }

    /// Gives a running offcode an endpoint that was made elsewhere, such as for another process. Where its site shares no
    /// memory with this process, the runtime hands on what comes from either end.
    pub fn adopt(&mut self, offcode: OffcodeId, name: &str, end: Box<dyn Channel>) -> Result<()> {
        let specification = *end.specification();
        let live = self.live(offcode)?;
        if matches!(live.facts, Facts::Bpf(_)) && specification.content == Content::Calls {
            // A program of the hook carries calls out, for any number of callers.
            let seated = live.seated;
            let subject = || format!("offcode {}", live.name);
            possible::called(&live.facts, "another process", Origin::Program).map_err(|why| why.fault(subject()))?;
            let theirs = self.sites[seated.site].connect(seated.slot, "", specification)?;
            self.switchboard.relay(end, theirs, None);
            return Ok(());
        }
        let (seated, noted) = self.can_have(offcode, name, (Side::Attached, 1), specification)?;
        let site = &mut self.sites[seated.site];
        match Carriage::between(SiteKind::App, site.site().kind()) {
            Carriage::Memory => drop(site.adopt(seated.slot, name, end)?),
            _ => {
                let theirs = site.connect(seated.slot, name, specification)?;
                self.switchboard.relay(end, theirs, Some((seated.party, name.into())));
            }
        }
        self.note(offcode, noted);
        self.joined(offcode, name, "another process");
        Ok(())
    }

    /// Frees the name of a channel whose other process has left.
    pub fn free(&mut self, offcode: OffcodeId, name: &str) {
        if let Some(live) = self.live_mut(offcode) {
            live.ends.retain(|end| end.name != name);
        }
    }

    /// Checks that the offcode serves this interface.
    ///
    /// # Errors
    /// It has not: which it has.
    pub fn serves(&self, offcode: OffcodeId, interface: Guid) -> Result<()> {
        let Live { name, manifest, .. } = self.live(offcode)?;
        let package = &manifest.package;
        if package.interfaces.iter().any(|one| one.guid == interface) {
            return Ok(());
        }
        let has: Vec<_> = package.interfaces.iter().map(|one| format!("{} ({})", one.name, one.guid)).collect();
        let has = if has.is_empty() { "none".into() } else { has.join(", ") };
        let cause = format!("it does not serve interface {interface}; it has {has}");
        Err(Fault::new(format!("offcode {name}"), cause, "build against the interface that it has"))
    }

    /// Words that an offcode shares, or a shared array of its object at a driver hook, as memory that the application works
    /// with in place.
    pub fn shared(&self, offcode: OffcodeId, words: &str) -> Result<SharedWords> {
        let seated = self.live(offcode)?.seated;
        self.sites[seated.site].shared(seated.slot, words)
    }

    pub fn attribute(&self, offcode: OffcodeId, name: &str) -> Result<Option<&str>> {
        Ok(self.live(offcode)?.attributes.get(name))
    }

    /// Sets an attribute, and returns its value before.
    ///
    /// # Errors
    /// The offcode or its site does not take the value; it is as it was.
    pub fn set_attribute(&mut self, offcode: OffcodeId, name: &str, value: &str) -> Result<Option<String>> {
        let live = self.live(offcode)?;
        let (seated, before) = (live.seated, live.attributes.get(name).map(str::to_owned));
        let mut attributes = live.attributes.clone();
        let outer = format!("offcode {}", live.name);
        attributes.set(name, value).map_err(|fault| fault.within(&*outer))?;
        let set = self.sites[seated.site].set_attribute(seated.slot, name, value);
        set.map_err(|fault| fault.within(outer))?;
        if let Some(live) = self.live_mut(offcode) {
            live.attributes = attributes;
        }
        Ok(before)
    }

    /// Polls the offcodes at `app`, runs dispatch handlers, and removes what has become obsolete.
    pub fn turn(&mut self) -> Result<Activity> {
        let mut activity = self.turn_sites()?;
        for (channel, handler) in &mut self.handled {
            let mut message = Vec::new();
            while channel.read_with(&mut |arrived| message = arrived.to_vec())? {
                handler(&message, channel);
                activity = Activity::Worked;
            }
        }
        if self.looked.elapsed() > OBSOLETE_POLL_INTERVAL {
            self.looked = Instant::now();
            self.remove_obsolete()?;
        }
        Ok(activity)
    }

    /// Before the application's thread sleeps: has what [`Runtime::turn`] would find end the sleep, which lasts `turn` at
    /// most where offcodes at `app` have turns of their own. `false`: there is something already.
    pub fn arm(&mut self, sleep: &mut Sleep, turn: Duration) -> bool {
        let Runtime { sites, handled, lost, live, .. } = self;
        let mut there = sites.iter_mut().enumerate().filter(|(n, _)| !lost.contains(n));
        if !there.all(|(_, site)| site.arm(sleep, turn)) || !handled.iter_mut().all(|(channel, _)| channel.arm(sleep)) {
            return false;
        }
        // Use is polled, as nobody signals it: several times within each limit.
        let limits = live.iter().flatten().filter_map(Live::obsolete_after);
        limits.for_each(|limit| sleep.at_most((limit / 4).max(OBSOLETE_POLL_INTERVAL)));
        true
    }

    fn turn_sites(&mut self) -> Result<Activity> {
        let mut activity = Activity::Idle;
        for n in 0..self.sites.len() {
            match (self.sites[n].turn(), self.sites[n].lost()) {
                (Ok(turned), _) => activity = if turned == Activity::Worked { turned } else { activity },
                (Err(_), Some(why)) => {
                    if !self.lost.contains(&n) {
                        self.lost.push(n);
                        self.site_lost(n, &why);
                    }
                }
                (Err(fault), None) => return Err(fault),
            }
        }
        Ok(activity)
    }

    /// Counts as a use of the offcode, which is not obsolete then.
    pub(crate) fn touch(&mut self, offcode: OffcodeId) {
        if let Some(live) = self.live_mut(offcode) {
            live.used.1 = Instant::now();
        }
    }

    /// Stops an offcode and takes it out. Others that call it are refused from now on.
    pub fn stop(&mut self, offcode: OffcodeId) -> Result<()> {
        let Some(live) = self.live.get_mut(offcode.0).and_then(Option::take) else { return Ok(()) };
        self.switchboard.remove(live.seated.party);
        for bridge in live.bridges {
            self.switchboard.take_back(bridge);
        }
        let name = &live.name;
        self.sites[live.seated.site].remove(live.seated.slot).map_err(|fault| fault.within(format!("offcode {name}")))
    }

    /// Calls, messages and packets that the offcodes were given in total, without sites that do not count them.
    pub fn uses(&mut self) -> u64 {
        let Runtime { live, sites, .. } = self;
        let of = |live: &Live| Some(sites[live.seated.site].evidence(live.seated.slot).ok()?.uses + live.before);
        live.iter().flatten().filter_map(of).sum()
    }

    /// Every running offcode with its site, its evidence, and the traffic of its channels.
    pub fn status(&mut self) -> Vec<Running> {
        let mut lines = Vec::new();
        for at in 0..self.live.len() {
            let channels = self.carried(OffcodeId(at)).map_err(|fault| fault.to_string());
            let Some(live) = &self.live[at] else { continue };
            let site = &mut self.sites[live.seated.site];
            lines.push(Running {
                instance: live.name.clone(),
                channels,
                offcode: live.manifest.package.name.clone(),
                version: live.manifest.package.version.clone(),
                site: site.site().clone(),
                attributes: live.attributes.iter().map(|(n, v)| (n.into(), v.into())).collect(),
                evidence: match site.evidence(live.seated.slot) {
                    Ok(evidence) => Ok(Evidence { uses: evidence.uses + live.before, ..evidence }),
                    Err(fault) => Err(fault.to_string()),
                },
            });
        }
        lines
    }

    /// The running offcodes, in the order in which they were created.
    pub(crate) fn running(&self) -> impl Iterator<Item = OffcodeId> {
        (0..self.live.len()).filter(|&n| self.live[n].is_some()).map(OffcodeId)
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
