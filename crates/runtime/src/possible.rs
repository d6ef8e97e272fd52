//! What can be where, and what carries a channel. One set of rules over data: plans, starts and sites ask it, so that what
//! a plan accepts starts. Beyond it only the system can refuse: rights, memory, the verifier, what a guest does.
//!
//! Each rule concerns one end alone. So a layout needs no constraint between pairs of places for channels: an offcode
//! that satisfies its own ends can be joined to every other that does.

mod facts;
mod guest;
#[cfg(test)]
mod tests;

use machine::channel::{Cast, Delivery, Policy};
use machine::{BodyKind, Bytes, Fault, SiteKind, XdpMode};
use offcode::manifest::Target;
use offcode::odf::Part;
use offcode::service::TIMERS;
use offcode::{Guid, Manifest, Service, Specification};
use ports::channel::MOST_READERS;

use crate::code::libraries_of;
use crate::ground::Ground;
pub(crate) use facts::map_name;
pub use facts::{Facts, Hook, Pair, Slots};

/// The rule that refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// The site itself cannot be used now.
    Closed,
    Target,
    Mode,
    Memory,
    Environment,
    Body,
    /// Each channel of an offcode needs a name of its own.
    Name,
    Policy,
    Cast,
    Buffers,
    /// The body has ends for fewer channels.
    Channels,
    /// An out-of-band channel needs a body that takes calls.
    Calls,
}

/// The source of a demand.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Origin {
    /// In the manifest of this offcode in this version.
    Manifest(Guid, String, Part),
    /// 'APP.toml:12:1'.
    File(String),
    /// A call of the runtime.
    Program,
}

impl Origin {
    pub fn of(manifest: &Manifest, part: Part) -> Origin {
        Origin::Manifest(manifest.package.guid, manifest.package.version.clone(), part)
    }
}

/// The reason why something cannot be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    pub rule: Rule,
    /// A sentence without its subject and without a full stop.
    pub sentence: String,
    /// Advice what to do about it.
    pub next: String,
    /// The source of the refused demand; `None`: nobody asked for it in writing.
    pub at: Option<Origin>,
}

impl Why {
    fn new(rule: Rule, sentence: impl Into<String>, next: impl Into<String>) -> Why {
        Why { rule, sentence: sentence.into(), next: next.into(), at: None }
    }

    fn at(self, origin: Origin) -> Why {
        Why { at: Some(origin), ..self }
    }

    pub fn fault(self, subject: impl Into<String>) -> Fault {
        Fault::new(subject, self.sentence, self.next)
    }
}

/// A body at a ground.
#[derive(Debug, Clone)]
pub struct Chosen<'a> {
    pub target: &'a Target,
    pub facts: Facts,
}

/// Returns the facts of an offcode's body for a kind of site.
pub type BodyAt<'a> = &'a dyn Fn(&Manifest, SiteKind) -> Result<Facts, Why>;

/// The body of `manifest` that runs at `ground`, with its target.
///
/// # Errors
/// Why none does.
pub fn body<'a>(ground: &Ground, manifest: &'a Manifest, known: BodyAt) -> Result<Chosen<'a>, Why> {
    let kind = ground.site.kind();
    let written = |part| Origin::of(manifest, part);
    if let Some(why) = &ground.closed {
        return Err(Why::new(Rule::Closed, why.clone(), "open the site, or place the offcode elsewhere"));
    }
    let Some(target) = manifest.hardware.iter().find(|target| target.site == kind) else {
        let why = Why::new(
            Rule::Target,
            format!("its manifest names no target of kind {kind}"),
            format!("add <{kind}> to its targets"),
        );
        return Err(why.at(written(Part::Hardware)));
    };
    let refuse = |rule, sentence: String, next: &str, part| Err(Why::new(rule, sentence, next).at(written(part)));
    if let Some(mode) = ground.mode {
        let asked = if target.modes.is_empty() { &[XdpMode::Native][..] } else { &target.modes };
        if !asked.contains(&mode) {
            let sentence = format!("it wants the mode {asked:?}, and the site is in mode {mode:?}").to_lowercase();
            return refuse(Rule::Mode, sentence, "name the site in that mode", Part::Target(kind));
        }
    }
    if target.memory.0 > ground.memory.0 {
        let sentence = format!("it takes {} of memory, and the site has {}", target.memory, ground.memory);
        return refuse(Rule::Memory, sentence, "give the site more, or the offcode less", Part::Target(kind));
    }
    for asked in &manifest.software.environment {
        let offer = ground.environment.iter().find(|offer| offer.is(asked));
        if offer.is_none_or(|offer| offer.version < asked.version) {
            let sentence = lacking(kind, asked, offer);
            let next = "place it at a site that offers it, or leave it out of its environment";
            return refuse(Rule::Environment, sentence, next, Part::Environment(asked.interface));
        }
    }
    let facts = known(manifest, kind)?;
    let limit = manifest.software.is_limited().then_some(target.memory);
    let takes = facts.memory().filter(|takes| limit.is_some_and(|limit| *takes > limit));
    if let Some(takes) = takes {
        let sentence = format!(
            "its {} body takes {takes} from the start, and its target's memory is {}",
            facts.kind(),
            target.memory
        );
        return refuse(
            Rule::Memory,
            sentence,
            "state more for the target, or let the body take less",
            Part::Target(kind),
        );
    }
    if let Some(native) = &ground.native
        && facts == Facts::Native
        && !native.linked.contains(&manifest.package.guid)
    {
        let libraries = libraries_of(manifest);
        let Some(library) = libraries.first() else {
            let sentence = "no native body of it is linked into the agent".to_owned();
            return refuse(Rule::Body, sentence, "bring a wasm body, or an agent that has it", Part::Target(kind));
        };
        if !libraries.iter().any(|library| native.libraries.contains(&library.digest)) {
            let sentence =
                format!("its native library {} is not among those that may load at the agent", library.digest);
            let next = format!(
                "start the agent with --native {}, if it may run there with all rights of the agent; or bring a wasm body",
                library.digest
            );
            return refuse(Rule::Body, sentence, &next, Part::Target(kind));
        }
    }
    if let Facts::Bpf(hook) = &facts
        && ground.site.is_hook_of_agent()
    {
        guest(manifest, hook)?;
    }
    Ok(Chosen { target, facts })
}

/// The reason why sites of this kind lack a service that is asked for.
fn lacking(kind: SiteKind, asked: &Service, offer: Option<&Service>) -> String {
    match offer {
        Some(offer) => format!("it needs service {asked}, and the site's runtime offers {offer}"),
        None if kind.is_hook() && asked.is(&TIMERS) => {
            format!("it needs service {asked}, and programs of a hook run where frames pass: nothing wakes them")
        }
        None => format!("it needs service {asked} of the site's runtime, which does not offer it"),
    }
}

/// Checks that an agent runs this body of a client at a driver hook of its host.
pub(crate) fn guest(manifest: &Manifest, hook: &Hook) -> Result<(), Why> {
    let Some((sentence, next)) = &hook.no_guest else { return Ok(()) };
    let why = Why::new(Rule::Body, sentence.clone(), next.clone());
    Err(why.at(Origin::of(manifest, Part::Body(BodyKind::Bpf))))
}

/// The side of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The end that writes, where the channel is multicast.
    Creator,
    /// An end that reads, where the channel is multicast.
    Attached,
}

/// One end of a specialized channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The channel's name at its offcode.
    pub name: String,
    pub specification: Specification,
    pub side: Side,
    /// Number of ends of the whole channel beside the creator's.
    pub attached: usize,
    pub origin: Origin,
}

/// Checks that an offcode with this body can be at `ground` and have all of these ends.
///
/// # Errors
/// The first that it cannot have.
pub fn ends(ground: &Ground, facts: &Facts, all: &[End]) -> Result<(), Why> {
    for (n, end) in all.iter().enumerate() {
        let refused = |why: Why| {
            let sentence = format!("channel '{}': {}", end.name, why.sentence);
            Why { sentence, ..why }.at(end.origin.clone())
        };
        if all[..n].iter().any(|other| other.name == end.name) {
            let why = Why::new(Rule::Name, "it has one of that name already", "attach it under another name");
            return Err(refused(why));
        }
        if let Facts::Bpf(hook) = facts {
            let pair = hook.pair(&end.name);
            if let Some(other) = all[..n].iter().find(|other| hook.pair(&other.name) == pair) {
                let maps = [map_name("IN", &pair), map_name("OUT", &pair)].join(" and one ");
                let sentence = format!("it has '{}' already, and its object one {maps}", other.name);
                let next = "add OFFCODE_CHANNEL with the channel's name to it, let the two share a channel, or place it at a core";
                return Err(refused(Why::new(Rule::Channels, sentence, next)));
            }
        }
        one(ground, facts, end).map_err(refused)?;
    }
    Ok(())
}

fn one(ground: &Ground, facts: &Facts, end: &End) -> Result<(), Why> {
    let specification = &end.specification;
    shape(specification)?;
    if end.attached > MOST_READERS {
        let sentence = format!("{} offcodes are to be attached, and one channel serves {MOST_READERS}", end.attached);
        return Err(Why::new(Rule::Cast, sentence, "make several channels"));
    }
    if ground.site.kind().maps_memory() {
        return Ok(());
    }
    if end.attached > 1 && end.side == Side::Creator {
        let sentence =
            format!("{} shares no memory with this process, so that one write cannot serve all", ground.site);
        return Err(Why::new(Rule::Cast, sentence, "create a unicast channel to each reader"));
    }
    match facts {
        Facts::Bpf(hook) => {
            let input = at_hook(hook, &end.name, specification)?.input;
            if ground.site.agent().is_some() {
                to_another_host(specification, ground.buffers)?;
            }
            if specification.cast == Cast::Multicast && input.is_none() {
                return Err(Why::new(
                    Rule::Cast,
                    "its object has no map IN to read from",
                    "add OFFCODE_IN(slots) to it",
                ));
            }
            Ok(())
        }
        Facts::Native | Facts::Wasm(_) => to_another_host(specification, ground.buffers),
    }
}

/// Checks that a channel of this kind can exist at all, in memory or elsewhere.
pub fn shape(specification: &Specification) -> Result<(), Why> {
    ports::channel::check(specification)
        .map_err(|fault| Why::new(Rule::Buffers, fault.cause().to_owned(), fault.next().to_owned()))
}

/// Checks that the object of a driver hook has maps for the channel.
pub(crate) fn at_hook(hook: &Hook, channel: &str, specification: &Specification) -> Result<Pair, Why> {
    shape(specification)?;
    let buffers = &specification.buffers;
    if buffers.policy == Policy::ZeroCopy {
        let sentence = "a hook copies messages, and policy zero-copy does not allow it";
        return Err(Why::new(Rule::Policy, sentence, "ask for policy 'any', or place both ends at app or cores"));
    }
    let pair = hook.pairs.get(&hook.pair(channel)).copied().unwrap_or_default();
    if pair.frames {
        return match specification.delivery {
            Delivery::Unreliable => Ok(pair),
            Delivery::Reliable => {
                let sentence = "its object sends frames there, which are lost where nobody reads them in time";
                Err(Why::new(Rule::Channels, sentence, "ask for an unreliable channel"))
            }
        };
    }
    match pair.input {
        None if !pair.output => {
            let sentence = "its object has neither a map IN nor a map OUT";
            Err(Why::new(Rule::Channels, sentence, "add OFFCODE_IN(slots) or OFFCODE_OUT(bytes) to it"))
        }
        Some(Slots { count, bytes }) if buffers.count > count || buffers.size > bytes => {
            let asked = format!("{} buffers of {} are asked for", buffers.count, buffers.size);
            let sentence = format!("{asked}, and its IN has {count} of {bytes}");
            Err(Why::new(Rule::Buffers, sentence, "ask for less, or enlarge IN in the object"))
        }
        _ => Ok(pair),
    }
}

/// Checks that the message engine can carry the channel to a host that takes buffers of `largest` together.
pub(crate) fn to_another_host(specification: &Specification, largest: Bytes) -> Result<(), Why> {
    let buffers = &specification.buffers;
    if buffers.policy == Policy::ZeroCopy {
        let sentence = "policy zero-copy needs memory that both ends map, which two hosts do not have";
        return Err(Why::new(Rule::Policy, sentence, "ask for policy 'any', or place both ends on one host"));
    }
    within(specification, largest)
}

/// Checks that the channel's buffers together are within `largest`.
pub(crate) fn within(specification: &Specification, largest: Bytes) -> Result<(), Why> {
    shape(specification)?;
    let buffers = &specification.buffers;
    if buffers.size.0.saturating_mul(buffers.count.into()) > largest.0 {
        let sentence = format!("{} buffers of {} together exceed {} bytes", buffers.count, buffers.size, largest.0);
        return Err(Why::new(Rule::Buffers, sentence, "choose fewer or smaller ones"));
    }
    Ok(())
}

/// Checks that a body can be called by a peer that has no channel of its own to it.
pub fn called(facts: &Facts, by: &str, origin: Origin) -> Result<(), Why> {
    match facts {
        Facts::Bpf(hook) if !hook.call => {
            let sentence = format!("{by} calls it out of band, and its object has no program call");
            Err(Why::new(Rule::Calls, sentence, "add SEC(\"syscall\") int call, or a channel to the peer").at(origin))
        }
        _ => Ok(()),
    }
}

/// The carrier of a channel between two sites, and so how it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Carriage {
    /// Memory that both ends map.
    Memory,
    /// The creator's site makes it and gives the near end to the other: maps of a hook, the engine to a host.
    Creators,
    /// The same, made by the site of the attached end.
    Attacheds,
    /// Neither site maps memory here: the runtime relays between them.
    Relay,
}

impl Carriage {
    pub fn between(creator: SiteKind, attached: SiteKind) -> Carriage {
        match (creator.maps_memory(), attached.maps_memory()) {
            (true, true) => Carriage::Memory,
            (true, false) => Carriage::Attacheds,
            (false, true) => Carriage::Creators,
            (false, false) => Carriage::Relay,
        }
    }
}
