//! What creating an offcode brings along: everything that it requires, and what those require in turn
//! (HYDRA sections 1.2.1 and 1.4).

use std::sync::Arc;

use machine::{Fault, Result};
use offcode::manifest::Constraint;
use offcode::{Manifest, OFFLOAD_PRIORITY};

/// The priority of an offcode for which none was set, here or by whoever requires it.
pub const NEUTRAL: u32 = 100;

/// Offcodes that are created together, roots first.
#[derive(Debug, Clone, Default)]
pub struct Closure {
    pub members: Vec<Member>,
}

#[derive(Debug, Clone)]
pub struct Member {
    pub manifest: Arc<Manifest>,
    /// For each peer of the manifest, in its order, the member that meets the requirement.
    pub peers: Vec<usize>,
    /// Set by the application or the manifest, or else inherited: the highest of all that require it by Pull or Gang.
    pub priority: u32,
}

/// Resolves `roots`, each with the priority that the application set for it, among `known` offcodes. One offcode is in
/// the closure once, however many require it.
///
/// # Errors
/// A requirement that no known offcode meets, or that several do and the manifest does not say which.
pub fn resolve(roots: &[(Arc<Manifest>, Option<u32>)], known: &[Arc<Manifest>]) -> Result<Closure> {
    let mut members: Vec<Member> = Vec::new();
    let place = |members: &mut Vec<Member>, manifest: &Arc<Manifest>| {
        members.iter().position(|m| m.manifest.package.guid == manifest.package.guid).unwrap_or_else(|| {
            members.push(Member { manifest: manifest.clone(), peers: Vec::new(), priority: NEUTRAL });
            members.len() - 1
        })
    };
    let mut set: Vec<Option<u32>> = Vec::new();
    for (root, priority) in roots {
        let index = place(&mut members, root);
        set.resize(members.len(), None);
        set[index] = priority.or(set[index]);
    }
    let mut next = 0;
    while next < members.len() {
        let manifest = members[next].manifest.clone();
        for required in &manifest.software.peers {
            let peer = meet(&manifest, required, known)?;
            let index = place(&mut members, &peer);
            members[next].peers.push(index);
        }
        next += 1;
    }
    set.resize(members.len(), None);
    for (member, set) in members.iter().zip(&mut set) {
        *set = set.or_else(|| own_priority(&member.manifest));
    }
    inherit(&mut members, &set);
    Ok(Closure { members })
}

/// The one offcode that meets a requirement.
fn meet(of: &Manifest, required: &offcode::manifest::Requirement, known: &[Arc<Manifest>]) -> Result<Arc<Manifest>> {
    let subject = || format!("offcode {}: peer '{}'", of.package.name, required.name);
    let mut candidates = known.iter().filter(|m| {
        m.package.interfaces.iter().any(|i| i.guid == required.interface)
            && required.offcode.is_none_or(|guid| guid == m.package.guid)
    });
    let Some(first) = candidates.next() else {
        let which = required.offcode.map(|guid| format!("offcode {guid} with ")).unwrap_or_default();
        return Err(Fault::new(
            subject(),
            format!("no known offcode has {which}interface {}", required.interface),
            "name a depot that holds it, or link it in",
        ));
    };
    if let Some(second) = candidates.next() {
        return Err(Fault::new(
            subject(),
            format!("{} and {} both have its interface", first.package.name, second.package.name),
            "say in the manifest which offcode is meant",
        ));
    }
    Ok(first.clone())
}

fn own_priority(manifest: &Manifest) -> Option<u32> {
    let mut attributes = manifest.package.attributes.iter();
    attributes.find(|(name, _)| name == OFFLOAD_PRIORITY).and_then(|(_, value)| value.parse().ok())
}

/// Who has none of its own takes the highest of those that require it, over any number of Pulls and Gangs, until a Link.
fn inherit(members: &mut [Member], set: &[Option<u32>]) {
    let mut settled: Vec<Option<u32>> = set.to_vec();
    loop {
        let mut changed = false;
        for from in 0..members.len() {
            let Some(priority) = settled[from] else { continue };
            let manifest = members[from].manifest.clone();
            for (required, &to) in manifest.software.peers.iter().zip(&members[from].peers) {
                let hands_on = required.constraint != Constraint::Link && set[to].is_none();
                if hands_on && settled[to].is_none_or(|has| has < priority) {
                    settled[to] = Some(priority);
                    changed = true;
                }
            }
        }
        if !changed {
            break;
        }
    }
    for (member, priority) in members.iter_mut().zip(settled) {
        member.priority = priority.unwrap_or(NEUTRAL);
    }
}
