//! What messages cost: the model's equations, and their prices for the kinds of a graph.
//!
//! A message of `b` bytes that travels one way costs, by the costs of the machine ([`machine::costs`]):
//! ```text
//! trip(b)     half a round trip: from the sender's call to the end of the receiver's, nobody being late
//! send(b)     the sender's core, in its call            both: a message of a stream, but no more than half the trip
//! receive(b)  the receiver's core, in its call
//! engine(b)   placement core:N: the engine's core of each host. The ranks' cores then only hand over: two cache lines
//! link(b)     where ranks share their host's link: a message of a stream without what the smallest one takes
//! ```
//! A gathering takes `trips` of them one after the other: those of the usual algorithm ([`profile::export`]).

use machine::costs::{ENGINE, Interval, Item, Way};
use machine::{Bytes, Costs, Fault, Result, SiteKind};

use crate::graph::{Graph, Kind, Reach};

/// The cost of a message, or a gathering, of a kind, ps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Price {
    pub send: i64,
    pub receive: i64,
    pub trip: i64,
    /// Work of the engine's core at each end; 0: there is no engine.
    pub engine: i64,
    /// Time that it occupies a link which the ranks of a host share; 0: none.
    pub link: i64,
    /// Whether it moves only once its receive is posted.
    pub rendezvous: bool,
}

/// The prices of all kinds of a graph.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prices {
    pub kinds: Vec<Price>,
}

/// The party that moves a message whose both halves have begun.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Progress {
    /// The threads in their calls: a rendezvous goes on when the thread that began first is in a call.
    #[default]
    Calls,
    /// A thread, core or device of its own, at any time.
    Always,
}

/// Carriers of messages within a host and between hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ways {
    pub within: Way,
    pub between: Way,
    /// Whether the ranks of a host share its link, which passes bytes as slowly as one stream does.
    pub shared_links: bool,
    /// The size up to which messages are sent at once, before a receive is posted; `None`: the carrier's default.
    pub eager: Option<Bytes>,
}

impl Ways {
    pub fn of(&self, reach: Reach) -> &Way {
        match reach {
            Reach::Host => &self.within,
            Reach::Between => &self.between,
        }
    }

    /// An engine on a core of its own moves messages at any time; libraries and an engine in the application do in calls.
    pub fn progress(&self) -> Progress {
        if self.within.placement == SiteKind::Core { Progress::Always } else { Progress::Calls }
    }
}

/// The place of each cost in its interval, from -1, its least, over 0, its middle, to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Draw {
    /// The place of trips, within a host and between hosts.
    pub trip: [f64; 2],
    /// The place of the cores' work for messages, within a host and between hosts.
    pub work: [f64; 2],
}

/// Default eager limits in bytes, within a host and between hosts: the defaults of Open MPI
/// 4 and 5 (`btl_vader_eager_limit`, `btl_sm_eager_limit`, `btl_tcp_eager_limit`), of plimsoll's engine, and of UCX (its
/// threshold is measured at its start; 8 KiB is usual).
const EAGER: [(&str, u64, u64); 5] = [
    ("vader", 4 << 10, 4 << 10),
    ("sm", 4 << 10, 4 << 10),
    ("tcp", 64 << 10, 64 << 10),
    ("ucx", 8 << 10, 8 << 10),
    (ENGINE, 8 << 10, 256 << 10),
];

/// The eager limit of other carriers, in bytes.
const EAGER_OF_OTHERS: u64 = 16 << 10;

fn eager(way: &Way, reach: Reach) -> u64 {
    let known = EAGER.iter().find(|(carrier, ..)| way.carrier == *carrier);
    known.map_or(EAGER_OF_OTHERS, |(_, within, between)| if reach == Reach::Host { *within } else { *between })
}

/// The value of an interval at a place of a draw; logarithms are even between the middle and each end.
pub fn at(interval: Interval, place: f64) -> f64 {
    let end = if place < 0.0 { interval.low } else { interval.high };
    if interval.middle <= 0.0 || end <= 0.0 {
        return interval.middle + (end - interval.middle) * place.abs();
    }
    interval.middle * (end / interval.middle).powf(place.abs())
}

impl Prices {
    /// # Errors
    /// A way that the graph needs was never measured here.
    pub fn of(graph: &Graph, costs: &Costs, ways: &Ways, draw: &Draw) -> Result<Prices> {
        let kinds = graph.kinds.iter().map(|kind| price(*kind, costs, ways, draw)).collect::<Result<_>>()?;
        Ok(Prices { kinds })
    }
}

/// The cost of an item for a size at a place of its interval, ns.
pub(crate) fn measured(costs: &Costs, item: &Item, size: Bytes, place: f64) -> Result<f64> {
    let interval = costs.sized(item, size).reading.value().copied().ok_or_else(|| {
        let next = "run plimsoll calibrate, or name the way by --recorded";
        Fault::new(item.to_string(), "it was never measured here", next)
    })?;
    Ok(at(interval, place))
}

/// The price of a kind.
///
/// # Errors
/// The way was never measured here.
pub fn price(kind: Kind, costs: &Costs, ways: &Ways, draw: &Draw) -> Result<Price> {
    let way = ways.of(kind.reach);
    let nth = usize::from(kind.reach == Reach::Between);
    let value = |item: &Item, bytes: u64, place: f64| measured(costs, item, Bytes(bytes), place);
    let trip = value(&Item::HalfTrip(way.clone()), kind.bytes, draw.trip[nth])?;
    let streamed = value(&Item::Message(way.clone()), kind.bytes, draw.work[nth])?;
    let message = streamed.min(trip / 2.0);
    let shared = ways.shared_links && kind.reach == Reach::Between && kind.trips == 1;
    let link = if shared { streamed - value(&Item::Message(way.clone()), 1, draw.work[nth])? } else { 0.0 };
    let (own, engine) = if way.placement == SiteKind::Core {
        let handover = 2.0 * value(&Item::Handover, kind.bytes, draw.work[nth])?;
        // One core has both ends of a message within its host.
        let each = if kind.reach == Reach::Host { message / 2.0 } else { message };
        (handover.min(trip / 2.0), each)
    } else {
        (message, 0.0)
    };
    let ps = |ns: f64| (ns * 1e3).round() as i64;
    Ok(Price {
        send: ps(own),
        receive: ps(own),
        trip: ps(trip * f64::from(kind.trips)),
        engine: ps(engine),
        link: ps(link.clamp(0.0, trip)),
        rendezvous: kind.bytes > ways.eager.map_or_else(|| eager(way, kind.reach), |eager| eager.0),
    })
}
