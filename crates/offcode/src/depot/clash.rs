//! Clashes: names and GUIDs that must be unique and are not.

use std::collections::BTreeMap;

use machine::Fault;

use crate::guid::Guid;
use crate::manifest::{Interface, Manifest, Package};

/// A manifest and where it came from: a file, or 'linked in'.
pub struct Named<'a> {
    /// The manifest.
    pub manifest: &'a Manifest,
    /// Its file, or 'linked in', for the user.
    pub place: String,
}

/// What has a GUID.
#[derive(Clone, Copy)]
enum Thing<'a> {
    Offcode(&'a Manifest),
    Interface(&'a Interface),
}

/// A thing with its GUID, in a package, and where that is written.
#[derive(Clone, Copy)]
struct Seen<'a> {
    guid: Guid,
    thing: Thing<'a>,
    package: &'a Package,
    place: &'a str,
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
/// interface, if it has the same name and methods everywhere. Versions of one offcode share its GUID and its name if it
/// can be told which is newer, and one may have more methods than the other.
pub fn clashes<'a>(manifests: impl IntoIterator<Item = Named<'a>>) -> Vec<Fault> {
    let manifests: Vec<Named<'a>> = manifests.into_iter().collect();
    let mut seen: BTreeMap<u64, Vec<Seen<'_>>> = BTreeMap::new();
    let mut names: BTreeMap<&str, Vec<&Named<'_>>> = BTreeMap::new();
    let mut clashes = Vec::new();
    for named @ Named { manifest, place } in &manifests {
        let package = &manifest.package;
        let called = names.entry(&package.name).or_default();
        let same = |other: &&&Named<'_>| !package.is_another_version_of(&other.manifest.package);
        clashes.extend(
            called.iter().find(same).map(|other| twice(package, &other.manifest.package, [&other.place, place])),
        );
        called.push(named);
        let interfaces = package.interfaces.iter().map(|interface| (interface.guid, Thing::Interface(interface)));
        for (guid, thing) in std::iter::once((package.guid, Thing::Offcode(manifest))).chain(interfaces) {
            let new = Seen { guid, thing, package, place };
            let others = seen.entry(guid.short()).or_default();
            clashes.extend(others.iter().find_map(|old| clash(new, *old)));
            others.push(new);
        }
    }
    clashes
}

/// Two packages of one name.
fn twice(one: &Package, other: &Package, [first, second]: [&str; 2]) -> Fault {
    let subject = format!("offcode {}", one.name);
    if one.guid != other.guid {
        return Fault::new(subject, format!("{first} and {second} both have this name"), "rename one of them");
    }
    let versions = if one.version == other.version {
        format!("version {} of it twice", one.version)
    } else {
        format!("versions {} and {} of it, of which it cannot be told which is newer", other.version, one.version)
    };
    let next = "give each a semantic version of its own, three numbers as 1.4.0, or remove one of them";
    Fault::new(subject, format!("{first} and {second} are {versions}"), next)
}

fn clash(new: Seen<'_>, old: Seen<'_>) -> Option<Fault> {
    let Seen { guid, thing, place, .. } = new;
    let (other_guid, other, other_place) = (old.guid, old.thing, old.place);
    let versions = new.package.guid == old.package.guid && new.package.name == old.package.name;
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
        (Thing::Interface(old), Thing::Interface(new))
            if versions && (old.methods.starts_with(&new.methods) || new.methods.starts_with(&old.methods)) =>
        {
            return None;
        }
        (Thing::Interface(old), Thing::Interface(new)) if old.methods != new.methods => format!(
            "the methods of interface {} are {} in {other_place}, but {} in {place}",
            new.name,
            methods(old),
            methods(new)
        ),
        (Thing::Interface(_), Thing::Interface(_)) => return None,
        // As two of one name they are dealt with.
        (Thing::Offcode(_), Thing::Offcode(_)) if versions => return None,
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
