//! Clashes: names and GUIDs that must be unique and are not.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use machine::Fault;

use crate::guid::Guid;
use crate::manifest::{Interface, Manifest};

/// A manifest and where it came from: a file, or 'linked in'.
pub struct Named<'a> {
    /// The manifest.
    pub manifest: &'a Manifest,
    /// Its file, or 'linked in', for the user.
    pub place: String,
}

/// What was first seen under a GUID.
#[derive(Clone, Copy)]
enum Thing<'a> {
    Offcode(&'a Manifest),
    Interface(&'a Interface),
}

impl Thing<'_> {
    fn words(&self) -> String {
        match self {
            Thing::Offcode(manifest) => format!("offcode {}", manifest.package.name),
            Thing::Interface(interface) => format!("interface {}", interface.name),
        }
    }
}

/// Clashes between manifests, each naming both places: two offcodes with one GUID or one name, two interfaces with one
/// GUID, and GUIDs that are equal in the 64 bits that travel with calls ([`Guid::short`]). Many offcodes may implement one
/// interface, if it has the same name and methods everywhere.
pub fn clashes<'a>(manifests: impl IntoIterator<Item = Named<'a>>) -> Vec<Fault> {
    let manifests: Vec<Named<'a>> = manifests.into_iter().collect();
    let mut seen: BTreeMap<u64, (Guid, Thing<'a>, &str)> = BTreeMap::new();
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    let mut clashes = Vec::new();
    for Named { manifest, place } in &manifests {
        let package = &manifest.package;
        if let Some(other) = names.insert(&package.name, place) {
            clashes.push(Fault::new(
                format!("offcode {}", package.name),
                format!("{other} and {place} both have this name"),
                "rename one of them",
            ));
        }
        let interfaces = package.interfaces.iter().map(|interface| (interface.guid, Thing::Interface(interface)));
        for (guid, thing) in std::iter::once((package.guid, Thing::Offcode(manifest))).chain(interfaces) {
            match seen.entry(guid.short()) {
                Entry::Vacant(vacant) => {
                    vacant.insert((guid, thing, place));
                }
                Entry::Occupied(occupied) => clashes.extend(clash((guid, thing, place), *occupied.get())),
            }
        }
    }
    clashes
}

fn clash(new: (Guid, Thing<'_>, &str), old: (Guid, Thing<'_>, &str)) -> Option<Fault> {
    let ((guid, thing, place), (other_guid, other, other_place)) = (new, old);
    if guid != other_guid {
        let cause = format!(
            "{} of {other_place} has {other_guid}, {} of {place} has {guid}: they share the 64 bits that travel with calls",
            other.words(),
            thing.words()
        );
        return Some(Fault::new(format!("GUID {guid}"), cause, "give one of them a new GUID"));
    }
    let cause = match (other, thing) {
        (Thing::Interface(old), Thing::Interface(new)) if old.name != new.name => {
            format!("{other_place} calls this interface {}, {place} calls it {}", old.name, new.name)
        }
        (Thing::Interface(old), Thing::Interface(new)) if old.methods != new.methods => format!(
            "the methods of interface {} are {} in {other_place}, but {} in {place}",
            new.name,
            methods(old),
            methods(new)
        ),
        (Thing::Interface(_), Thing::Interface(_)) => return None,
        _ => format!("{other_place} has it for {}, {place} for {}", other.words(), thing.words()),
    };
    Some(Fault::new(format!("GUID {guid}"), cause, "give one of them a new GUID, such as `uuidgen` prints"))
}

fn methods(interface: &Interface) -> String {
    match interface.methods.is_empty() {
        true => "none".to_owned(),
        false => interface.methods.join(", "),
    }
}
