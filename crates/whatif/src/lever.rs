//! Levers: changes of a program's messages, network, clock or mapping under which it is replayed.

pub mod mapping;

use std::fmt;

use machine::costs::Interval;
use machine::{Bytes, Costs, Fault, Result};

use crate::graph::{Class, Graph, Kind, Reach};
use crate::model::{Draw, Price, Prices, Progress, Ways};
use crate::replay::{Buffer, Conditions};
pub use mapping::Mapping;

/// A change of the conditions of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lever {
    /// The carriers of the messages afterwards.
    pub ways: Option<Ways>,
    /// Change of the latency of each trip between hosts, or within the host where there is one.
    pub latency: Option<Change>,
    /// The time per byte over the present one: 0.5 for twice the bandwidth.
    pub per_byte: Option<f64>,
    /// The clock of the cores over the present one.
    pub clock: Option<f64>,
    /// The share of the computing that follows the clock, where it was measured ([`crate::clock`]); else 0 to 1.
    pub follows_clock: Option<Interval>,
    /// The size up to which messages are sent at once, before a receive is posted.
    pub eager: Option<Bytes>,
    pub progress: Option<Progress>,
    /// The buffer of each connection.
    pub buffer: Option<Buffer>,
    pub mapping: Option<Mapping>,
}

/// The change of a latency.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// Nanoseconds added; subtracted where negative.
    By(f64),
    Times(f64),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::By(ns) if ns.abs() >= 1000.0 => write!(f, "{:+} us", ns / 1000.0),
            Change::By(ns) => write!(f, "{ns:+} ns"),
            Change::Times(factor) => write!(f, "x{factor}"),
        }
    }
}

impl std::str::FromStr for Change {
    type Err = Fault;

    /// `+2us`, `-300ns`, `x0.5`.
    fn from_str(text: &str) -> Result<Change> {
        let wrong = || {
            let cause = "it is neither a time to add nor a factor";
            Fault::new(format!("change '{text}'"), cause, "write +2us, -300ns or x0.5")
        };
        let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite()).ok_or_else(wrong);
        if let Some(factor) = text.strip_prefix('x') {
            return Ok(Change::Times(number(factor).and_then(|x| if x >= 0.0 { Ok(x) } else { Err(wrong()) })?));
        }
        let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6)];
        let (rest, unit) =
            units.iter().find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, ns))).ok_or_else(wrong)?;
        Ok(Change::By(number(rest)? * unit))
    }
}

/// The unknown figures of a lever, in one draw.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Unknown {
    /// Where the costs of other ways lie in their intervals.
    pub costs: Draw,
    /// The share of the computing that follows the clock; of the measured interval, if there is one, this is the place.
    pub follows_clock: f64,
    /// The part of the residuals that changes as the modelled costs do.
    pub residual_follows: f64,
    /// The share of the softirqs of a rank's core that fell into its computing, not into its calls.
    pub softirqs_inside: f64,
    /// A place in [`Mapping::stays`].
    pub capability_stays: f64,
    /// The residuals of ranks on other cores over the recorded ones: the residuals may depend on the core.
    pub residual_stays: f64,
}

impl Lever {
    /// The conditions after the change, and by class what residuals are over those before. Of a [`Mapping`], `graph` and the
    /// prices before are those of the mapped program.
    ///
    /// # Errors
    /// A cost was never measured here.
    pub fn pull(
        &self,
        graph: &Graph,
        costs: &Costs,
        before: &Conditions,
        unknown: &Unknown,
    ) -> Result<(Conditions, Vec<Scale>)> {
        let mut after = before.clone();
        if let Some(ways) = &self.ways {
            after.prices = Prices::of(graph, costs, ways, &unknown.costs)?;
            after.progress = ways.progress();
        }
        if let Some(progress) = self.progress {
            after.progress = progress;
        }
        if let Some(buffer) = self.buffer {
            after.buffer = buffer;
        }
        if let Some(eager) = self.eager {
            for (price, kind) in after.prices.kinds.iter_mut().zip(&graph.kinds) {
                price.rendezvous = kind.bytes > eager.0;
            }
        }
        // The change of a latency by a sum is no error of a measured cost, so no residual follows it.
        let times = self.latency.filter(|change| matches!(change, Change::Times(_)));
        let carried = std::mem::take(&mut after.prices);
        let [own, costs] = [(None, None), (times, self.per_byte)]
            .map(|(latency, per_byte)| self.priced(graph, &before.prices, &carried, latency, per_byte));
        after.prices = self.priced(graph, &before.prices, &carried, self.latency, self.per_byte);
        if let Some(clock) = self.clock {
            let place = unknown.follows_clock;
            let follows = self.follows_clock.map_or(place, |share| share.low + place * (share.high - share.low));
            let slower = follows / clock + 1.0 - follows;
            after.computing.iter_mut().for_each(|factor| *factor *= slower);
        }
        if let Some(mapping) = &self.mapping {
            let by_rank = mapping.computing(graph, &[], unknown);
            for (factor, lane) in after.computing.iter_mut().zip(&graph.lanes) {
                *factor *= by_rank[lane.rank as usize];
            }
        }
        let residuals = scales(graph, &before.prices, &costs, &own, unknown.residual_follows);
        Ok((after, residuals))
    }

    /// The prices after changes of the latency, the time per byte and the clock.
    fn priced(
        &self,
        graph: &Graph,
        before: &Prices,
        prices: &Prices,
        latency: Option<Change>,
        per_byte: Option<f64>,
    ) -> Prices {
        let mut prices = prices.clone();
        let between = graph.kinds.iter().any(|kind| kind.reach == Reach::Between);
        for (price, kind) in prices.kinds.iter_mut().zip(&graph.kinds) {
            let trips = f64::from(kind.trips);
            if kind.trips == 0 {
                continue;
            }
            if (kind.reach == Reach::Between) == between {
                let mut trip = price.trip as f64;
                trip = match latency {
                    Some(Change::By(ns)) => trip + ns * 1e3 * trips,
                    Some(Change::Times(factor)) => {
                        trip - self.latency_of(graph, before, kind.reach) * trips * (1.0 - factor)
                    }
                    None => trip,
                };
                if let Some(factor) = per_byte {
                    let smallest = self.latency_of(graph, before, kind.reach) * trips;
                    trip -= (trip - smallest).max(0.0) * (1.0 - factor);
                    price.link = (price.link as f64 * factor).round() as i64;
                }
                // A trip is at least as long as the work in it.
                price.trip = (trip.round() as i64).max(price.send + price.receive);
            }
            if let Some(clock) = self.clock {
                let slower = 1.0 / clock;
                let work = (price.send + price.receive + 2 * price.engine) as f64;
                price.trip = (price.trip as f64 + work * (slower - 1.0) * trips).round() as i64;
                for of in [&mut price.send, &mut price.receive, &mut price.engine] {
                    *of = (*of as f64 * slower).round() as i64;
                }
            }
        }
        prices
    }

    /// The latency of a reach, ps: the trip of its smallest message.
    fn latency_of(&self, graph: &Graph, prices: &Prices, reach: Reach) -> f64 {
        let of_reach = graph.kinds.iter().zip(&prices.kinds).filter(|(kind, _)| kind.reach == reach && kind.trips > 0);
        let trips = of_reach.map(|(kind, price)| price.trip as f64 / f64::from(kind.trips));
        trips.reduce(f64::min).unwrap_or(0.0)
    }
}

/// The scale of residuals by class, where prices `costs` replace `before`; `own` are the new ones without the wire's levers.
fn scales(graph: &Graph, before: &Prices, costs: &Prices, own: &Prices, follows: f64) -> Vec<Scale> {
    let of_class = |class: &Class| {
        let bits = |kind: &Kind| (u64::BITS - kind.bytes.leading_zeros()) as u8;
        // Kinds that only order lanes cost nothing.
        let like = |kind: &Kind| kind.reach == class.reach && bits(kind) == class.bits && kind.trips > 0;
        let mean = |of: &Prices| -> f64 {
            let kinds = graph.kinds.iter().zip(&of.kinds).filter(|(kind, _)| like(kind));
            // A call that completes nothing has only its own work.
            let cost = |price: &Price| if class.completes == 0 { price.send } else { price.trip };
            let costs: Vec<f64> = kinds.map(|(_, price)| cost(price) as f64).collect();
            costs.iter().sum::<f64>() / costs.len().max(1) as f64
        };
        let modelled = mean(before);
        if class.opaque || modelled <= 0.0 {
            Scale::SAME
        } else {
            Scale { ratio: mean(costs) / modelled, beyond: mean(own) / modelled, modelled, follows }
        }
    };
    graph.classes.iter().map(of_class).collect()
}

/// The change of a class's residuals under a lever.
///
/// A residual has three parts. As much of it as the modelled cost itself is most likely an error of that cost: it follows it nearly
/// wholly in most draws. What all calls of the class have beyond that follows what carries messages and how fast cores are, by a part
/// that is not known, between not at all and wholly; the wire is not in it. What one call has beyond both is noise (a core that
/// was lost, an interrupt), and stays whatever messages cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// The modelled cost after the change over that before.
    pub ratio: f64,
    /// The same ratio without a change of the wire.
    pub beyond: f64,
    /// The modelled cost before the change, ps.
    pub modelled: f64,
    /// [`Unknown::residual_follows`]
    pub follows: f64,
}

impl Scale {
    const SAME: Scale = Scale { ratio: 1.0, beyond: 1.0, modelled: 0.0, follows: 0.0 };

    /// Whether the residuals stay.
    pub(crate) fn is_same(&self) -> bool {
        self.ratio == 1.0 && self.beyond == 1.0
    }

    /// The changed residual of a call in whose class `typical` is the usual one, ps.
    pub fn of(&self, residual: f64, typical: f64) -> f64 {
        let cost = residual.clamp(-self.modelled, self.modelled);
        let common = residual.clamp(typical.min(-self.modelled), typical.max(self.modelled)) - cost;
        let changed = |part: f64, ratio: f64, follows: f64| part * follows * (ratio - 1.0);
        residual
            + changed(cost, self.ratio, 1.0 - (1.0 - self.follows).powi(3))
            + changed(common, self.beyond, self.follows)
    }

    /// This scale after a change that multiplied the modelled cost by `ratio`.
    pub(crate) fn after(self, ratio: f64) -> Scale {
        Scale {
            ratio: self.ratio * ratio,
            beyond: self.beyond * ratio,
            modelled: self.modelled / ratio.max(f64::MIN_POSITIVE),
            ..self
        }
    }
}
