//! Costs of messages between a cluster's ranks, measured as `plimsoll calibrate` does on machines: by ping-pongs and streams.

use machine::costs::{Interval, Item, Row, Way};
use machine::fault::Result;
use machine::{Bytes, Costs, Nanoseconds, Reading, SiteKind};
use whatif::model::Ways;
use whatif::replay::Buffer;

use super::super::programs::{Lazy, Phases, PingPong, Stream};
use super::profile::Place;
use super::{Cluster, Host, Seat, simulate};

/// Costs and buffer of a cluster's messages, for a replay.
#[derive(Debug, Clone)]
pub struct Carried {
    pub costs: Costs,
    pub ways: Ways,
    /// The buffer of a connection.
    pub buffer: Buffer,
}

const SIZES: [u64; 6] = [1, 1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20];
const ROUNDS: u32 = 4;
const MESSAGES: u32 = 32;

/// Between two hosts and within one, where there are two cores for it: such as take no interrupts, if there are any.
///
/// # Errors
/// As [`simulate`].
pub fn measure(cluster: &Cluster) -> Result<Carried> {
    let way = |network: Option<&str>| Way {
        carrier: cluster.profile.name.clone(),
        mpi: "simulated".into(),
        placement: SiteKind::App,
        network: network.map(Into::into),
    };
    let ways = Ways {
        within: way(None),
        between: way(Some("link")),
        shared_links: false,
        eager: Some(Bytes(cluster.profile.eager)),
    };
    let seats: Vec<Vec<Seat>> =
        cluster.hosts.iter().enumerate().map(|(at, host)| quietest(cluster, at, host)).collect();
    let within = seats.iter().find_map(|of| Some((&ways.within, vec![*of.first()?, *of.get(1)?])));
    let mut first = seats.iter().filter_map(|of| of.first());
    let between = first.next().zip(first.next()).map(|(one, other)| (&ways.between, vec![*one, *other]));
    let mut rows = Vec::new();
    for (way, seats) in within.into_iter().chain(between) {
        let pair = Cluster { seats, ..cluster.clone() };
        for size in SIZES {
            let row = |item, ns: f64| Row {
                item,
                size: Some(Bytes(size)),
                cost: Reading::Modelled(Interval::exactly(ns)),
                source: "simulated".into(),
                taken: Nanoseconds(0),
            };
            let trips = ns(PingPong { bytes: size, rounds: ROUNDS }, &pair)? / f64::from(2 * ROUNDS);
            let stream = |messages| ns(Stream { bytes: size, messages }, &pair);
            let message = (stream(2 * MESSAGES)? - stream(MESSAGES)?) / f64::from(MESSAGES);
            rows.extend([row(Item::HalfTrip(way.clone()), trips), row(Item::Message(way.clone()), message)]);
        }
    }
    let [socket, library] = [cluster.profile.socket, cluster.profile.library].map(|size| Bytes(size.max(1)));
    let buffer = if socket.0 == u64::MAX { Buffer::Unlimited } else { Buffer::Behind { socket, library } };
    Ok(Carried { costs: Costs::of(rows), ways, buffer })
}

fn ns(program: impl Phases, cluster: &Cluster) -> Result<f64> {
    Ok(simulate(&mut Lazy::of(program), cluster)?.total() as f64 / 1e3)
}

/// The cores that ranks can have, those first that interrupts leave alone, of these the ones beside the interrupt core.
fn quietest(cluster: &Cluster, at: usize, host: &Host) -> Vec<Seat> {
    let engine = |core: &usize| cluster.profile.place == Place::Engine && host.engines.contains(core);
    let mut cores: Vec<usize> = (0..host.cores.len()).filter(|core| !engine(core)).collect();
    let package = |core: usize| host.cores[core].package;
    cores.sort_by_key(|core| (*core == host.interrupts, package(*core) != package(host.interrupts)));
    cores.into_iter().map(|core| Seat { host: at, core }).collect()
}
