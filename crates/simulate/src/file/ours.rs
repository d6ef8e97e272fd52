//! `profile = "plimsoll"`: the production engine of each rank in the place of a protocol of constants.
//!
//! Cores, clocks, link and mapping of the file become the engines' [`Settings`]; what these cannot express is refused. This
//! machine's costs stand in for constants that the file does not give.

use std::collections::BTreeMap;

use machine::NetworkKind;
use machine::costs::store;
use machine::fault::{Fault, Result};
use machine::reading::Reading;

use super::{LinkOf, MachineOf, Mapping, PlaceOf, Protocol, WaitingOf};
use crate::Program;
use crate::cluster::profile::{Card, Constant, Place, Profile, Progress, Waiting};
use crate::cluster::{Busy, Cluster, Finished, Host, Seat};
use crate::engines::{self, Hosts, Placement, Seated, Settings};

pub const NAME: &str = "plimsoll";

/// A cost of the settings, in ps, for which the file has a constant in ns.
type Cost = fn(&mut Settings) -> &mut Reading<f64>;
type Row = (&'static str, &'static str, Cost);

const WITHIN: [Row; 7] = [
    ("within.message", "ns", |of| &mut of.within.work.message),
    ("within.packet", "ns", |of| &mut of.within.work.packet),
    ("within.byte", "ns/B", |of| &mut of.within.work.byte),
    ("within.read", "ns", |of| &mut of.within.work.read),
    ("within.fetched", "ns/B", |of| &mut of.within.work.fetched),
    ("within.latency", "ns", |of| &mut of.within.latency),
    ("within.wire", "ns/B", |of| &mut of.within.wire),
];

const BETWEEN: [Row; 5] = [
    ("between.message", "ns", |of| &mut of.between.work.message),
    ("between.packet", "ns", |of| &mut of.between.work.packet),
    ("between.byte", "ns/B", |of| &mut of.between.work.byte),
    ("between.latency", "ns", |of| &mut of.between.latency),
    ("between.wire", "ns/B", |of| &mut of.between.wire),
];

const CORE: [Row; 3] = [
    ("handover.message", "ns", |of| &mut of.handover),
    ("handover.byte", "ns/B", |of| &mut of.copied),
    ("turn", "ns", |of| &mut of.turn),
];

fn refused<T>(key: impl Into<String>, cause: impl Into<String>, next: impl Into<String>) -> Result<T> {
    Err(Fault::new(key, cause, next))
}

/// Refuses keys that only this profile has, for the others.
pub fn check_others(link: &LinkOf, protocol: &Protocol) -> Result<()> {
    let LinkOf { loss, seed, .. } = link;
    let keys = [
        ("link.loss", loss.is_some()),
        ("link.seed", seed.is_some()),
        ("protocol.network", protocol.network.is_some()),
    ];
    match keys.iter().find(|(_, given)| *given) {
        Some((key, _)) => {
            let cause = format!("profile {} loses nothing and has one network", protocol.profile);
            refused(*key, cause, "leave it out, or choose profile = \"plimsoll\"")
        }
        None => Ok(()),
    }
}

/// Refuses keys for what the engine decides itself, or for what is not known.
fn check_keys(
    machines: &[MachineOf],
    link: &LinkOf,
    protocol: &Protocol,
    mapping: &Mapping,
    spread: bool,
) -> Result<()> {
    let engine = matches!(protocol.place, Some(PlaceOf::Engine));
    if matches!(protocol.place, Some(PlaceOf::Softirq | PlaceOf::Device)) {
        let cause = "plimsoll's engine runs in its rank or on a core of the host";
        return refused("protocol.place", cause, "choose place = \"rank\" or \"engine\"");
    }
    if protocol.progress.is_some() {
        let cause = "place decides it: at rank messages move in calls, at engine always";
        return refused("protocol.progress", cause, "leave it out, and choose the place");
    }
    if matches!(protocol.waiting, Some(WaitingOf::Sleep)) {
        let cause = "ranks of plimsoll poll while they wait";
        return refused("protocol.waiting", cause, "choose waiting = \"spin\", or leave it out");
    }
    if mapping.slice_ms.is_some() {
        let cause = "ranks of plimsoll's engines have a core each, and no slices";
        return refused("mapping.slice_ms", cause, "leave it out");
    }
    if let Some(network) =
        protocol.network.as_deref().filter(|network| NetworkKind::ALL.iter().all(|kind| kind.name() != *network))
    {
        let next = format!("choose one of {}", NetworkKind::ALL.map(NetworkKind::name).join(", "));
        return refused("protocol.network", format!("plimsoll has no network {network}"), next);
    }
    if let Some(loss) = link.loss.filter(|loss| !(0.0..1.0).contains(loss)) {
        return refused("link.loss", format!("{loss} is no part of the packets below 1"), "give one like 0.01");
    }
    let between = [
        ("protocol.network", protocol.network.is_some()),
        ("link.loss", link.loss.is_some()),
        ("link.seed", link.seed.is_some()),
    ];
    if let Some((key, _)) = between.iter().find(|(_, given)| *given && !spread) {
        return refused(
            *key,
            "all ranks are on one host, and nothing passes the link",
            "leave it out, or map a rank to another host",
        );
    }
    if link.seed.is_some() && link.loss.is_none() {
        return refused("link.seed", "nothing is drawn where no packet is lost", "leave it out, or give link.loss");
    }
    for MachineOf { name, engines, interrupts, .. } in machines {
        let key = |key: &str| format!("machine {name}: {key}");
        if interrupts.is_some() {
            let cause = "what the kernel does for a packet is part of plimsoll's measured costs, on no core of its own";
            return refused(key("interrupts"), cause, "leave it out");
        }
        if engines.len() > 1 {
            return refused(key("engines"), "plimsoll has one engine core a host", "name one core");
        }
        if !engine && !engines.is_empty() {
            return refused(
                key("engines"),
                "at place rank no core is an engine's",
                "leave it out, or choose place = \"engine\"",
            );
        }
    }
    Ok(())
}

/// The settings from the file's protocol, completed by this machine's costs.
pub fn protocol(
    machines: &[MachineOf],
    link: &LinkOf,
    protocol: &Protocol,
    mapping: &Mapping,
    seats: &[Seat],
) -> Result<(Profile, Settings)> {
    let spread = seats.iter().any(|seat| seat.host != seats[0].host);
    check_keys(machines, link, protocol, mapping, spread)?;
    let (place, placement) = match protocol.place {
        Some(PlaceOf::Engine) => (Place::Engine, Placement::Core),
        _ => (Place::Rank, Placement::App),
    };
    let network = protocol.network.as_deref().unwrap_or(NetworkKind::Udp.name());
    let mut rows = WITHIN.to_vec();
    rows.extend(BETWEEN.iter().filter(|_| spread));
    rows.extend(CORE.iter().filter(|_| place == Place::Engine));
    let given = protocol.given();
    let known = match rows.iter().all(|(name, ..)| given.contains_key(*name)) {
        true => store::Known::default(),
        false => store::live()?,
    };
    let mut settings = Settings::of(&known.costs, placement, 1, network, 0.0);
    // No network of plimsoll reads memory remotely, and at `app` no handover takes place.
    let Settings { between, handover, copied, .. } = &mut settings;
    let mut unused = vec![&mut between.work.read, &mut between.work.fetched];
    unused.extend([handover, copied].into_iter().filter(|_| place == Place::Rank));
    unused.into_iter().for_each(|cost| *cost = Reading::Modelled(0.0));
    (settings.between.loss, settings.seed) = (link.loss.unwrap_or(0.0), link.seed.unwrap_or(1));
    let source = known.note.map_or("plimsoll calibrate".to_owned(), |note| format!("plimsoll calibrate; {note}"));
    let calibrated = |(name, unit, cost): &Row| Constant {
        name,
        value: cost(&mut settings).clone().map(|ps| ps / 1e3),
        unit,
        source: source.clone(),
    };
    let mut constants: Vec<Constant> = rows.iter().map(calibrated).collect();
    constants.extend(Card::Onload.watts());
    let names: Vec<(&str, &str)> = constants.iter().map(|of| (of.name, of.unit)).collect();
    Profile::replace(&mut constants, &names, &given)?;
    for (name, _, cost) in rows {
        let Some(constant) = constants.iter().find(|of| of.name == name) else { continue };
        let next = "run plimsoll calibrate, or give the constant in [protocol.constants]";
        *cost(&mut settings) = match &constant.value {
            Reading::Absent { reason } => return refused(format!("constant {name}"), reason, next),
            Reading::NotPermitted { reason, next } => return refused(format!("constant {name}"), reason, next),
            value => value.clone().map(|ns| ns * 1e3),
        };
    }
    let shape = (place, Progress::Calls, Waiting::Spin, false);
    Ok((Profile::of(NAME, shape, constants), settings))
}

/// Sets the ranks' cores, and the link under the packets.
pub fn seat(settings: &mut Settings, cluster: &Cluster) -> Result<()> {
    let engine_of = |host: &Host| host.engines.first().filter(|_| settings.placement == Placement::Core).copied();
    let mut on: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for (rank, Seat { host: at, core }) in cluster.seats.iter().enumerate() {
        let host = &cluster.hosts[*at];
        if let Some(other) = on.insert((*at, *core), rank) {
            let cause = format!(
                "it shares {} of {} with rank {other}, and ranks of plimsoll's engines have a core each",
                host.cores[*core].id, host.name
            );
            return refused(format!("mapping, rank {rank}"), cause, "map it to a core of its own");
        }
        let first = cluster.seats.iter().find(|seat| seat.host == *at).map_or(*core, |seat| seat.core);
        let near = engine_of(host).unwrap_or(first);
        if host.cores[near].package != host.cores[*core].package {
            let cause = format!(
                "{} of {} is on another socket than {}, and plimsoll calibrate measures cores that share one",
                host.cores[*core].id, host.name, host.cores[near].id
            );
            return refused(format!("mapping, rank {rank}"), cause, "map it to the same socket");
        }
    }
    let pace = |host: &Host, core: usize| host.cores[core].dilation;
    let engines = cluster.hosts.iter().map(|host| engine_of(host).map_or(1.0, |core| pace(host, core)));
    let ranks = cluster.seats.iter().map(|seat| (seat.host, pace(&cluster.hosts[seat.host], seat.core)));
    let (engines, ranks) = (engines.collect(), ranks.collect());
    settings.hosts = Hosts::Seated(Seated { ranks, engines, clocked: cluster.clocked });
    let plus = |reading: &mut Reading<f64>, ps: f64| *reading = reading.clone().map(|of| of + ps);
    plus(&mut settings.between.latency, cluster.link.latency as f64);
    plus(&mut settings.between.wire, cluster.link.byte * 1e3);
    Ok(())
}

/// Runs a program over the engines, and returns the result as of any cluster.
pub fn run(program: &mut dyn Program, cluster: &Cluster, settings: &Settings) -> Result<(Finished, engines::Outcome)> {
    let outcome = engines::simulate(program, settings)?;
    let idle = |host: &Host| vec![Busy::default(); host.cores.len()];
    let mut cores: Vec<Vec<Busy>> = cluster.hosts.iter().map(idle).collect();
    for ((Seat { host, core }, split), busy) in cluster.seats.iter().zip(&outcome.splits).zip(&outcome.busy) {
        let computing = split.computing;
        cores[*host][*core] = Busy { computing, messages: busy - computing, protocol: 0 };
    }
    for ((host, busy), cores) in cluster.hosts.iter().zip(&outcome.engines).zip(&mut cores) {
        cores[host.engines[0]].protocol = *busy;
    }
    let finished = Finished {
        ranks: outcome.ranks.clone(),
        splits: outcome.splits.clone(),
        cores,
        devices: vec![0; cluster.hosts.len()],
        charged: outcome.busy.iter().chain(&outcome.engines).sum(),
        messages: outcome.messages,
        sent: outcome.sent,
        received: outcome.received,
        memory: outcome.memory,
    };
    Ok((finished, outcome))
}
