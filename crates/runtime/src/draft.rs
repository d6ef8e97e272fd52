//! From what an application asks for to a layout: the one way, for `create_offcode` and for `plimsoll plan`.

use std::sync::Arc;

use machine::{Costs, Fault, Result};
use offcode::{Attributes, Guid, Manifest, OFFLOAD_PRIORITY};
use placement::layout::Layout;

use crate::app_file::{NamedChannel, Party};
use crate::catalogue::Catalogue;
use crate::closure::{self, Closure};
use crate::create::Wanted;
use crate::layout::{self, End, Ground, Traffic, Wishes};

/// Everything that is created together, and its layout over the grounds given.
#[derive(Debug, Clone)]
pub struct Draft {
    pub closure: Closure,
    pub layout: Layout,
}

/// Resolves what `wanted` needs and lays it out. `channels` are the application's own; `held` are offcodes that have
/// their ground already.
///
/// # Errors
/// An offcode that nobody knows, a requirement that nothing meets, a pin to no ground, a channel to what is not created.
pub fn draft(
    catalogue: &Catalogue,
    grounds: &[Ground],
    costs: &Costs,
    wanted: &[Wanted],
    channels: &[NamedChannel],
    held: &[(Guid, usize)],
) -> Result<Draft> {
    let roots = wanted
        .iter()
        .map(|wanted| Ok((catalogue.find(&wanted.offcode)?, priority_of(wanted)?)))
        .collect::<Result<Vec<(Arc<Manifest>, _)>>>()?;
    let closure = closure::resolve(&roots, catalogue.manifests())?;
    let member = |guid: Guid| closure.members.iter().position(|member| member.manifest.package.guid == guid);
    let mut wishes = Wishes::default();
    wishes.pins.extend(held.iter().filter_map(|&(guid, ground)| member(guid).map(|member| (member, ground))));
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
        wishes.traffic.push(Traffic { from: End::Application, to: End::Member(member), rate: wanted.rate });
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
        let from = end(&channel.from)?;
        for to in &channel.to {
            wishes.traffic.push(Traffic { from, to: end(to)?, rate: channel.rate });
        }
    }
    let body = |manifest: &Manifest, kind| catalogue.code(manifest, kind).map(|code| code.kind());
    let layout = layout::lay_out(&closure, grounds, &body, costs, &wishes);
    Ok(Draft { closure, layout })
}

fn priority_of(wanted: &Wanted) -> Result<Option<u32>> {
    let mut attributes = Attributes::default();
    for (name, value) in &wanted.attributes {
        attributes.set(name, value).map_err(|fault| fault.within(format!("offcode {}", wanted.offcode)))?;
    }
    Ok(attributes.get(OFFLOAD_PRIORITY).and_then(|value| value.parse().ok()))
}
