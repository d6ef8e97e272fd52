//! Which offcodes a move takes, and whether the layout holds after it.

use machine::{Fault, Result, Site};
use offcode::Manifest;
use offcode::manifest::{Constraint, StateKind};
use placement::Effort;

use crate::application::{OffcodeId, Runtime};
use crate::create::Wanted;
use crate::draft::{Draft, Held, draft};
use crate::layout::Ground;
use crate::possible;

impl Runtime {
    /// Those that `offcode` is pulled to, itself first: they move together.
    fn pulled(&self, draft: &Draft, offcode: OffcodeId) -> Result<Vec<OffcodeId>> {
        let members = &draft.closure.members;
        let running = self.running();
        let is = |wanted: OffcodeId| move |m: &usize| running.get(&members[*m].manifest.package.guid) == Some(&wanted);
        let first = (0..members.len()).find(is(offcode));
        let first = first.ok_or_else(|| Fault::new("offcode", "it is in no layout", "report this"))?;
        let mut group = vec![first];
        let mut next = 0;
        while next < group.len() {
            let of = group[next];
            for (from, member) in members.iter().enumerate() {
                let pulls = member.manifest.software.peers.iter().zip(&member.peers);
                for (_, &to) in pulls.filter(|(required, _)| required.constraint == Constraint::Pull) {
                    let other = if from == of { to } else { from };
                    if (from == of || to == of) && !group.contains(&other) {
                        group.push(other);
                    }
                }
            }
            next += 1;
        }
        let running = self.running();
        let id = |m: &usize| running.get(&members[*m].manifest.package.guid).copied();
        Ok(group.iter().filter_map(id).collect())
    }

    /// All that runs, each where it is, but `moved` at the site of number `target`.
    fn drafted(&self, moved: &[OffcodeId], target: usize) -> Result<(Draft, Vec<Ground>)> {
        let grounds: Vec<Ground> = self.sites.iter().map(|driver| driver.ground()).collect();
        let (mut wanted, mut held) = (Vec::new(), Vec::new());
        for (guid, id) in self.running() {
            let live = self.live(id)?;
            let ground = if moved.contains(&id) { target } else { live.seated.site };
            held.push(Held { offcode: guid, ground, ends: live.ends.clone() });
            wanted.push(Wanted::new(guid.to_string()));
        }
        Ok((draft(&self.catalogue, &grounds, &self.knowledge(), &wanted, &[], &held)?, grounds))
    }

    /// The offcodes that move with `offcode` to the site of number `target`, itself first.
    ///
    /// # Errors
    /// One of them cannot be moved; a constraint or a rule would be broken there.
    pub(super) fn movers(&self, offcode: OffcodeId, target: usize) -> Result<Vec<OffcodeId>> {
        let (draft, _) = self.drafted(&[], target)?;
        let group = self.pulled(&draft, offcode)?;
        stays_at(self.sites[target].site())?;
        for &id in &group {
            let live = self.live(id)?;
            stays_at(self.sites[live.seated.site].site())?;
            movable(&live.manifest)?;
        }
        let (draft, _) = self.drafted(&group, target)?;
        let site = self.sites[target].site();
        placement::solve(&draft.laid.layout, &Effort::default())
            .map_err(|why| Fault::from(why).within(format!("moving to {site}")))?;
        Ok(group)
    }

    /// Whether `new` can take the place of a running offcode at its site.
    pub(super) fn replaces(&self, offcode: OffcodeId, new: &Manifest, facts: &possible::Facts) -> Result<()> {
        let live = self.live(offcode)?;
        stays_at(self.sites[live.seated.site].site())?;
        movable(&live.manifest)?;
        movable(new)?;
        let old = &live.manifest;
        let refuse = |cause: String, next: &str| {
            let subject = format!("{} {} in place of {}", new.package.name, new.package.version, old.package.version);
            Err(Fault::new(subject, cause, next))
        };
        if new.package.guid != old.package.guid {
            let cause = format!("it is another offcode: its GUID is {}, not {}", new.package.guid, old.package.guid);
            return refuse(cause, "stop the one, and create the other");
        }
        for interface in &old.package.interfaces {
            let next = "keep an interface's methods and their order, or give it another GUID beside the old one";
            match new.package.interfaces.iter().find(|other| other.guid == interface.guid) {
                None => return refuse(format!("it has no interface {}, which its callers use", interface.name), next),
                Some(other) if !other.methods.starts_with(&interface.methods) => {
                    return refuse(format!("its interface {} has other methods", interface.name), next);
                }
                Some(_) => {}
            }
        }
        if new.software.peers != old.software.peers {
            let cause = "it requires other peers, or other channels to them";
            return refuse(cause.into(), "stop the offcode, and create it from the new package");
        }
        let ground = self.sites[live.seated.site].ground();
        let known = |_: &Manifest, _| Ok(facts.clone());
        let held =
            possible::body(&ground, new, &known).and_then(|chosen| possible::ends(&ground, &chosen.facts, &live.ends));
        held.map_err(|why| why.fault(format!("{} {} at {}", new.package.name, new.package.version, ground.site)))
    }
}

/// What a program at a driver hook of another host has sent and nobody has read yet is told by nobody, so that a move could
/// lose it.
fn stays_at(site: &Site) -> Result<()> {
    if !site.is_hook_of_agent() {
        return Ok(());
    }
    let cause = "offcodes do not move to and from driver hooks of other hosts, nor get another version there";
    Err(Fault::new(site.to_string(), cause, "stop the offcode, and create it anew"))
}

fn movable(manifest: &Manifest) -> Result<()> {
    if manifest.package.state != StateKind::FixedPlace {
        return Ok(());
    }
    let cause = "its manifest does not say that it can be moved";
    let next = "write `state = none` where a new one can take its place, or `state = saved` with `save` and `restore`";
    Err(Fault::new(format!("offcode {}", manifest.package.name), cause, next))
}
