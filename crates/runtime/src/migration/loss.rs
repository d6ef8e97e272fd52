//! A site that is gone: what was there starts elsewhere or stops with the reason, and the application goes on.

use ::machine::{Fault, Result};
use offcode::Manifest;
use offcode::manifest::{Constraint, StateKind};
use placement::Effort;

use super::{Migration, Mover};
use crate::application::{OffcodeId, Runtime};
use crate::create::Wanted;
use crate::draft::{Held, draft};
use crate::layout::Ground;
use crate::site::Deployment;

impl Runtime {
    /// The site of this number is gone.
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
        let at = |(n, live): (usize, &Option<crate::application::Live>)| {
            live.as_ref().filter(|live| live.seated.site == site).map(|_| OffcodeId(n))
        };
        self.live.iter().enumerate().filter_map(at).collect()
    }

    /// Starts a new one of it where the layout has room, over the channels that the lost one had.
    fn restart(&mut self, offcode: OffcodeId, lost: usize) -> Result<()> {
        let live = self.live(offcode)?;
        let (manifest, seated) = (live.manifest.clone(), live.seated);
        let attributes = live.attributes.clone();
        let name = manifest.package.name.clone();
        if manifest.package.state != StateKind::None {
            let cause = "its state is gone with its site";
            return Err(Fault::new(format!("offcode {name}"), cause, "create it again"));
        }
        let (mut wanted, mut held) = (Vec::new(), Vec::new());
        let grounds: Vec<Ground> = self.sites.iter().map(|driver| driver.ground()).collect();
        for (guid, id) in self.running() {
            let live = self.live(id)?;
            let same = live.seated.site == lost;
            if id != offcode && same && live.manifest.package.state != StateKind::None {
                continue;
            }
            wanted.push(Wanted::new(guid.to_string()));
            if !same {
                held.push(Held { offcode: guid, ground: live.seated.site, ends: live.ends.clone() });
            }
        }
        let draft = draft(&self.catalogue, &grounds, &self.knowledge(), &wanted, &[], &held)?;
        let plan = placement::solve(&draft.laid.layout, &Effort::default())?;
        let is = |member: &crate::closure::Member| member.manifest.package.guid == manifest.package.guid;
        let member = draft.closure.members.iter().position(is);
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

    /// It cannot go on; nor can those that are bound to it by Pull or Gang.
    fn stop_with_dependents(&mut self, offcode: OffcodeId, why: &Fault) {
        let Ok(live) = self.live(offcode) else { return };
        let stopped = live.manifest.clone();
        (self.log)(&format!("{}: stopped: {}", stopped.package.name, why.cause()));
        if let Err(fault) = self.stop(offcode) {
            (self.log)(&fault.to_string());
        }
        let running: Vec<OffcodeId> = self.running().into_values().collect();
        for id in running {
            let needs = |live: &crate::application::Live| bound(&live.manifest, &stopped);
            if self.live(id).is_ok_and(needs) {
                let cause = format!("it needs {}, which is gone", stopped.package.name);
                self.stop_with_dependents(id, &Fault::new("offcode", cause, "create it again"));
            }
        }
    }
}

/// Whether `one` requires `other` by Pull or Gang.
fn bound(one: &Manifest, other: &Manifest) -> bool {
    one.software.peers.iter().any(|required| {
        required.constraint != Constraint::Link
            && required.offcode.is_none_or(|guid| guid == other.package.guid)
            && other.package.interfaces.iter().any(|interface| interface.guid == required.interface)
    })
}
