//! What creating offcodes brings along: everything that they require, and what those require in turn (HYDRA sections
//! 1.2.1 and 1.4): which instance meets each requirement, and of which version each instance is.

use std::sync::Arc;

use machine::{Fault, Result};
use offcode::manifest::{Constraint, Requirement, VersionReq};
use offcode::{Guid, Manifest, OFFLOAD_PRIORITY};

use crate::instance;

/// The priority of an offcode for which none was set, here or by an offcode that requires it.
pub const NEUTRAL: u32 = 100;
/// Number of versions tried before the search is given up.
const TRIALS: usize = 1 << 16;

/// Instances that are created together; those that were asked for come first, in their order.
#[derive(Debug, Clone, Default)]
pub struct Closure {
    pub members: Vec<Member>,
}

#[derive(Debug, Clone)]
pub struct Member {
    /// The instance's name: the package's unless the application gave it one.
    pub name: String,
    pub manifest: Arc<Manifest>,
    /// The member that meets the requirement, for each peer of the manifest in its order; `None` where it has ended.
    pub peers: Vec<Option<usize>>,
    /// Priority, set or else inherited: the highest of all that require it by Pull or Gang.
    pub priority: u32,
    /// Index among the standing instances, if it is one.
    pub standing: Option<usize>,
}

impl Member {
    /// The requirements, each with the member that meets it.
    pub fn requirements(&self) -> impl Iterator<Item = (&Requirement, usize)> {
        self.manifest.software.peers.iter().zip(&self.peers).filter_map(|(required, peer)| Some((required, (*peer)?)))
    }
}

/// Parses a range of versions as an application states it.
///
/// # Errors
/// The text says none.
pub fn versions(text: &str) -> Result<VersionReq> {
    let failed = |error: semver::Error| {
        Fault::new(format!("versions '{text}'"), error.to_string(), "write them like \">=1.2, <2\" or \"^1.4\"")
    };
    text.parse().map_err(failed)
}

/// An instance that the application asks for.
#[derive(Debug, Clone)]
pub struct Asked {
    pub offcode: Guid,
    /// Its name; `None`: the package's.
    pub instance: Option<String>,
    pub versions: Option<VersionReq>,
    /// Names of its peers, each with that of the instance that is to meet it.
    pub peers: Vec<(String, String)>,
    pub priority: Option<u32>,
}

/// An instance that runs already.
#[derive(Debug, Clone)]
pub struct Standing {
    pub name: String,
    pub manifest: Arc<Manifest>,
    /// The index of the standing instance that meets each peer of its manifest; `None` where it has ended.
    pub peers: Vec<Option<usize>>,
}

/// Resolves what is `asked` for among `known` packages, of which several may be versions of one offcode.
///
/// A requirement is met by the instance that the application names for it; or by the offcode's instance without a name of
/// its own; or by the only other one that would do; or by a new one without a name. Of each new instance that version is
/// taken which [`offcode::manifest::Package::preference`] puts first among those that meet every requirement.
///
/// # Errors
/// A requirement that nothing meets, or that several do and nothing says which; no versions that fit together.
pub fn resolve(asked: &[Asked], standing: &[Standing], known: &[Arc<Manifest>]) -> Result<Closure> {
    let mut search = Search {
        asked,
        standing,
        known,
        instances: Vec::new(),
        declared: 0,
        members: Vec::new(),
        placed: Vec::new(),
        first: None,
        left: TRIALS,
    };
    for one in standing {
        let candidates = vec![one.manifest.clone()];
        search.instances.push(Instance { name: one.name.clone(), candidates, asked: None });
    }
    let mut roots = Vec::new();
    for root in 0..asked.len() {
        let instance = search.declare(root, &roots)?;
        roots.push(instance);
    }
    search.declared = search.instances.len();
    if !search.roots(&roots)? {
        let lost = || Fault::new("offcodes", "they cannot be created together", "report this");
        return Err(search.first.unwrap_or_else(lost));
    }
    let mut members = search.members;
    for (asked, member) in asked.iter().zip(&members).filter(|(_, member)| member.standing.is_none()) {
        let required = &member.manifest.software.peers;
        if let Some((odd, _)) = asked.peers.iter().find(|(peer, _)| required.iter().all(|one| one.name != *peer)) {
            let names: Vec<&str> = required.iter().map(|one| one.name.as_str()).collect();
            let cause = format!("it requires no peer of that name; it requires {}", instance::listed(&names));
            return Err(Fault::new(
                format!("offcode {}: peer '{odd}'", member.name),
                cause,
                "name one that it requires",
            ));
        }
    }
    let priority = |(n, member): (usize, &Member)| {
        asked.get(n).and_then(|asked| asked.priority).or_else(|| own_priority(&member.manifest))
    };
    let set: Vec<Option<u32>> = members.iter().enumerate().map(priority).collect();
    inherit(&mut members, &set);
    Ok(Closure { members })
}

/// An instance that stands, or is asked for, or is required.
struct Instance {
    name: String,
    /// The packages that it can be of, the preferred one first.
    candidates: Vec<Arc<Manifest>>,
    asked: Option<usize>,
}

impl Instance {
    fn is_unnamed(&self) -> bool {
        self.candidates[0].package.name == self.name
    }

    fn offcode(&self) -> Guid {
        self.candidates[0].package.guid
    }

    /// The instance in words, for faults.
    fn words(&self) -> String {
        let package = &self.candidates[0].package.name;
        if self.is_unnamed() { format!("offcode {package}") } else { format!("offcode {package} as {}", self.name) }
    }
}

/// Depth-first search, the preferred version first: the first result is the preferred one, in the order of the members.
struct Search<'a> {
    asked: &'a [Asked],
    standing: &'a [Standing],
    known: &'a [Arc<Manifest>],
    /// Standing instances come first, then those asked for: a new one is added where none of these would do.
    instances: Vec<Instance>,
    declared: usize,
    members: Vec<Member>,
    /// The instance of each member.
    placed: Vec<usize>,
    first: Option<Fault>,
    left: usize,
}

impl Search<'_> {
    /// The instance that one entry asks for.
    fn declare(&mut self, root: usize, before: &[usize]) -> Result<usize> {
        let Asked { offcode, instance, versions, .. } = &self.asked[root];
        let all = self.versions(*offcode);
        let Some(package) = all.first().map(|manifest| manifest.package.name.clone()) else {
            return Err(Fault::new(
                format!("offcode {offcode}"),
                "no such offcode is known",
                "name a depot that holds it",
            ));
        };
        let name = instance.clone().unwrap_or_else(|| package.clone());
        let refuse = |cause: String, next: &str| Err(Fault::new(format!("offcode {package} as {name}"), cause, next));
        if let Some(other) =
            self.known.iter().find(|known| known.package.name == name && known.package.guid != *offcode)
        {
            let cause = format!("{name} is the name of another offcode, {}", other.package.guid);
            return refuse(cause, "give the instance another name");
        }
        let declared = self.instances.iter().position(|other| other.name == name);
        if let Some(at) = declared {
            let there = &self.instances[at].candidates[0].package;
            if before.contains(&at) {
                return refuse("it is asked for twice".into(), "give one of the two a name of its own");
            }
            if there.guid != *offcode {
                return refuse(format!("{name} runs already, and is a {}", there.name), "give it another name");
            }
            if !there.satisfies(versions.as_ref()) {
                return Err(self.unfit(at, None, versions.clone()));
            }
            return Ok(at);
        }
        self.instances.push(Instance { name, candidates: all, asked: Some(root) });
        let at = self.instances.len() - 1;
        let fits = |manifest: &Arc<Manifest>| manifest.package.satisfies(versions.as_ref());
        if !self.instances[at].candidates.iter().any(fits) {
            return Err(self.unfit(at, None, None));
        }
        Ok(at)
    }

    /// All known versions of an offcode, the preferred one first.
    fn versions(&self, offcode: Guid) -> Vec<Arc<Manifest>> {
        let mut all: Vec<_> = self.known.iter().filter(|known| known.package.guid == offcode).cloned().collect();
        all.sort_by_key(|manifest| std::cmp::Reverse(manifest.package.preference()));
        all
    }

    fn roots(&mut self, left: &[usize]) -> Result<bool> {
        let Some((&instance, left)) = left.split_first() else { return self.peers(0) };
        self.each(instance, None, &mut |search| search.roots(left))
    }

    /// Places the requirements of the members from number `member` on.
    fn peers(&mut self, member: usize) -> Result<bool> {
        let Some(of) = self.members.get(member) else { return Ok(true) };
        let (manifest, peer) = (of.manifest.clone(), of.peers.len());
        let Some(required) = manifest.software.peers.get(peer) else { return self.peers(member + 1) };
        let instance = match self.meets(member, required) {
            Ok(instance) => instance,
            Err(Unmet::Version(fault)) => {
                self.first.get_or_insert(fault);
                return Ok(false);
            }
            Err(Unmet::Undecided(fault)) => return Err(fault),
        };
        let Some(instance) = instance else {
            return self.then(member, None);
        };
        if let Some(there) = self.placed.iter().position(|placed| *placed == instance) {
            if self.members[member].standing.is_some() || required.is_met_by(&self.members[there].manifest.package) {
                return self.then(member, Some(there));
            }
            let fault = self.unfit(instance, Some((member, required)), None);
            self.first.get_or_insert(fault);
            return Ok(false);
        }
        let next = self.members.len();
        self.each(instance, Some((member, required)), &mut |search| search.then(member, Some(next)))
    }

    /// Continues the search after a peer of `member` has been met.
    fn then(&mut self, member: usize, peer: Option<usize>) -> Result<bool> {
        let had = self.members[member].peers.len();
        self.members[member].peers.push(peer);
        let settled = self.peers(member)?;
        if !settled {
            self.members[member].peers.truncate(had);
        }
        Ok(settled)
    }

    /// Makes an instance a member, in each version that its requirers so far accept, until the rest settles.
    fn each(
        &mut self,
        instance: usize,
        by: Option<(usize, &Requirement)>,
        rest: &mut dyn FnMut(&mut Self) -> Result<bool>,
    ) -> Result<bool> {
        let Instance { name, candidates, asked } = &self.instances[instance];
        let (name, candidates) = (name.clone(), candidates.clone());
        let versions = asked.and_then(|asked| self.asked[asked].versions.as_ref());
        let held = by.is_some_and(|(member, _)| self.members[member].standing.is_some());
        let fits = |manifest: &&Arc<Manifest>| {
            let package = &manifest.package;
            package.satisfies(versions) && (held || by.is_none_or(|(_, required)| required.is_met_by(package)))
        };
        let fitting: Vec<_> = candidates.iter().filter(fits).cloned().collect();
        let (had, fit) = (self.members.len(), !fitting.is_empty());
        for manifest in fitting {
            let Some(left) = self.left.checked_sub(1) else {
                let cause = format!("{TRIALS} combinations of versions do not fit together, and there are more");
                return Err(Fault::new(self.instances[instance].words(), cause, "ask for versions more closely"));
            };
            self.left = left;
            let (name, standing) = (name.clone(), Some(instance).filter(|at| *at < self.standing.len()));
            self.members.push(Member { name, manifest, peers: Vec::new(), priority: NEUTRAL, standing });
            self.placed.push(instance);
            if rest(self)? {
                return Ok(true);
            }
            self.members.truncate(had);
            self.placed.truncate(had);
        }
        if !fit {
            let fault = self.unfit(instance, by, None);
            self.first.get_or_insert(fault);
        }
        Ok(false)
    }

    /// The instance that meets a requirement of a member, whatever its version; `None`: it has ended.
    fn meets(&mut self, member: usize, required: &Requirement) -> Result<Option<usize>, Unmet> {
        let of = &self.members[member];
        if let Some(standing) = of.standing {
            return Ok(self.standing[standing].peers.get(of.peers.len()).copied().flatten());
        }
        let subject = || format!("offcode {}: peer '{}'", of.name, required.name);
        let asked = self.instances[self.placed[member]].asked.map(|asked| &self.asked[asked].peers);
        let named = asked.and_then(|peers| peers.iter().find(|(peer, _)| *peer == required.name));
        if let Some((_, name)) = named {
            return self.named(name, required, &subject()).map(Some).map_err(Unmet::Undecided);
        }
        let met = |manifest: &&Arc<Manifest>| required.is_met_by(&manifest.package);
        let of_instances = self.instances[..self.declared].iter().flat_map(|instance| &instance.candidates);
        let mut offcodes: Vec<&Arc<Manifest>> = Vec::new();
        for manifest in self.known.iter().chain(of_instances).filter(met) {
            if offcodes.iter().all(|other| other.package.guid != manifest.package.guid) {
                offcodes.push(manifest);
            }
        }
        let offcode = match offcodes.as_slice() {
            [] => return Err(Unmet::Version(self.nothing(member, required))),
            [one] => one.package.guid,
            [one, other, ..] => {
                let cause = format!("{} and {} both have its interface", one.package.name, other.package.name);
                let next = format!(
                    "say in the manifest which offcode is meant, or in the application which instance: peers = {{ {} = \"...\" }}",
                    required.name
                );
                return Err(Unmet::Undecided(Fault::new(subject(), cause, next)));
            }
        };
        let of_it = |at: &usize| self.instances[*at].offcode() == offcode;
        let there: Vec<usize> = (0..self.declared).filter(of_it).collect();
        let unnamed = there.iter().copied().find(|&at| self.instances[at].is_unnamed());
        let would = |at: &usize| {
            let Instance { candidates, asked, .. } = &self.instances[*at];
            let versions = asked.and_then(|asked| self.asked[asked].versions.as_ref());
            candidates.iter().any(|manifest| met(&manifest) && manifest.package.satisfies(versions))
        };
        let would: Vec<usize> = there.into_iter().filter(would).collect();
        match (unnamed, would.as_slice()) {
            (Some(unnamed), would) if would.contains(&unnamed) || would.is_empty() => Ok(Some(unnamed)),
            (_, [one]) => Ok(Some(*one)),
            (_, []) => Ok(Some(self.required(offcode))),
            (_, several) => {
                let names: Vec<&str> = several.iter().map(|&at| self.instances[at].name.as_str()).collect();
                let cause = format!("{} would do, and nothing says which", instance::listed(&names));
                let next = format!("write peers = {{ {} = \"{}\" }}, or another of them", required.name, names[0]);
                Err(Unmet::Undecided(Fault::new(subject(), cause, next)))
            }
        }
    }

    /// The instance that the application names for a peer.
    fn named(&mut self, name: &str, required: &Requirement, subject: &str) -> Result<usize> {
        let there = self.instances.iter().position(|instance| instance.name == name);
        let known = || self.known.iter().find(|known| known.package.name == name).map(|known| known.package.guid);
        let at = match there {
            Some(at) => at,
            None => match known() {
                Some(offcode) => self.required(offcode),
                None => {
                    let names: Vec<&str> = self.instances.iter().map(|instance| instance.name.as_str()).collect();
                    let cause = format!("no instance is called {name}; there are {}", instance::listed(&names));
                    let next = format!("name one of these, or create it: create = \"...\", as = \"{name}\"");
                    return Err(Fault::new(subject, cause, next));
                }
            },
        };
        let instance = &self.instances[at];
        if instance.candidates.iter().any(|manifest| required.could_be(&manifest.package)) {
            return Ok(at);
        }
        let which = required.offcode.map(|guid| format!(" of offcode {guid}")).unwrap_or_default();
        let cause = format!("{} does not have interface {}{which}", instance.words(), required.interface);
        Err(Fault::new(subject, cause, "name an instance that has it"))
    }

    /// A new instance without a name of its own.
    fn required(&mut self, offcode: Guid) -> usize {
        let candidates = self.versions(offcode);
        let name = candidates.first().map(|manifest| manifest.package.name.clone()).unwrap_or_default();
        if let Some(there) = self.instances.iter().position(|instance| instance.name == name) {
            return there;
        }
        self.instances.push(Instance { name, candidates, asked: None });
        self.instances.len() - 1
    }

    /// The fault that no known package meets a requirement of a member.
    fn nothing(&self, member: usize, required: &Requirement) -> Fault {
        let of = &self.members[member];
        let subject = format!("offcode {} {}: peer '{}'", of.name, of.manifest.package.version, required.name);
        let which = required.offcode.map(|guid| format!("offcode {guid} with ")).unwrap_or_default();
        let mut could: Vec<_> = self.known.iter().filter(|known| required.could_be(&known.package)).cloned().collect();
        could.sort_by_key(|manifest| std::cmp::Reverse(manifest.package.preference()));
        match &required.version {
            Some(versions) if !could.is_empty() => {
                let cause = format!("it asks for {versions}; {}", available(&could));
                Fault::new(subject, cause, "bring a version that it accepts to a depot")
            }
            _ => {
                let cause = format!("no known offcode has {which}interface {}", required.interface);
                Fault::new(subject, cause, "name a depot that holds it, or link it in")
            }
        }
    }

    /// The fault that no version of an instance suits all its requirers; `last`: a member, else the application.
    fn unfit(&self, instance: usize, last: Option<(usize, &Requirement)>, asks: Option<VersionReq>) -> Fault {
        let it = &self.instances[instance];
        let mut askers = Vec::new();
        let entry = it.asked.and_then(|asked| self.asked[asked].versions.clone());
        askers.extend(asks.or(entry).map(|versions| format!("the application for {versions}")));
        let mut asks = |member: usize, required: &Requirement| {
            let Member { name, manifest, .. } = &self.members[member];
            let what = match &required.version {
                Some(versions) => versions.to_string(),
                None => format!("interface {}", required.interface),
            };
            askers.push(format!("{name} {} for {what}", manifest.package.version));
        };
        for (n, member) in self.members.iter().enumerate() {
            for (required, peer) in member.requirements() {
                if self.placed[peer] == instance {
                    asks(n, required);
                }
            }
        }
        if let Some((member, required)) = last {
            asks(member, required);
        }
        let cause =
            format!("no version of it will do for all: asked are {}; {}", askers.join(", "), available(&it.candidates));
        let next = "bring a version that all of them accept to a depot, or give one of them an instance of its own (peers = { ... })";
        Fault::new(it.words(), cause, next)
    }
}

/// The reason why a requirement is not met.
enum Unmet {
    /// Another version of the requirer might not have this requirement.
    Version(Fault),
    /// The choice is the user's.
    Undecided(Fault),
}

/// The versions in words.
fn available(packages: &[Arc<Manifest>]) -> String {
    let versions: Vec<&str> = packages.iter().map(|manifest| manifest.package.version.as_str()).collect();
    let odd: Vec<&str> = packages
        .iter()
        .map(|manifest| &manifest.package)
        .filter(|of| of.semantic().is_none())
        .map(|of| of.version.as_str())
        .collect();
    let there = format!("there is {}", instance::listed(&versions));
    if odd.is_empty() {
        return there;
    }
    format!(
        "{there}; {} is no semantic version (three numbers, as 1.4.0), of which nothing can be asked",
        instance::listed(&odd)
    )
}

fn own_priority(manifest: &Manifest) -> Option<u32> {
    let mut attributes = manifest.package.attributes.iter();
    attributes.find(|(name, _)| name == OFFLOAD_PRIORITY).and_then(|(_, value)| value.parse().ok())
}

/// An unset priority becomes the highest of the requirers, over any number of Pulls and Gangs, until a Link.
fn inherit(members: &mut [Member], set: &[Option<u32>]) {
    let mut settled: Vec<Option<u32>> = set.to_vec();
    loop {
        let mut changed = false;
        for from in 0..members.len() {
            let Some(priority) = settled[from] else { continue };
            for (required, to) in members[from].requirements() {
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
