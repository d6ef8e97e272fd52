//! `create_offcode`: resolves what an offcode needs, chooses the places, and starts the group there
//! (HYDRA section 1.2.1).

use machine::{Fault, Result, Site};
use offcode::{Attributes, Manifest, OFFLOAD_PRIORITY};
use placement::layout::Layout;
use placement::{Effort, Plan};

use crate::application::{OffcodeId, Runtime};
use crate::closure::Closure;
use crate::draft::{Draft, Held, draft};
use crate::gang::{self, Member, Peer};
use crate::layout::{Ground, Knowledge, Laid, peers_name};
use crate::possible::{End, Origin, Side};
use crate::site::Deployment;

/// An offcode that an application asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Name or GUID.
    pub offcode: String,
    pub attributes: Vec<(String, String)>,
    /// The user's own choice of place.
    pub pin: Option<Site>,
    /// Calls a second by the application; 0: unknown.
    pub rate: u64,
}

impl Wanted {
    pub fn new(offcode: impl Into<String>) -> Wanted {
        Wanted { offcode: offcode.into(), ..Wanted::default() }
    }

    pub fn with(mut self, attribute: &str, value: impl ToString) -> Wanted {
        self.attributes.push((attribute.into(), value.to_string()));
        self
    }

    pub fn at(mut self, site: Site) -> Wanted {
        self.pin = Some(site);
        self
    }
}

/// What is to be created, where it could go and where it shall.
pub struct Decided {
    pub closure: Closure,
    pub layout: Layout,
    pub plan: Plan,
}

impl Runtime {
    /// Creates an offcode and all that it needs, together or not at all. One that runs already is not created again: a
    /// new one that needs it shares it where it is.
    ///
    /// # Errors
    /// Nothing meets a requirement; no layout satisfies the constraints; a step of the start failed and everything was
    /// rolled back.
    pub fn create_offcode(&mut self, wanted: &Wanted) -> Result<OffcodeId> {
        let created = self.create_offcodes(std::slice::from_ref(wanted))?;
        created.first().copied().ok_or_else(|| Fault::new(&*wanted.offcode, "it was not created", "report this"))
    }

    /// Creates several in one layout and one gang.
    pub fn create_offcodes(&mut self, wanted: &[Wanted]) -> Result<Vec<OffcodeId>> {
        let decided = self.decide(wanted)?;
        let running = self.running();
        let members = &decided.closure.members;
        // Members that do not run yet, in the order of the closure.
        let fresh: Vec<usize> =
            (0..members.len()).filter(|&m| !running.contains_key(&members[m].manifest.package.guid)).collect();
        let gang: Vec<Member> = fresh
            .iter()
            .map(|&m| {
                let member = &members[m];
                let site = decided.plan.assignment[m].0;
                let manifest = &member.manifest;
                let attributes = attributes_of(manifest, member.priority, wanted)?;
                let code = self.catalogue.code(manifest, self.sites[site].site().kind())?;
                let peers = member.peers.iter().map(|&peer| self.peer(&members[peer].manifest, &fresh, peer));
                let deployment =
                    Deployment { name: manifest.package.name.clone(), manifest: manifest.clone(), code, attributes };
                Ok(Member { deployment, site, priority: member.priority, peers: peers.collect::<Result<_>>()? })
            })
            .collect::<Result<_>>()?;
        let (seats, bridged) = gang::start(&gang, &mut self.sites, &self.switchboard)?;
        for (member, seat) in gang.into_iter().zip(seats) {
            self.enlist(member.deployment, seat)?;
        }
        self.enlist_bridges(bridged);
        let running = self.running();
        for &m in &fresh {
            let from = &members[m].manifest;
            for (required, &to) in from.software.peers.iter().zip(&members[m].peers) {
                let Some(specification) = required.channel else { continue };
                let theirs = peers_name(&from.package.name, &required.name);
                for (member, name, side) in [(m, required.name.clone(), Side::Creator), (to, theirs, Side::Attached)] {
                    if let Some(&id) = running.get(&members[member].manifest.package.guid) {
                        let other = if member == m { to } else { m };
                        self.joined(id, &name, &members[other].manifest.package.name);
                        self.note(id, End { name, specification, side, attached: 1, origin: Origin::Program });
                    }
                }
            }
        }
        wanted
            .iter()
            .map(|wanted| {
                let found = self.find(&self.catalogue.find(&wanted.offcode)?.package.name);
                let found = found.ok_or_else(|| Fault::new(&*wanted.offcode, "it was not created", "report this"))?;
                self.touch(found);
                Ok(found)
            })
            .collect()
    }

    fn peer(&self, manifest: &Manifest, fresh: &[usize], index: usize) -> Result<Peer> {
        if let Some(place) = fresh.iter().position(|&m| m == index) {
            return Ok(Peer::Member(place));
        }
        let running = self.running();
        let id = running.get(&manifest.package.guid);
        let id = id.ok_or_else(|| Fault::new(&*manifest.package.name, "it has just ended", "try again"))?;
        Ok(Peer::Running(self.live(*id)?.seated))
    }

    /// What layouts are priced by.
    pub(crate) fn knowledge(&self) -> Knowledge<'_> {
        Knowledge { objective: &self.objective, ..Knowledge::of(&self.costs) }
    }

    /// Where everything would go, without creating anything.
    pub fn decide(&self, wanted: &[Wanted]) -> Result<Decided> {
        let grounds: Vec<Ground> = self.sites.iter().map(|driver| driver.ground()).collect();
        let mut held = Vec::new();
        for (offcode, id) in self.running() {
            // What runs stays where it is.
            let live = self.live(id)?;
            held.push(Held { offcode, ground: live.seated.site, ends: live.ends.clone() });
        }
        let draft = draft(&self.catalogue, &grounds, &self.knowledge(), wanted, &[], &held)?;
        let Draft { closure, laid: Laid { layout, .. } } = draft;
        let plan = placement::solve(&layout, &Effort::default())?;
        Ok(Decided { closure, layout, plan })
    }
}

/// The manifest's attributes, over them the application's, and the priority in force.
fn attributes_of(manifest: &Manifest, priority: u32, wanted: &[Wanted]) -> Result<Attributes> {
    let package = &manifest.package;
    let mut attributes = Attributes::default();
    for (name, value) in &package.attributes {
        attributes.set(name, value)?;
    }
    let is = |w: &&Wanted| w.offcode == package.name || w.offcode == package.guid.to_string();
    for (name, value) in wanted.iter().filter(is).flat_map(|w| &w.attributes) {
        attributes.set(name, value)?;
    }
    attributes.set(OFFLOAD_PRIORITY, &priority.to_string())?;
    Ok(attributes)
}
