//! All offcodes that a runtime can create: those linked into the program and those in depots.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use machine::{Fault, SiteKind};
use offcode::depot::{Depot, ODF, Stored};
use offcode::manifest::{BodyKind, Package};
use offcode::odf::{self, Part};
use offcode::{Guid, Manifest, Registry};

use crate::code::{Code, Libraries};
use crate::possible::{Facts, Origin, Rule, Why};

/// A package whose bodies are linked into the program and may share data with it.
#[derive(Clone)]
pub struct Linked {
    pub manifest: Arc<Manifest>,
    /// Bodies, each with the kind of site that it is for.
    pub bodies: Vec<(SiteKind, Code)>,
}

/// Facts of bodies that were looked at, by offcode, version and kind of site.
type Looked = HashMap<(Guid, String, SiteKind), Result<Facts, Why>>;

/// The source of manifests and code.
#[derive(Default)]
pub struct Catalogue {
    registry: Registry,
    linked: Vec<Linked>,
    depots: Vec<Depot>,
    manifests: Vec<Arc<Manifest>>,
    facts: Mutex<Looked>,
}

impl Catalogue {
    /// # Errors
    /// Two offcodes, or two interfaces, that share a GUID without being the same.
    pub fn new(registry: Registry, depots: Vec<Depot>) -> Result<Catalogue, Fault> {
        let mut manifests = registry.manifests()?;
        for manifest in depots.iter().flat_map(Depot::packages).map(|package| &package.manifest) {
            let clash = manifests.iter().find(|other| {
                let alike = other.package.guid.short() == manifest.package.guid.short()
                    || other.package.name == manifest.package.name;
                alike && !manifest.package.is_another_version_of(&other.package)
            });
            match clash {
                // A depot's package of a linked-in offcode: its ODF is known already.
                Some(same) if same.unpackaged() == manifest.unpackaged() => {}
                Some(other) => {
                    let words = |of: &Package| format!("{} {} ({})", of.name, of.version, of.guid);
                    return Err(Fault::new(
                        format!("offcode {}", words(&manifest.package)),
                        format!("it clashes with {}", words(&other.package)),
                        "give each offcode a name and a GUID of its own (`uuidgen` prints one), and each version of it a semantic \
                         version of its own",
                    ));
                }
                None => manifests.push(manifest.clone()),
            }
        }
        Ok(Catalogue { registry, linked: Vec::new(), depots, manifests, facts: Mutex::default() })
    }

    /// A catalogue of the program's own packages alone.
    pub fn linked(linked: Vec<Linked>) -> Catalogue {
        let manifests = linked.iter().map(|one| one.manifest.clone()).collect();
        Catalogue { linked, manifests, ..Catalogue::default() }
    }

    pub fn manifests(&self) -> &[Arc<Manifest>] {
        &self.manifests
    }

    /// The manifest of a GUID or package name; of several versions the preferred one.
    pub fn find(&self, wanted: &str) -> Result<Arc<Manifest>, Fault> {
        let guid: Option<Guid> = wanted.parse().ok();
        let is = |m: &&Arc<Manifest>| m.package.name == wanted || Some(m.package.guid) == guid;
        let found = self.manifests.iter().filter(is).max_by_key(|m| m.package.preference());
        found.cloned().ok_or_else(|| {
            let mut known: Vec<_> = self.manifests.iter().map(|m| m.package.name.as_str()).collect();
            known.dedup();
            let known =
                if known.is_empty() { "there are none".into() } else { format!("known are {}", known.join(", ")) };
            Fault::new(
                format!("offcode {wanted}"),
                format!("no such offcode; {known}"),
                "name one of these, or a depot that holds it",
            )
        })
    }

    /// The code for one kind of site: native where it is linked in or packaged for this machine, else what the depot has.
    pub fn code(&self, manifest: &Manifest, site: SiteKind) -> Result<Code, Fault> {
        self.code_in(&self.depots, manifest, site)
    }

    /// The same, from these depots. A linked-in body is of the version whose manifest is linked in.
    pub(crate) fn code_in(&self, depots: &[Depot], manifest: &Manifest, site: SiteKind) -> Result<Code, Fault> {
        let package = &manifest.package;
        let linked = self.linked.iter().find(|one| is_same(&one.manifest.package, package));
        if let Some((_, code)) = linked.and_then(|one| one.bodies.iter().find(|(kind, _)| *kind == site)) {
            return Ok(code.clone());
        }
        let mut bodies: Vec<_> = package.bodies.iter().filter(|body| body.sites.contains(&site)).collect();
        bodies.sort_by_key(|body| body.kind);
        let stored = depots.iter().find_map(|depot| depot.exactly(package));
        for body in bodies {
            match body.kind {
                BodyKind::Native => {
                    if self.registry.manifests()?.iter().any(|linked| **linked == *manifest)
                        && let Some(constructor) = self.registry.constructor(&package.guid, site)?
                    {
                        return Ok(Code::Native(constructor));
                    }
                    if let Some(stored) = stored
                        && let Some(libraries) = Libraries::of(stored, site)?
                    {
                        return Ok(Code::Library(libraries));
                    }
                }
                kind => {
                    if let (Some(stored), Some(file)) = (stored, &body.file) {
                        let bytes = stored.load(file)?;
                        return Ok(if kind == BodyKind::Wasm { Code::Wasm(bytes) } else { Code::Bpf(bytes) });
                    }
                }
            }
        }
        Err(Fault::new(
            format!("offcode {}", package.name),
            format!("there is no code of it for sites of kind {site}"),
            "link its native body in, or name a depot that holds its other bodies",
        ))
    }

    /// Takes the packages of a depot in place of those of the same offcodes that are of the same version, or of which it
    /// cannot be told whether they are newer.
    pub(crate) fn replace(&mut self, depot: &Depot) {
        for manifest in depot.packages().iter().map(|stored| &stored.manifest) {
            let package = &manifest.package;
            self.manifests.retain(|old| old.package.guid != package.guid || old.package.is_another_version_of(package));
            self.manifests.push(manifest.clone());
            let facts = self.facts.get_mut().unwrap_or_else(PoisonError::into_inner);
            facts.retain(|(guid, version, _), _| (guid, version) != (&package.guid, &package.version));
        }
        self.depots.insert(0, depot.clone());
    }

    /// The facts of the body for one kind of site. Each body is looked at once.
    ///
    /// # Errors
    /// There is none, or it cannot run there.
    pub fn facts(&self, manifest: &Manifest, site: SiteKind) -> Result<Facts, Why> {
        let mut known = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        let read = || match self.code(manifest, site) {
            Ok(code) => Facts::read(manifest, site, &code),
            Err(fault) => Err(Why {
                rule: Rule::Body,
                sentence: fault.cause().to_owned(),
                next: fault.next().to_owned(),
                at: Some(Origin::of(manifest, Part::Target(site))),
            }),
        };
        let package = &manifest.package;
        known.entry((package.guid, package.version.clone(), site)).or_insert_with(read).clone()
    }

    /// File, line and column of a demand: 'example.filter/odf.xml:26:5'; of a linked-in type its file and line.
    pub fn place(&self, origin: &Origin) -> Option<String> {
        let (guid, version, part) = match origin {
            Origin::Manifest(guid, version, part) => (guid, version, part),
            Origin::File(place) => return Some(place.clone()),
            Origin::Program => return None,
        };
        let is = |stored: &&Stored| {
            let package = &stored.manifest.package;
            (&package.guid, &package.version) == (guid, version)
        };
        let stored = self.depots.iter().flat_map(Depot::packages).find(is);
        let Some(stored) = stored else { return self.registry.place(guid).map(str::to_owned) };
        let (line, column) = odf::place(&std::fs::read(stored.odf()).ok()?, part)?;
        let folder = stored.folder.file_name()?.to_string_lossy();
        Some(format!("{folder}/{ODF}:{line}:{column}"))
    }
}

fn is_same(one: &Package, other: &Package) -> bool {
    (one.guid, &one.version) == (other.guid, &other.version)
}
