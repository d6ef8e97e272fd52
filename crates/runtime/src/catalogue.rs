//! All offcodes that a runtime can create: those linked into the program and those in depots.

use std::sync::Arc;

use machine::{Fault, Result, SiteKind};
use offcode::depot::Depot;
use offcode::manifest::BodyKind;
use offcode::{Guid, Manifest, Registry};

use crate::site::Code;

/// Where manifests and code come from.
#[derive(Default)]
pub struct Catalogue {
    registry: Registry,
    depots: Vec<Depot>,
    manifests: Vec<Arc<Manifest>>,
}

impl Catalogue {
    /// # Errors
    /// Two offcodes, or two interfaces, that share a GUID without being the same.
    pub fn new(registry: Registry, depots: Vec<Depot>) -> Result<Catalogue> {
        let mut manifests = registry.manifests()?;
        for manifest in depots.iter().flat_map(Depot::packages).map(|package| &package.manifest) {
            let clash = manifests.iter().find(|other| {
                other.package.guid.short() == manifest.package.guid.short()
                    || other.package.name == manifest.package.name
            });
            match clash {
                // The package of what is linked in: its ODF is known already.
                Some(same) if same == manifest => {}
                Some(other) => {
                    return Err(Fault::new(
                        format!("offcode {} ({})", manifest.package.name, manifest.package.guid),
                        format!("it clashes with {} ({})", other.package.name, other.package.guid),
                        "give each offcode a name and a GUID of its own (`uuidgen` prints one)",
                    ));
                }
                None => manifests.push(manifest.clone()),
            }
        }
        Ok(Catalogue { registry, depots, manifests })
    }

    pub fn manifests(&self) -> &[Arc<Manifest>] {
        &self.manifests
    }

    /// The manifest of a GUID or package name.
    pub fn find(&self, wanted: &str) -> Result<Arc<Manifest>> {
        let guid: Option<Guid> = wanted.parse().ok();
        let found = self.manifests.iter().find(|m| m.package.name == wanted || Some(m.package.guid) == guid);
        found.cloned().ok_or_else(|| {
            let known: Vec<_> = self.manifests.iter().map(|m| m.package.name.as_str()).collect();
            let known =
                if known.is_empty() { "there are none".into() } else { format!("known are {}", known.join(", ")) };
            Fault::new(
                format!("offcode {wanted}"),
                format!("no such offcode; {known}"),
                "name one of these, or a depot that holds it",
            )
        })
    }

    /// The code for one kind of site: native where it is linked in, else from the depot.
    pub fn code(&self, manifest: &Manifest, site: SiteKind) -> Result<Code> {
        let package = &manifest.package;
        let mut bodies: Vec<_> = package.bodies.iter().filter(|body| body.sites.contains(&site)).collect();
        bodies.sort_by_key(|body| body.kind);
        for body in bodies {
            match body.kind {
                BodyKind::Native => {
                    if let Some(constructor) = self.registry.constructor(&package.guid, site)? {
                        return Ok(Code::Native(constructor));
                    }
                }
                kind => {
                    for depot in &self.depots {
                        let Some(stored) = depot.by_guid(package.guid) else { continue };
                        if let Some(bytes) = stored.load(body)? {
                            return Ok(if kind == BodyKind::Wasm { Code::Wasm(bytes) } else { Code::Bpf(bytes) });
                        }
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
}
