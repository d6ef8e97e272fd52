//! From what an application asks for to a layout: the one way, for `create_offcode` and for `plimsoll plan`.

use std::sync::Arc;

use machine::{Fault, Result, SiteKind};
use offcode::{Attributes, Guid, Manifest, OFFLOAD_PRIORITY};

use crate::app_file::{NamedChannel, Party};
use crate::catalogue::Catalogue;
use crate::closure::{self, Closure};
use crate::create::Wanted;
use crate::layout::{self, End, Ground, Knowledge, Laid, Traffic, Wishes};
use crate::measured::Build;
use crate::possible::{self, Origin, Side};

/// Everything that is created together, and its layout over the grounds given.
#[derive(Debug, Clone)]
pub struct Draft {
    pub closure: Closure,
    pub laid: Laid,
}

/// An offcode that runs already.
#[derive(Debug, Clone)]
pub struct Held {
    pub offcode: Guid,
    pub ground: usize,
    /// Of its channels.
    pub ends: Vec<possible::End>,
}

/// Resolves what `wanted` needs and lays it out. `channels` are the application's own; `held` are offcodes that have
/// their ground already.
///
/// # Errors
/// An offcode that nobody knows, a requirement that nothing meets, a pin to no ground, a channel to what is not created.
pub fn draft(
    catalogue: &Catalogue,
    grounds: &[Ground],
    know: &Knowledge,
    wanted: &[Wanted],
    channels: &[NamedChannel],
    held: &[Held],
) -> Result<Draft> {
    let roots = wanted
        .iter()
        .map(|wanted| Ok((catalogue.find(&wanted.offcode)?, priority_of(wanted)?)))
        .collect::<Result<Vec<(Arc<Manifest>, _)>>>()?;
    let closure = closure::resolve(&roots, catalogue.manifests())?;
    let member = |guid: Guid| closure.members.iter().position(|member| member.manifest.package.guid == guid);
    let mut wishes = Wishes::default();
    for held in held {
        let Some(member) = member(held.offcode) else { continue };
        wishes.pins.push((member, held.ground));
        wishes.held.push((member, held.ends.clone()));
    }
    for (wanted, (root, _)) in wanted.iter().zip(&roots) {
        let Some(member) = member(root.package.guid) else { continue };
        if let Some(site) = &wanted.pin {
            let ground = grounds.iter().position(|ground| ground.site == *site).ok_or_else(|| {
                let known: Vec<_> = grounds.iter().map(|ground| ground.site.to_string()).collect();
                Fault::new(
                    format!("offcode {} at {site}", wanted.offcode),
                    format!("this runtime has no such site; it has {}", known.join(", ")),
                    "name one of these, or add the site",
                )
            })?;
            wishes.pins.push((member, ground));
        }
        wishes.traffic.push(Traffic {
            from: End::Application,
            to: End::Member(member),
            channel: None,
            rate: wanted.rate,
        });
    }
    for channel in channels {
        let end = |party: &Party| match party {
            Party::Application => Ok(End::Application),
            Party::Offcode(name) => {
                let guid = catalogue
                    .find(name)
                    .map_err(|fault| fault.within(format!("channel {}", channel.name)))?
                    .package
                    .guid;
                member(guid).map(End::Member).ok_or_else(|| {
                    let cause = format!("offcode {name} is neither created nor required by one that is");
                    Fault::new(format!("channel {}", channel.name), cause, "create it, or attach another")
                })
            }
        };
        let at = |end, side| {
            let End::Member(member) = end else { return None };
            let (name, origin) = (channel.name.clone(), Origin::File(channel.place.clone()));
            let (specification, attached) = (channel.specification, channel.to.len());
            Some((member, possible::End { name, specification, side, attached, origin }))
        };
        let from = end(&channel.from)?;
        wishes.ends.extend(at(from, Side::Creator));
        for to in &channel.to {
            let to = end(to)?;
            wishes.traffic.push(Traffic { from, to, channel: Some(channel.name.clone()), rate: channel.rate });
            wishes.ends.extend(at(to, Side::Attached));
        }
    }
    let body = |manifest: &Manifest, kind| catalogue.facts(manifest, kind);
    let place = |origin: &Origin| catalogue.place(origin);
    let laid = layout::lay_out(&closure, grounds, (&body, &place), know, &wishes);
    Ok(Draft { closure, laid })
}

/// What tells builds apart, for [`Knowledge::build`].
pub fn build(catalogue: &Catalogue) -> impl Fn(&Manifest, Option<SiteKind>) -> Option<Build> + '_ {
    |manifest, kind| match kind {
        Some(kind) => catalogue.code(manifest, kind).ok().map(|code| Build::of(manifest, &code)),
        None => Some(Build::whole(catalogue, manifest)),
    }
}

fn priority_of(wanted: &Wanted) -> Result<Option<u32>> {
    let mut attributes = Attributes::default();
    for (name, value) in &wanted.attributes {
        attributes.set(name, value).map_err(|fault| fault.within(format!("offcode {}", wanted.offcode)))?;
    }
    Ok(attributes.get(OFFLOAD_PRIORITY).and_then(|value| value.parse().ok()))
}
