//! What the stages of a piece cost: its half trip, split by figures that a recording tells.

use machine::costs::Item;
use machine::{Bytes, Costs, Result};

use super::plan::{Plan, UNRECORDED};
use crate::graph::{Graph, Kind, Reach};
use crate::model::{Draw, Price, Ways, measured, price};

/// Bytes of a piece: what a call moves at once.
pub(super) const PIECE: u64 = 16 << 10;

/// The most pieces of a message.
pub(super) const MOST: u64 = 64;

/// The most that another package's cache makes work take longer.
const FARTHEST: f64 = 4.0;

/// The largest share of a piece's work that softirqs have.
const LARGEST: f64 = 0.9;

/// The number of figures.
pub(super) const FIGURES: usize = 9;

/// How the work for a piece is split, each from 0 to 1: what no cost says.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Figures(pub(super) [f64; FIGURES]);

/// The places of [`Figures`].
pub(super) mod figure {
    pub const LINK: usize = 0;
    pub const SENDER: usize = 1;
    pub const COPIED: usize = 2;
    pub const ACKNOWLEDGES: usize = 3;
    pub const FAR: usize = 4;
    pub const MEASURED: usize = 5;
    pub const MEASURED_WITHIN: usize = 6;
    pub const WAITS: usize = 7;
    pub const DEVICE: usize = 8;
}

/// The work of pieces by kind of message, ps: the measured half trip without the latency.
#[derive(Debug)]
pub(super) struct Pieces {
    /// By kind: all bytes, those of a piece, and the work for that and for the last one.
    kinds: Vec<(u64, u64, f64, f64)>,
    /// By message: its kind.
    of: Vec<u32>,
}

impl Pieces {
    pub(super) fn of(graph: &Graph, trips: &Trips) -> Result<Pieces> {
        let kind = |kind: &Kind| {
            let bytes = kind.bytes.max(1);
            let unit = PIECE.max(bytes.div_ceil(MOST)).min(bytes);
            let last = bytes - (bytes - 1) / unit * unit;
            Ok((bytes, unit, trips.work(kind.reach, unit)?, trips.work(kind.reach, last)?))
        };
        let kinds = graph.kinds.iter().map(kind).collect::<Result<_>>()?;
        Ok(Pieces { kinds, of: graph.messages.iter().map(|message| message.kind).collect() })
    }

    fn kind(&self, message: u32) -> (u64, u64, f64, f64) {
        self.kinds[self.of[message as usize] as usize]
    }

    pub(super) fn bytes(&self, message: u32) -> u64 {
        self.kind(message).0
    }

    /// The bytes of the piece that begins at `from`.
    pub(super) fn next(&self, message: u32, from: u64) -> u64 {
        let (bytes, unit, ..) = self.kind(message);
        unit.min(bytes - from)
    }

    /// The work for a piece of so many bytes, ps.
    pub(super) fn work(&self, message: u32, bytes: u64) -> f64 {
        let (_, unit, whole, last) = self.kind(message);
        if bytes == unit { whole } else { last }
    }

    /// The work for all pieces, ps.
    fn all(&self, message: u32) -> f64 {
        let (bytes, unit, whole, last) = self.kind(message);
        ((bytes - 1) / unit) as f64 * whole + last
    }
}

/// Measured trips under a draw of the costs.
pub(super) struct Trips<'a> {
    costs: &'a Costs,
    ways: &'a Ways,
    draw: &'a Draw,
    /// Of the smallest message, without the work of its ends, ps.
    latency: [i64; 2],
}

impl<'a> Trips<'a> {
    pub(super) fn of(costs: &'a Costs, ways: &'a Ways, draw: &'a Draw) -> Trips<'a> {
        let mut trips = Trips { costs, ways, draw, latency: [0; 2] };
        for reach in [Reach::Host, Reach::Between] {
            // A reach without costs is a fault where a message needs it.
            if let Ok(Price { trip, send, receive, .. }) = trips.price(reach, 1) {
                trips.latency[reach as usize] = (trip - send - receive).max(0);
            }
        }
        trips
    }

    fn price(&self, reach: Reach, bytes: u64) -> Result<Price> {
        price(Kind { bytes, reach, trips: 1 }, self.costs, self.ways, self.draw)
    }

    /// Half a round trip between hosts, ps.
    pub(super) fn half(&self, size: Bytes) -> Result<f64> {
        Ok(measured(self.costs, &Item::HalfTrip(self.ways.between.clone()), size, self.draw.trip[1])? * 1e3)
    }

    /// A message of a stream between hosts, ps.
    pub(super) fn stream(&self, size: Bytes) -> Result<f64> {
        Ok(measured(self.costs, &Item::Message(self.ways.between.clone()), size, self.draw.work[1])? * 1e3)
    }

    fn work(&self, reach: Reach, bytes: u64) -> Result<f64> {
        Ok((self.price(reach, bytes)?.trip - self.latency[reach as usize]).max(1) as f64)
    }
}

/// The parts of a rank's core in the work for a piece.
#[derive(Debug, Clone, Copy, Default)]
struct Own {
    copy: f64,
    hand: f64,
    /// Of handing, what does not depend on where the core is.
    anywhere: f64,
    take: f64,
}

/// Parts of the stages in the work for a piece.
#[derive(Debug)]
pub(super) struct Stages {
    own: [Own; 2],
    pub link: f64,
    pub latency: [i64; 2],
    receive: Vec<f64>,
    acknowledge: f64,
    far: f64,
    /// The factor of work on the cores on which costs between hosts were measured.
    measured: f64,
    /// Whether a send is over only when all of it is handed to its socket.
    pub waits: bool,
    /// By host: the part of its softirqs that messages account for.
    pub of_messages: Vec<f64>,
}

impl Stages {
    /// `softirqs`: by host, ns.
    pub(super) fn of(
        graph: &Graph,
        plan: &Plan,
        pieces: &Pieces,
        trips: &Trips,
        softirqs: &[f64],
        figures: &Figures,
    ) -> Stages {
        let of = |which: usize| figures.0[which];
        let on_cores = softirqs.iter().any(|ns| *ns > 0.0);
        let acknowledge = if on_cores { 0.5 * of(figure::ACKNOWLEDGES) } else { 0.0 };
        let mut work = vec![0.0; softirqs.len()];
        for (message, ends) in (0u32..).zip(&plan.ends) {
            if graph.kinds[graph.messages[message as usize].kind as usize].reach == Reach::Between
                && !ends.contains(&UNRECORDED)
            {
                let [from, to] = ends.map(|lane| graph.hosts[graph.lanes[lane as usize].rank as usize] as usize);
                work[to] += pieces.all(message);
                work[from] += acknowledge * pieces.all(message);
            }
        }
        let ratio = |ns: f64, work: f64| if work > 0.0 { ns * 1e3 / work } else { f64::NAN };
        let mean = ratio(softirqs.iter().sum(), work.iter().sum());
        let mean = if on_cores && !mean.is_nan() { mean } else { LARGEST * of(figure::DEVICE) };
        let of_host = |(ns, work): (&f64, &f64)| Some(ratio(*ns, *work)).filter(|part| on_cores && !part.is_nan());
        let receive: Vec<f64> = softirqs.iter().zip(&work).map(|of| of_host(of).unwrap_or(mean)).collect();
        let of_messages =
            receive.iter().map(|part| if *part > 0.0 { (LARGEST / part).min(1.0) } else { 0.0 }).collect();
        let receive: Vec<f64> = receive.iter().map(|part| part.min(LARGEST)).collect();
        let rest = 1.0 - mean.min(LARGEST);
        let link = LARGEST * of(figure::LINK) * rest;
        let ranks = rest - link;
        let sender = (0.05 + LARGEST * of(figure::SENDER)) * ranks;
        let far = FARTHEST.powf(of(figure::FAR));
        let measured = |place: f64| 1.0 + (far - 1.0) * place;
        let at = measured(of(figure::MEASURED));
        let between = Own {
            copy: of(figure::COPIED) * sender,
            hand: (1.0 - of(figure::COPIED)) * sender / at,
            anywhere: 0.0,
            take: (ranks - sender) / at,
        };
        let within = match (trips.work(Reach::Host, PIECE), trips.work(Reach::Between, PIECE)) {
            (Ok(host), Ok(other)) => {
                // The same calls as between hosts, and what softirqs do there.
                let scale = other / host;
                let at = measured(of(figure::MEASURED_WITHIN));
                let [copy, hand, take] = [between.copy, between.hand, between.take].map(|part| part * scale);
                let all = copy + (hand + take) * at;
                let fits = (1.0 / all).min(1.0);
                Own { copy: copy * fits, hand: hand * fits, anywhere: 1.0 - all * fits, take: take * fits }
            }
            _ => {
                let sender = 0.05 + LARGEST * of(figure::SENDER);
                Own { copy: 0.0, hand: 0.0, anywhere: sender, take: 1.0 - sender }
            }
        };
        Stages {
            own: [within, between],
            link,
            latency: trips.latency,
            receive,
            acknowledge,
            far,
            measured: at,
            waits: of(figure::WAITS) > 0.5,
            of_messages,
        }
    }

    /// The part of a rank's core: to copy, to hand, to take.
    pub(super) fn own(&self, reach: Reach, [copies, hands, takes]: [bool; 3], far: bool) -> f64 {
        let Own { copy, hand, anywhere, take } = self.own[reach as usize];
        let far = if far { self.far } else { 1.0 };
        let part = |is: bool, part: f64| if is { part } else { 0.0 };
        part(copies, copy) + part(hands, hand * far + anywhere) + part(takes, take * far)
    }

    /// The stages between two hosts on whose cores costs were measured.
    pub(super) fn where_measured(&self) -> Stages {
        let Own { copy, hand, anywhere, take } = self.own[1];
        let own = Own { copy, hand: hand * self.measured, anywhere, take: take * self.measured };
        let mean = self.receive.iter().sum::<f64>() / self.receive.len().max(1) as f64;
        Stages { own: [own; 2], receive: vec![mean; 2], of_messages: Vec::new(), ..*self }
    }

    pub(super) fn receives(&self, host: usize) -> f64 {
        self.receive.get(host).copied().unwrap_or(0.0)
    }

    pub(super) fn acknowledges(&self, host: usize) -> f64 {
        self.acknowledge * self.receives(host)
    }
}
