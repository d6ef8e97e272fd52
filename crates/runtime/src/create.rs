//! `create_offcode`: resolves what an offcode needs, chooses the places, and starts the group there
//! (HYDRA section 1.2.1).

use machine::{Fault, Result};
use offcode::{Attributes, OFFLOAD_PRIORITY};
use placement::layout::Layout;
use placement::{Effort, Plan};

use crate::application::Runtime;
use crate::closure::{self, Closure, Standing};
use crate::draft::{Draft, Held, draft};
use crate::gang::{self, Peer};
use crate::ground::Ground;
use crate::layout::{Knowledge, Laid, peers_name};
use crate::live::OffcodeId;
use crate::possible::{End, Origin, Side};
use crate::site::Deployment;
use crate::wanted::Wanted;

/// A decision: the offcodes to create, where they could go and where they shall.
pub struct Decided {
    pub closure: Closure,
    pub layout: Layout,
    pub plan: Plan,
}

impl Runtime {
    /// Creates an offcode and all that it requires, together or not at all. One that runs already is not created again:
    /// a new one that requires it shares it where it is.
    ///
    /// # Errors
    /// Nothing meets a requirement; no layout satisfies the constraints; a step of the start failed and everything was
    /// rolled back.
    pub fn create_offcode(&mut self, wanted: &Wanted) -> Result<OffcodeId> {
        let created = self.create_offcodes(std::slice::from_ref(wanted))?;
        created.first().copied().ok_or_else(|| Fault::new(&*wanted.offcode, "it was not created", "report this"))
    }

    /// Creates several offcodes in one layout and one gang.
    pub fn create_offcodes(&mut self, wanted: &[Wanted]) -> Result<Vec<OffcodeId>> {
        let (ids, held): (Vec<OffcodeId>, Vec<Held>) = self.held()?.into_iter().unzip();
        let decided = self.decide_beside(wanted, &held)?;
        let members = &decided.closure.members;
        // Members that do not run yet, in the order of the closure.
        let fresh: Vec<usize> = (0..members.len()).filter(|&m| members[m].standing.is_none()).collect();
        let gang: Vec<gang::Member> = fresh
            .iter()
            .map(|&m| {
                let member = &members[m];
                let site = decided.plan.assignment[m].0;
                let manifest = &member.manifest;
                let attributes = attributes_of(member, wanted.get(m))?;
                let code = self.catalogue.code(manifest, self.sites[site].site().kind())?;
                let peer = |peer: Option<usize>| {
                    let gone = || Fault::new(&*member.name, "a peer of it has ended", "try again");
                    let peer = peer.ok_or_else(gone)?;
                    Ok(match members[peer].standing {
                        Some(at) => Peer::Running(self.live(ids[at])?.seated),
                        None => Peer::Member(fresh.iter().position(|&m| m == peer).ok_or_else(gone)?),
                    })
                };
                let peers = member.peers.iter().map(|&of| peer(of)).collect::<Result<_>>()?;
                let memory = self.names.granted(manifest, self.sites[site].site().kind());
                let (name, manifest) = (member.name.clone(), manifest.clone());
                let deployment = Deployment { name, manifest, code, attributes, memory };
                let places = wanted.get(m).map(|wanted| wanted.places.clone()).unwrap_or_default();
                Ok(gang::Member { deployment, site, priority: member.priority, peers, places })
            })
            .collect::<Result<_>>()?;
        let (seats, bridged) = gang::start(&gang, &mut self.sites, &self.switchboard)?;
        let mut of_members: Vec<Option<OffcodeId>> =
            members.iter().map(|member| member.standing.map(|at| ids[at])).collect();
        for ((member, seat), &m) in gang.into_iter().zip(seats).zip(&fresh) {
            of_members[m] = Some(self.enlist(member.deployment, seat)?);
        }
        self.enlist_bridges(bridged);
        for &m in &fresh {
            let Some(from) = of_members[m] else { continue };
            let peers: Vec<_> = members[m].peers.iter().map(|peer| peer.and_then(|peer| of_members[peer])).collect();
            self.meet(from, peers);
            for (required, peer) in members[m].requirements() {
                let (Some(specification), Some(to)) = (required.channel, of_members[peer]) else { continue };
                let theirs = peers_name(&members[m].name, &required.name);
                let ends = [(from, required.name.clone(), peer, Side::Creator), (to, theirs, m, Side::Attached)];
                for (id, name, other, side) in ends {
                    self.joined(id, &name, &members[other].name);
                    self.note(id, End { name, specification, side, attached: 1, origin: Origin::Program });
                }
            }
        }
        let created = of_members.into_iter().take(wanted.len()).zip(wanted).map(|(found, wanted)| {
            found.ok_or_else(|| Fault::new(&*wanted.offcode, "it was not created", "report this"))
        });
        let created = created.collect::<Result<Vec<_>>>()?;
        created.iter().for_each(|&id| self.touch(id));
        Ok(created)
    }

    /// The data that layouts are priced by.
    pub(crate) fn knowledge(&self) -> Knowledge<'_> {
        Knowledge { objective: &self.objective, ..Knowledge::of(&self.costs) }
    }

    /// The running offcodes, each where it is.
    pub(crate) fn held(&self) -> Result<Vec<(OffcodeId, Held)>> {
        let running: Vec<OffcodeId> = self.running().collect();
        let held = running.iter().map(|&id| {
            let live = self.live(id)?;
            let place = |peer: &Option<OffcodeId>| peer.and_then(|peer| running.iter().position(|&id| id == peer));
            let standing = Standing {
                name: live.name.clone(),
                manifest: live.manifest.clone(),
                peers: live.peers.iter().map(place).collect(),
            };
            Ok((id, Held { standing, ground: Some(live.seated.site), ends: live.ends.clone() }))
        });
        held.collect()
    }

    /// Decides where everything would go, without creating anything.
    pub fn decide(&self, wanted: &[Wanted]) -> Result<Decided> {
        let held: Vec<Held> = self.held()?.into_iter().map(|(_, held)| held).collect();
        self.decide_beside(wanted, &held)
    }

    /// Decides beside the running offcodes, which stay where they are.
    fn decide_beside(&self, wanted: &[Wanted], held: &[Held]) -> Result<Decided> {
        let grounds: Vec<Ground> = self.sites.iter().map(|driver| driver.ground()).collect();
        let draft = draft(&self.catalogue, &grounds, &self.knowledge(), wanted, &[], held)?;
        let Draft { closure, laid: Laid { layout, .. } } = draft;
        let plan = placement::solve(&layout, &Effort::default())?;
        Ok(Decided { closure, layout, plan })
    }
}

/// The manifest's attributes, over them the application's, and the priority in force.
fn attributes_of(member: &closure::Member, wanted: Option<&Wanted>) -> Result<Attributes> {
    let mut attributes = Attributes::default();
    for (name, value) in member.manifest.package.attributes.iter().chain(wanted.iter().flat_map(|w| &w.attributes)) {
        attributes.set(name, value)?;
    }
    attributes.set(OFFLOAD_PRIORITY, &member.priority.to_string())?;
    Ok(attributes)
}
