//! Settings of a simulation over engines: placement, carriers, and costs, given or solved from the machine's costs.

use engine::{Engine, LARGEST_HEADER, LinkConfig, RELIABILITY_HEADER};
use machine::costs::{ENGINE, Item, Way};
use machine::{Bytes, Capabilities, Costs, Nanoseconds, Reading, SiteKind};
use whatif::model::at;

use super::Hosts;

/// The place of the ranks' engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// In each rank, polled in its calls.
    App,
    /// On one core of its own for all engines of a host.
    Core,
}

/// Costs of an engine's work on its core, ps.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// For each send and each receive.
    pub message: Reading<f64>,
    /// For each packet written or taken in.
    pub packet: Reading<f64>,
    /// For each byte of these packets.
    pub byte: Reading<f64>,
    /// For each message read from a peer's memory: a system call.
    pub read: Reading<f64>,
    /// For each byte of such a message.
    pub fetched: Reading<f64>,
}

/// The carrier of packets.
#[derive(Debug, Clone, PartialEq)]
pub struct Carrier {
    /// The link as the engine takes it: largest packet, remote read or not, credit, window and timers. Conversations are
    /// numbered anew.
    pub link: LinkConfig,
    /// The most packets of one rank to another that wait to be received; only where nothing is lost.
    pub slots: u32,
    /// The share of packets that is lost.
    pub loss: f64,
    /// Latency of a packet, ps.
    pub latency: Reading<f64>,
    /// Time per byte on the way, ps: one over the rate. Between hosts each host has one wire in either direction.
    pub wire: Reading<f64>,
    pub work: Work,
}

/// How a program is simulated.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub placement: Placement,
    pub hosts: Hosts,
    pub within: Carrier,
    pub between: Carrier,
    /// Transfer of a cache line between a rank and its engine's core, ps.
    pub handover: Reading<f64>,
    /// Copy of a byte with that line, ps.
    pub copied: Reading<f64>,
    /// Poll of one rank's engine by the engine's core, ps.
    pub turn: Reading<f64>,
    /// Seed of the losses.
    pub seed: u64,
}

impl Settings {
    /// As `plimsoll mpirun` would run it on hosts like this one. `network` is `udp`, `afxdp` or `xdp`; `place` tells where in their
    /// intervals all costs lie, from -1, their least, over 0, their middle, to 1: those of a carrier are all as many times their
    /// middle as its rows are in the geometric mean. With `M(b)`, a message of a stream, and
    /// `E(b)`, the same but no more than half of half a round trip `H(b)`, the rows of placement `app` for three sizes `b` of `k` packets and `n` bytes
    /// of packets, the second the largest that was measured of one packet, give
    /// ```text
    /// byte    = (E1 - E0) / (n1 - n0)
    /// packet  = (E2 - E0 - byte (n2 - n0)) / (k2 - 1); where no eager message has several: half of E0 - byte n0
    /// message = E0 - byte n0 - packet
    /// wire    = (H1 - H0) / (n1 - n0) - 2 byte
    /// latency = H0 - 2 E0 - wire n0
    /// fetched = (M4 - M3) / (b4 - b3), read = M3 - fetched b3 - message - 2 packet: of the smallest size beyond the eager
    ///           limit and the largest up to 16 times it
    /// ```
    /// each at least 0. An engine's core does the same work as a rank's; `copied` is `byte` within a host, `turn` is part of what
    /// was measured: 0. What was never measured is absent, and a fault where it is needed.
    pub fn of(costs: &Costs, placement: Placement, ranks_per_host: u32, network: &str, place: f64) -> Settings {
        let within = Carrier::of(costs, None, place);
        let handover = costs.get(&Item::Handover).reading.map(|interval| 1e3 * at(interval, place));
        let copied = within.work.byte.clone();
        let between = Carrier::of(costs, Some(network), place);
        let turn = Reading::Modelled(0.0);
        let hosts = Hosts::Each(ranks_per_host);
        Settings { placement, hosts, within, between, handover, copied, turn, seed: 1 }
    }
}

/// Packets, or eager limits, of the largest size that costs of bytes are solved from; smaller sizes tell too little of bytes.
const PACKETS: u64 = 16;

impl Carrier {
    /// Shared memory within a host, or a network between hosts.
    pub fn of(costs: &Costs, network: Option<&str>, place: f64) -> Carrier {
        let capabilities = match network {
            None => Capabilities { ordered: true, reliable: true, mtu: Bytes((16 << 10) + 64), remote_read: true },
            Some(_) => Capabilities { ordered: false, reliable: false, mtu: Bytes(1472), remote_read: false },
        };
        let link = LinkConfig::for_port(&capabilities, 0);
        let solved = solve(costs, network, &link, place);
        let reading = |which: fn(&Solved) -> f64| match &solved {
            Ok(solved) => Reading::Modelled(1e3 * solved.times * which(solved)),
            Err(reason) => Reading::absent(reason),
        };
        Carrier {
            slots: 64,
            loss: 0.0,
            latency: reading(|solved| solved.latency),
            wire: reading(|solved| solved.wire),
            work: Work {
                message: reading(|solved| solved.message),
                packet: reading(|solved| solved.packet),
                byte: reading(|solved| solved.byte),
                read: reading(|solved| solved.read),
                fetched: reading(|solved| solved.fetched),
            },
            link,
        }
    }
}

/// Costs solved from rows, in ns.
struct Solved {
    /// The factor of all costs.
    times: f64,
    message: f64,
    packet: f64,
    byte: f64,
    read: f64,
    fetched: f64,
    latency: f64,
    wire: f64,
}

/// The rows of a measured size: half a round trip, a message of a stream, an end's work, packets and their bytes.
struct Size {
    trip: f64,
    stream: f64,
    work: f64,
    packets: f64,
    bytes: f64,
}

fn solve(costs: &Costs, network: Option<&str>, link: &LinkConfig, place: f64) -> Result<Solved, String> {
    let is_ours =
        |way: &Way| way.carrier == ENGINE && way.placement == SiteKind::App && way.network.as_deref() == network;
    let sizes = |way: &Way| {
        let rows = costs.rows().iter().filter(|row| row.item == Item::Message(way.clone()));
        rows.filter_map(|row| row.size).collect::<Vec<Bytes>>()
    };
    let never = || {
        let where_to = network.map_or("within a host".to_owned(), |network| format!("over {network}"));
        format!("the engine's messages {where_to} were never measured here")
    };
    let way = costs.ways().filter(|way| is_ours(way)).max_by_key(|way| sizes(way).len()).ok_or_else(never)?;
    let known = sizes(way);
    let value = |item: Item, size: Bytes| {
        let reading = costs.sized(&item, size).reading;
        reading.value().map(|interval| interval.middle).ok_or_else(never)
    };
    let of = |most: u64| {
        let size = known.iter().rev().find(|size| size.0 <= most).or(known.first()).copied().ok_or_else(never)?;
        let trip = value(Item::HalfTrip(way.clone()), size)?;
        let stream = value(Item::Message(way.clone()), size)?;
        let (packets, bytes) = packets(link, size.0 as usize);
        Ok::<_, String>((size, Size { trip, stream, work: stream.min(trip / 2.0), packets, bytes }))
    };
    let headers = (LARGEST_HEADER + RELIABILITY_HEADER) as u64;
    let eager = link.eager_limit.0;
    let ((_, least), (_, one)) = (of(0)?, of(eager.min(link.mtu.0 - headers))?);
    let (_, several) = of(eager.min(PACKETS * link.mtu.0))?;
    let over = |above: f64, below: f64| if below > 0.0 { (above / below).max(0.0) } else { 0.0 };
    let byte = over(one.work - least.work, one.bytes - least.bytes);
    let rest = (least.work - byte * least.bytes).max(0.0);
    let packet = match several.packets > 1.0 {
        true => over(several.work - least.work - byte * (several.bytes - least.bytes), several.packets - 1.0).min(rest),
        false => rest / 2.0,
    };
    let message = rest - packet;
    let wire = (over(one.trip - least.trip, one.bytes - least.bytes) - 2.0 * byte).max(0.0);
    let latency = (least.trip - 2.0 * least.work - wire * least.bytes).max(0.0);
    let (mut read, mut fetched) = (0.0, 0.0);
    if link.remote_read {
        let short = known.iter().copied().find(|size| size.0 > eager).unwrap_or_default();
        let ((short, one), (long, other)) = (of(short.0)?, of(PACKETS * eager)?);
        fetched = over(other.stream - one.stream, long.0 as f64 - short.0 as f64);
        read = (one.stream - fetched * short.0 as f64 - message - 2.0 * packet).max(0.0);
    }
    let ours = |item: &Item| [Item::HalfTrip(way.clone()), Item::Message(way.clone())].contains(item);
    let intervals = costs.rows().iter().filter(|row| ours(&row.item)).filter_map(|row| row.cost.value());
    let logarithms: Vec<f64> = intervals.map(|interval| (at(*interval, place) / interval.middle).ln()).collect();
    let times = (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp();
    Ok(Solved { times, message, packet, byte, read, fetched, latency, wire })
}

/// The number of packets of an eager message, and their bytes, by the engine's own rule.
pub(super) fn packets(link: &LinkConfig, length: usize) -> (f64, f64) {
    let (mut engine, now) = (Engine::new(), Nanoseconds(1));
    let peer = engine.add_peer(link.clone());
    let (mut count, mut bytes) = (0, 0);
    if engine.send(peer, 0u64, vec![0; length], 0).is_ok() {
        while let Some(length) = engine.plan(now, peer) {
            engine.write(now, peer, &mut vec![0; length]);
            (count, bytes) = (count + 1, bytes + length);
        }
    }
    (f64::from(count), bytes as f64)
}
