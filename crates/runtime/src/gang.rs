//! Starting offcodes together: all of them, or none (HYDRA sections 1.2.1 and 1.4).

use std::sync::Arc;

use machine::{Fault, Result};
use offcode::manifest::StateKind;
use offcode::{Cast, Channel, Manifest, Specification};

use crate::layout::peers_name;
use crate::possible::Carriage;
use crate::site::{self, Deployment, OUT_OF_BAND, SiteDriver, Slot, Unfit};
use crate::switchboard::{BridgeId, PartyId, Switchboard};

/// An offcode that is to be started, and where.
pub(crate) struct Member {
    pub deployment: Deployment,
    /// Index of the site among the runtime's.
    pub site: usize,
    pub priority: u32,
    pub peers: Vec<Peer>,
    /// Source positions of the attributes that the application sets.
    pub places: Vec<(String, String)>,
}

/// A peer that a member's manifest requires, by its place there.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Peer {
    /// Another member.
    Member(usize),
    /// An offcode that runs already.
    Running(Seated),
}

/// The place of an offcode.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seated {
    pub site: usize,
    pub slot: Slot,
    pub party: PartyId,
    /// Whether the offcode can be moved and is where memory is not shared: others then hold ends in memory here,
    /// between which and the site the switchboard relays.
    pub bridged: bool,
}

/// Bridges by party, in the order of each one's channels.
pub(crate) type Bridged = Vec<(PartyId, BridgeId)>;

/// A phase of the start, as faults name it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Deploying,
    Connecting,
    Initializing,
    /// Setting this attribute.
    Setting(String),
    Starting,
}

/// Deploys by priority, connects, initializes all, then starts all. On any failure everything is taken back in reverse
/// order, and the fault says which offcode, at which site, in which phase and why.
pub(crate) fn start(
    members: &[Member],
    sites: &mut [Box<dyn SiteDriver>],
    switchboard: &Switchboard,
) -> Result<(Vec<Seated>, Bridged)> {
    let mut bridged = Bridged::new();
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|&m| std::cmp::Reverse(members[m].priority));
    let mut seats: Vec<Option<Seated>> = vec![None; members.len()];
    match attempt(members, &order, (&mut seats, &mut bridged), sites, switchboard) {
        Ok(()) => Ok((seats.into_iter().flatten().collect(), bridged)),
        Err(failed) => {
            let (member, phase, fault) = *failed;
            bridged.iter().for_each(|(_, bridge)| drop(switchboard.take_back(*bridge)));
            let left = roll_back(&order, &seats, sites, switchboard);
            let member = &members[member];
            let what = match phase {
                Phase::Deploying => "deploying it".to_owned(),
                Phase::Connecting => "connecting its channels".to_owned(),
                Phase::Initializing => "initializing it".to_owned(),
                Phase::Setting(name) => {
                    let place = member.places.iter().find(|(attribute, _)| *attribute == name);
                    format!("setting {name} ({})", place.map_or("of its manifest", |(_, place)| place))
                }
                Phase::Starting => "starting it".to_owned(),
            };
            let outer = format!("offcode {} at {}: {what}", member.deployment.name, sites[member.site].site());
            let rolled = match left.as_slice() {
                [] if members.len() > 1 => format!("; all {} offcodes of the gang were rolled back", members.len()),
                [] => "; it was rolled back".into(),
                left => format!("; rolled back, but {}", left.join("; ")),
            };
            Err(Fault::new(
                format!("{outer}: {}", fault.subject()),
                format!("{}{rolled}", fault.cause().trim_end_matches('.')),
                fault.next(),
            ))
        }
    }
}

type Failed = Box<(usize, Phase, Fault)>;

fn attempt(
    members: &[Member],
    order: &[usize],
    (seats, bridged): (&mut [Option<Seated>], &mut Bridged),
    sites: &mut [Box<dyn SiteDriver>],
    switchboard: &Switchboard,
) -> Result<(), Failed> {
    for &m in order {
        let (member, failed) = (&members[m], |phase| move |fault| Box::new((m, phase, fault)));
        let site = &mut sites[member.site];
        let slot = site.deploy(member.deployment.clone()).map_err(failed(Phase::Deploying))?;
        // Until the switchboard has the channel, the rollback removes the slot alone.
        let fixed = member.deployment.manifest.package.state == StateKind::FixedPlace;
        let is_bridged = !fixed && !site.site().kind().maps_memory();
        let connected = site.connect(slot, "", OUT_OF_BAND).and_then(|near| match is_bridged {
            true => switchboard.bridge_anew("", near).map(|(end, bridge)| (end, Some(bridge))),
            false => Ok((near, None)),
        });
        match connected {
            Ok((end, bridge)) => {
                let party = switchboard.add(&member.deployment.name, end);
                bridged.extend(bridge.map(|bridge| (party, bridge)));
                seats[m] = Some(Seated { site: member.site, slot, party, bridged: is_bridged });
            }
            Err(fault) => {
                drop(site.remove(slot));
                return Err(failed(Phase::Connecting)(fault));
            }
        }
    }
    for &m in order {
        join_peers(members, m, (seats, bridged), sites, switchboard)
            .map_err(|fault| Box::new((m, Phase::Connecting, fault)))?;
    }
    let seated = |m: usize, seats: &[Option<Seated>]| seats[m].map(|seat| (seat.site, seat.slot));
    for &m in order {
        let Some((site, slot)) = seated(m, seats) else { continue };
        let attributes = &members[m].deployment.attributes;
        site::begin(sites[site].as_mut(), slot, attributes).map_err(|Unfit { attribute, fault }| {
            Box::new((m, attribute.map_or(Phase::Initializing, Phase::Setting), fault))
        })?;
    }
    for &m in order {
        let Some((site, slot)) = seated(m, seats) else { continue };
        sites[site].start(slot).map_err(|fault| Box::new((m, Phase::Starting, fault)))?;
    }
    Ok(())
}

fn join_peers(
    members: &[Member],
    m: usize,
    (seats, bridged): (&[Option<Seated>], &mut Bridged),
    sites: &mut [Box<dyn SiteDriver>],
    switchboard: &Switchboard,
) -> Result<()> {
    let manifest: &Arc<Manifest> = &members[m].deployment.manifest;
    let Some(from) = seats[m] else { return Ok(()) };
    for (place, (required, peer)) in manifest.software.peers.iter().zip(&members[m].peers).enumerate() {
        let to = match peer {
            Peer::Running(seat) => *seat,
            Peer::Member(other) => match seats[*other] {
                Some(seat) => seat,
                None => continue,
            },
        };
        match &required.channel {
            None => switchboard.link(from.party, place as u8, to.party),
            Some(specification) => {
                let theirs = peers_name(&members[m].deployment.name, &required.name);
                let made = join(sites, switchboard, (from, &required.name), (to, &theirs), *specification);
                bridged.extend(made.map_err(|fault| fault.within(format!("channel '{}'", required.name)))?);
            }
        }
    }
    Ok(())
}

/// Joins two offcodes, wherever they are, by a channel; each gives its own name to it.
pub(crate) fn join(
    sites: &mut [Box<dyn SiteDriver>],
    switchboard: &Switchboard,
    (from, our_name): (Seated, &str),
    (to, their_name): (Seated, &str),
    specification: Specification,
) -> Result<Bridged> {
    let kind = |seated: Seated, sites: &[Box<dyn SiteDriver>]| sites[seated.site].site().kind();
    let carriage = Carriage::between(kind(from, sites), kind(to, sites));
    if carriage == Carriage::Memory && specification.cast == Cast::Multicast {
        let (writer, readers) = ports::channel::multicast(&specification, 1)?;
        sites[from.site].adopt(from.slot, our_name, Box::new(writer))?;
        for reader in readers {
            sites[to.site].adopt(to.slot, their_name, Box::new(reader))?;
        }
        return Ok(Bridged::new());
    }
    // To a reader elsewhere a multicast channel is one more channel with two ends.
    let specification = Specification { cast: Cast::Unicast, ..specification };
    let mut bridged = Bridged::new();
    // The end that one side makes for the other.
    let mut reach = |side: Seated, name: &str, sites: &mut [Box<dyn SiteDriver>]| -> Result<Box<dyn Channel>> {
        let near = sites[side.site].connect(side.slot, name, specification)?;
        if !side.bridged {
            return Ok(near);
        }
        let (end, bridge) = switchboard.bridge_anew(name, near)?;
        bridged.push((side.party, bridge));
        Ok(end)
    };
    match carriage {
        Carriage::Memory | Carriage::Attacheds => {
            let end = reach(to, their_name, sites)?;
            sites[from.site].adopt(from.slot, our_name, end)?;
        }
        Carriage::Creators => {
            let end = reach(from, our_name, sites)?;
            sites[to.site].adopt(to.slot, their_name, end)?;
        }
        Carriage::Relay
            if sites[from.site].connection().is_some()
                && sites[from.site].connection() == sites[to.site].connection() =>
        {
            sites[from.site].join_here([(from.slot, our_name), (to.slot, their_name)], specification)?;
        }
        Carriage::Relay => {
            let one = reach(from, our_name, sites)?;
            let other = reach(to, their_name, sites)?;
            switchboard.relay(one, other, Some((from.party, our_name.into())));
        }
    }
    Ok(bridged)
}

/// Removes the started offcodes, the last first. Returns what could not be removed.
fn roll_back(
    order: &[usize],
    seats: &[Option<Seated>],
    sites: &mut [Box<dyn SiteDriver>],
    switchboard: &Switchboard,
) -> Vec<String> {
    let mut left = Vec::new();
    for seat in order.iter().rev().filter_map(|&m| seats[m]) {
        switchboard.remove(seat.party);
        if let Err(fault) = sites[seat.site].remove(seat.slot) {
            left.push(format!("{} keeps a part: {}", sites[seat.site].site(), fault.cause()));
        }
    }
    left
}
