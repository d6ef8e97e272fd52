//! Where an ODF says what.

use machine::fault::line_and_column;
use machine::{BodyKind, SiteKind};

use super::tree::{self, Element};
use super::vocabulary::{BODIES, SITES, word};
use crate::guid::Guid;

/// A part of a manifest that something may be refused for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Part {
    /// All targets together.
    Hardware,
    /// The target of this kind.
    Target(SiteKind),
    /// The body of this kind.
    Body(BodyKind),
    /// The requirement of this interface of the site's runtime.
    Environment(Guid),
    /// The peer of this name.
    Peer(String),
}

/// Line and column of a part, from 1; `None` where the file does not have it.
pub fn place(bytes: &[u8], part: &Part) -> Option<(usize, usize)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let root = tree::parse(text, &mut Vec::new())?;
    let child = |name: &str| root.children.iter().find(|child| child.name == name);
    let has = |element: &&Element, name: &str, value: &dyn Fn(&str) -> bool| {
        element.attributes.iter().any(|attribute| attribute.name == name && value(&attribute.value))
    };
    let found = match part {
        Part::Hardware => child("hardware"),
        Part::Target(site) => child("hardware")?.children.iter().find(|target| target.name == word(SITES, *site)),
        Part::Body(kind) => child("package")?.children.iter().find(|body| body.name == word(BODIES, *kind)),
        Part::Environment(guid) => {
            let mut required = child("software")?.children.iter().filter(|required| required.name == "environment");
            required.find(|required| {
                has(required, "interface", &|value| value.parse().is_ok_and(|found: Guid| found == *guid))
            })
        }
        Part::Peer(name) => {
            let mut peers = child("software")?.children.iter().filter(|peer| peer.name == "peer");
            peers.find(|peer| has(peer, "name", &|value| value == name))
        }
    };
    found.map(|element| line_and_column(text, element.at.start))
}
