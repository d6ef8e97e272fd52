//! A site that is gone: what was there starts elsewhere or stops with the reason, and the application goes on.

use ::machine::{Fault, Result};
use offcode::manifest::{Constraint, StateKind};
use placement::Effort;

use super::group::wanted;
use super::{Migration, Mover};
use crate::application::Runtime;
use crate::draft::{Held, draft};
use crate::ground::Ground;
use crate::live::{Live, OffcodeId};
use crate::site::Deployment;

impl Runtime {
    /// Handles the loss of the site of this number.
    pub(crate) fn site_lost(&mut self, site: usize, why: &Fault) {
        (self.log)(&format!("{why}"));
        let there: Vec<OffcodeId> = self.at_site(site);
        for id in there {
            // One before may have brought it along, or have been what it needs.
            if self.live(id).is_ok_and(|live| live.seated.site == site)
                && let Err(fault) = self.restart(id, site)
            {
                self.stop_with_dependents(id, &fault);
            }
        }
    }

    fn at_site(&self, site: usize) -> Vec<OffcodeId> {
        let at = |(n, live): (usize, &Option<Live>)| {
            live.as_ref().filter(|live| live.seated.site == site).map(|_| OffcodeId(n))
        };
        self.live.iter().enumerate().filter_map(at).collect()
    }

    /// Starts a new instance of the offcode where the layout has room, over the channels that the lost one had.
    fn restart(&mut self, offcode: OffcodeId, lost: usize) -> Result<()> {
        let live = self.live(offcode)?;
        let (name, manifest, seated) = (live.name.clone(), live.manifest.clone(), live.seated);
        let attributes = live.attributes.clone();
        if manifest.package.state != StateKind::None {
            let cause = "its state is gone with its site";
            return Err(Fault::new(format!("offcode {name}"), cause, "create it again"));
        }
        let mut held = Vec::new();
        let grounds: Vec<Ground> = self.sites.iter().map(|driver| driver.ground()).collect();
        // Of those that were there each that can start anew gets another place.
        for (_, one) in self.held()? {
            let ground = one.ground.filter(|ground| *ground != lost);
            held.push(Held { ground, ..one });
        }
        let stays = |one: &Held| one.ground.is_some() || one.standing.manifest.package.state == StateKind::None;
        let stay: Vec<bool> = held.iter().map(stays).collect();
        for peer in held.iter_mut().flat_map(|one| &mut one.standing.peers) {
            *peer = peer.filter(|peer| stay[*peer]);
        }
        let mut all = wanted(&held);
        let mut each = stay.iter();
        all.retain(|_| each.next().is_some_and(|stays| *stays));
        let draft = draft(&self.catalogue, &grounds, &self.knowledge(), &all, &[], &held)?;
        let plan = placement::solve(&draft.laid.layout, &Effort::default())?;
        let member = draft.closure.members.iter().position(|member| member.name == name);
        let target = member.map(|member| plan.assignment[member].0);
        let target = target.ok_or_else(|| Fault::new(&*name, "it is in no layout", "report this"))?;
        let site = self.sites[target].site().clone();
        let code = self.catalogue.code(&manifest, site.kind())?;
        let facts = self.catalogue.facts(&manifest, site.kind()).map_err(|why| why.fault(name.clone()))?;
        let memory = self.names.granted(&manifest, site.kind());
        let deployment = Deployment { name: name.clone(), manifest, code, attributes, memory };
        let mut mover = Mover::new(offcode, seated, deployment, facts);
        mover.lost = true;
        let mut migration = Migration::new(vec![mover], self.sites[lost].site().clone(), (target, site.clone()), None);
        while !migration.advance(self) {}
        migration.outcome()?;
        (self.log)(&format!("{name}: started anew at {site}; what was under way to and from the lost one is gone"));
        Ok(())
    }

    /// Stops an offcode that cannot go on, with those that are bound to it by Pull or Gang.
    fn stop_with_dependents(&mut self, offcode: OffcodeId, why: &Fault) {
        let Ok(live) = self.live(offcode) else { return };
        let name = live.name.clone();
        (self.log)(&format!("{name}: stopped: {}", why.cause()));
        let bound = |id: &OffcodeId| {
            let mut peers = self.live(*id).into_iter().flat_map(Live::requirements);
            peers.any(|(required, to)| to == offcode && required.constraint != Constraint::Link)
        };
        let dependents: Vec<OffcodeId> = self.running().filter(bound).collect();
        if let Err(fault) = self.stop(offcode) {
            (self.log)(&fault.to_string());
        }
        for id in dependents {
            let cause = format!("it needs {name}, which is gone");
            self.stop_with_dependents(id, &Fault::new("offcode", cause, "create it again"));
        }
    }
}
