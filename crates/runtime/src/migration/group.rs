//! Which offcodes a move takes, and whether the layout holds after it.

use machine::{BodyKind, Fault, Result, Site};
use offcode::Manifest;
use offcode::manifest::{Constraint, Requirement, StateKind};
use placement::Effort;

use crate::application::Runtime;
use crate::code::Code;
use crate::draft::{Held, draft};
use crate::ground::Ground;
use crate::live::{Live, OffcodeId};
use crate::possible;
use crate::wanted::Wanted;

impl Runtime {
    /// The offcodes that `offcode` is pulled to, itself first: they move together.
    fn pulled(&self, offcode: OffcodeId) -> Result<Vec<OffcodeId>> {
        let mut group = vec![offcode];
        let mut next = 0;
        while next < group.len() {
            let of = group[next];
            for from in self.running() {
                let pulls = self.live(from)?.requirements().filter(|(of, _)| of.constraint == Constraint::Pull);
                for (_, to) in pulls {
                    let other = if from == of { to } else { from };
                    if (from == of || to == of) && self.live(other).is_ok() && !group.contains(&other) {
                        group.push(other);
                    }
                }
            }
            next += 1;
        }
        Ok(group)
    }

    /// Checks that the layout of all that runs holds with `moved` at the site of number `target`.
    fn holds(&self, moved: &[OffcodeId], target: usize) -> Result<()> {
        let grounds: Vec<Ground> = self.sites.iter().map(|driver| driver.ground()).collect();
        let mut held = Vec::new();
        for (id, one) in self.held()? {
            let ground = if moved.contains(&id) { Some(target) } else { one.ground };
            held.push(Held { ground, ..one });
        }
        let all = wanted(&held);
        let draft = draft(&self.catalogue, &grounds, &self.knowledge(), &all, &[], &held)?;
        placement::solve(&draft.laid.layout, &Effort::default())?;
        Ok(())
    }

    /// The offcodes that move with `offcode` to the site of number `target`, itself first.
    ///
    /// # Errors
    /// One of them cannot be moved; a constraint or a rule would be broken there.
    pub(super) fn movers(&self, offcode: OffcodeId, target: usize) -> Result<Vec<OffcodeId>> {
        let group = self.pulled(offcode)?;
        stays_at(self.sites[target].site())?;
        for &id in &group {
            let live = self.live(id)?;
            stays_at(self.sites[live.seated.site].site())?;
            movable(live)?;
        }
        let site = self.sites[target].site();
        self.holds(&group, target).map_err(|fault| fault.within(format!("moving to {site}")))?;
        Ok(group)
    }

    /// Whether the package that an instance runs has this code, where it is for the same kind of site.
    fn is_code_of(&self, live: &Live, code: &Code) -> bool {
        let kind = self.sites[live.seated.site].site().kind();
        match (self.catalogue.code(&live.manifest, kind), code) {
            (Ok(Code::Wasm(theirs)), Code::Wasm(ours)) | (Ok(Code::Bpf(theirs)), Code::Bpf(ours)) => theirs == *ours,
            // Manifests have the digests of libraries.
            (Ok(theirs), ours) => theirs.kind() != ours.kind() || theirs.kind() == BodyKind::Native,
            (Err(_), _) => true,
        }
    }

    /// Whether `new` can take the place of a running offcode at its site.
    pub(super) fn replaces(
        &self,
        offcode: OffcodeId,
        new: &Manifest,
        (code, facts): (&Code, &possible::Facts),
    ) -> Result<()> {
        let live = self.live(offcode)?;
        stays_at(self.sites[live.seated.site].site())?;
        movable(live)?;
        movable_by(&live.name, new)?;
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
        let stop = "stop the offcode, and create it from the new package";
        let same = |(new, old): (&Requirement, &Requirement)| {
            *new == Requirement { version: new.version.clone(), ..old.clone() }
        };
        let (theirs, ours) = (&new.software.peers, &old.software.peers);
        if theirs.len() != ours.len() || !theirs.iter().zip(ours).all(same) {
            return refuse("it requires other peers, or other channels to them".into(), stop);
        }
        for (required, peer) in theirs.iter().zip(&live.peers) {
            let Some(peer) = peer.and_then(|peer| self.live(peer).ok()) else { continue };
            if let Some(versions) = required.version.as_ref().filter(|_| !required.is_met_by(&peer.manifest.package)) {
                let cause =
                    format!("it requires {versions} of {}, which is {}", peer.name, peer.manifest.package.version);
                return refuse(cause, "upgrade its peer first");
            }
        }
        for other in self.live.iter().flatten() {
            let mut asks =
                other.requirements().filter(|(required, to)| *to == offcode && !required.is_met_by(&new.package));
            if let Some((Requirement { version: Some(versions), .. }, _)) = asks.next() {
                return refuse(format!("{} requires {versions} of it", other.name), "upgrade that one first");
            }
            let twin = (other.manifest.package.guid, &other.manifest.package.version)
                == (new.package.guid, &new.package.version);
            if twin && other.name != live.name && !(*other.manifest == *new && self.is_code_of(other, code)) {
                return refuse(
                    format!("{} runs as another package of this version", other.name),
                    "give the new package a version of its own",
                );
            }
        }
        let ground = self.sites[live.seated.site].ground();
        let known = |_: &Manifest, _| Ok(facts.clone());
        let held =
            possible::body(&ground, new, &known).and_then(|chosen| possible::ends(&ground, &chosen.facts, &live.ends));
        held.map_err(|why| why.fault(format!("{} {} at {}", new.package.name, new.package.version, ground.site)))
    }
}

/// The wishes that describe the running instances as they are.
pub(super) fn wanted(held: &[Held]) -> Vec<Wanted> {
    let wanted = |of: &Held| Wanted::new(of.standing.manifest.package.guid.to_string()).named(&*of.standing.name);
    held.iter().map(wanted).collect()
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

fn movable(live: &Live) -> Result<()> {
    movable_by(&live.name, &live.manifest)
}

fn movable_by(name: &str, manifest: &Manifest) -> Result<()> {
    if manifest.package.state != StateKind::FixedPlace {
        return Ok(());
    }
    let cause = "its manifest does not say that it can be moved";
    let next = "write `state = none` where a new one can take its place, or `state = saved` with `save` and `restore`";
    Err(Fault::new(format!("offcode {name}"), cause, next))
}
