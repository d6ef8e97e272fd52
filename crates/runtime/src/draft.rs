//! From an application's wishes to a layout: the one way, for `create_offcode` and for `plimsoll plan`.

use machine::{Fault, Result, SiteKind};
use offcode::{Attributes, Manifest, OFFLOAD_PRIORITY};

use crate::app_file::{NamedChannel, Party};
use crate::catalogue::Catalogue;
use crate::closure::{self, Asked, Closure, Member, Standing};
use crate::ground::Ground;
use crate::instance;
use crate::layout::{self, FlowEnd, Knowledge, Laid, Traffic, Wishes};
use crate::measured::Build;
use crate::possible::{self, Origin, Side};
use crate::wanted::Wanted;

/// Everything that is created together, and its layout over the grounds given.
#[derive(Debug, Clone)]
pub struct Draft {
    pub closure: Closure,
    pub laid: Laid,
}

/// An instance that runs already.
#[derive(Debug, Clone)]
pub struct Held {
    pub standing: Standing,
    /// The ground where it has to stay; `None`: it is to get a new place.
    pub ground: Option<usize>,
    /// The ends of its channels.
    pub ends: Vec<possible::End>,
}

/// Resolves what `wanted` needs and lays it out. `channels` are the application's own; `held` are instances that are there
/// already.
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
    let asked = wanted.iter().map(|wanted| {
        Ok(Asked {
            offcode: catalogue.find(&wanted.offcode)?.package.guid,
            instance: wanted.instance.clone(),
            versions: wanted.version.clone(),
            peers: wanted.peers.clone(),
            priority: priority_of(wanted)?,
        })
    });
    let standing: Vec<Standing> = held.iter().map(|held| held.standing.clone()).collect();
    let closure = closure::resolve(&asked.collect::<Result<Vec<_>>>()?, &standing, catalogue.manifests())?;
    let mut wishes = Wishes::default();
    for (member, of) in closure.members.iter().enumerate() {
        let Some(held) = of.standing.map(|at| &held[at]) else { continue };
        wishes.pins.extend(held.ground.map(|ground| (member, ground)));
        wishes.held.push((member, held.ends.clone()));
    }
    // The offcodes asked for come first among the members.
    for (member, wanted) in wanted.iter().enumerate() {
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
            from: FlowEnd::Application,
            to: FlowEnd::Member(member),
            channel: None,
            rate: wanted.rate,
        });
    }
    for channel in channels {
        let end = |party: &Party| match party {
            Party::Application => Ok(FlowEnd::Application),
            Party::Offcode(name) => {
                let outer = |fault: Fault| fault.within(format!("channel {}", channel.name));
                let members = closure.members.iter().enumerate();
                let named = members.map(|(n, member)| (n, member.name.as_str(), &member.manifest.package));
                if let Some(member) = instance::meant(name, named).map_err(outer)? {
                    return Ok(FlowEnd::Member(member));
                }
                catalogue.find(name).map_err(outer)?;
                let cause = format!("offcode {name} is neither created nor required by one that is");
                Err(Fault::new(format!("channel {}", channel.name), cause, "create it, or attach another"))
            }
        };
        let at = |end, side| {
            let FlowEnd::Member(member) = end else { return None };
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

/// The builds of members, for [`Knowledge::build`].
pub fn build(catalogue: &Catalogue) -> impl Fn(&Member, Option<SiteKind>) -> Option<Build> + '_ {
    |member, kind| match kind {
        Some(kind) => catalogue.code(&member.manifest, kind).ok().map(|code| Build::of(member, &code)),
        None => Some(Build::whole(catalogue, member)),
    }
}

fn priority_of(wanted: &Wanted) -> Result<Option<u32>> {
    let mut attributes = Attributes::default();
    for (name, value) in &wanted.attributes {
        attributes.set(name, value).map_err(|fault| fault.within(format!("offcode {}", wanted.offcode)))?;
    }
    Ok(attributes.get(OFFLOAD_PRIORITY).and_then(|value| value.parse().ok()))
}
