//! Costs of moving messages on a machine: one table that every decider reads.
//!
//! A row is a [`Reading`] of an [`Interval`] in nanoseconds: where the next run's value lies, not where a mean does, since a
//! decider predicts one run. `plimsoll calibrate` measures the rows ([`store`]); what was not measured is modelled, with its
//! source ([`modelled`]), and its interval is wide.

mod modelled;
pub mod store;

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::body::BodyKind;
use crate::figure;
use crate::quantity::{Bytes, Nanoseconds};
use crate::reading::Reading;
use crate::site::{Site, SiteKind};

/// An interval in which a value is expected, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The least value expected.
    pub low: f64,
    /// The likeliest value.
    pub middle: f64,
    /// The greatest value expected.
    pub high: f64,
}

impl Interval {
    /// The interval of a value that is known exactly.
    pub fn exactly(value: f64) -> Interval {
        Interval { low: value, middle: value, high: value }
    }

    /// An interval of positive values, with the geometric mean as its middle.
    pub fn between(low: f64, high: f64) -> Interval {
        Interval { low, middle: (low * high).sqrt(), high }
    }

    /// Whether the value lies in it.
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// The interval times `factor`.
    pub fn times(self, factor: f64) -> Interval {
        Interval { low: self.low * factor, middle: self.middle * factor, high: self.high * factor }
    }

    /// An interval `factor` times as wide, in logarithms.
    pub fn widened(self, factor: f64) -> Interval {
        let end = |end: f64| if self.middle > 0.0 { self.middle * (end / self.middle).powf(factor) } else { end };
        Interval { low: end(self.low), middle: self.middle, high: end(self.high) }
    }

    /// The sum of two costs.
    pub fn plus(self, other: Interval) -> Interval {
        Interval { low: self.low + other.low, middle: self.middle + other.middle, high: self.high + other.high }
    }

    fn towards(self, other: Interval, part: f64) -> Interval {
        let mix = |a: f64, b: f64| a + (b - a) * part;
        Interval {
            low: mix(self.low, other.low),
            middle: mix(self.middle, other.middle),
            high: mix(self.high, other.high),
        }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [low, middle, high] = [self.low, self.middle, self.high].map(figure::nanoseconds);
        if low == high { f.write_str(&middle) } else { write!(f, "{middle} ({low} .. {high})") }
    }
}

/// How the messages of two ranks travel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Way {
    /// `plimsoll`, or a transport of the MPI's own.
    pub carrier: String,
    /// The MPI above it, with its version.
    pub mpi: String,
    /// The site that does the carrier's work.
    pub placement: SiteKind,
    /// What carries messages between hosts, without its interface: `udp`, `afxdp`, `xdp`; `lab` or `nodes` for a carrier that chooses
    /// itself; `None` within a host.
    pub network: Option<String>,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.carrier)?;
        if self.carrier == ENGINE {
            write!(f, " at {}", self.placement)?;
        }
        match self.network.as_deref() {
            None => write!(f, ", one host")?,
            Some(network) if self.carrier == ENGINE => write!(f, ", two hosts, {network}")?,
            Some(_) => write!(f, ", two hosts")?,
        }
        write!(f, ", {}", self.mpi)
    }
}

/// The name of plimsoll's own engine among carriers.
pub const ENGINE: &str = "plimsoll";

/// The purpose of a cost.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Item {
    /// One way of a message that is waited for: half a round trip.
    HalfTrip(Way),
    /// Time from message to message of a stream: the cost to the busier end.
    Message(Way),
    /// Time of network softirqs for a message, on all cores of both hosts.
    Softirq(Way),
    /// One way of a cache line between two cores.
    Handover,
    /// Core time of a short message between two sites, both ends together. The lesser kind comes first.
    Crossing(SiteKind, SiteKind),
    /// Core time of a short message within one thread.
    Call,
    /// One call of an offcode's body that does nothing, without the channel.
    Entry(BodyKind),
    /// Core time of handing a message to a network device: a descriptor and a doorbell.
    DevicePost,
    /// Work of an offcode for a message, where its manifest does not say.
    Work,
    /// One way of a short message to another host, without the core time of both ends.
    Transit,
}

impl Item {
    /// The crossing between two sites, in either order.
    pub fn crossing(one: SiteKind, other: SiteKind) -> Item {
        Item::Crossing(one.min(other), one.max(other))
    }

    /// Whether both are the same item and way, whatever the MPI.
    pub fn is_like(&self, other: &Item) -> bool {
        let way = |of: &Way| Way { mpi: String::new(), ..of.clone() };
        match (self, other) {
            (Item::HalfTrip(one), Item::HalfTrip(other))
            | (Item::Message(one), Item::Message(other))
            | (Item::Softirq(one), Item::Softirq(other)) => way(one) == way(other),
            _ => false,
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Item::HalfTrip(way) => write!(f, "half a round trip: {way}"),
            Item::Message(way) => write!(f, "a message of a stream: {way}"),
            Item::Softirq(way) => write!(f, "softirqs of a message: {way}"),
            Item::Handover => f.write_str("a cache line to another core"),
            Item::Crossing(one, other) => write!(f, "a channel between {one} and {other}"),
            Item::Call => f.write_str("a channel within a thread"),
            Item::Entry(body) => write!(f, "a call of a {body} body"),
            Item::DevicePost => f.write_str("handing a message to a network device"),
            Item::Work => f.write_str("an offcode's work for a message"),
            Item::Transit => f.write_str("the way of a message to another host"),
        }
    }
}

/// One cost, with its provenance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The purpose of the cost.
    pub item: Item,
    /// The size of the message; `None` where size does not matter.
    pub size: Option<Bytes>,
    /// The cost in nanoseconds.
    pub cost: Reading<Interval>,
    /// The command that measured it; for a model the paper or the claim.
    pub source: String,
    /// When it was taken, since the Unix epoch; 0 for a model.
    pub taken: Nanoseconds,
}

/// The answer to a query.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    /// The cost in nanoseconds.
    pub reading: Reading<Interval>,
    /// The command, paper or claim that gave it.
    pub source: String,
}

/// The costs of one machine: measured rows, and the model for what they lack.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Costs {
    rows: Vec<Row>,
    corner: Option<Corner>,
}

/// An end of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// The least value.
    Low,
    /// The greatest value.
    High,
}

/// An assumption that all costs of moving messages lie at one end of their intervals, and all costs of work at one end of theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Corner {
    /// The end for costs of moving messages.
    pub moving: End,
    /// The end for costs of work on messages.
    pub work: End,
}

impl Corner {
    /// All four corners.
    pub const ALL: [Corner; 4] = [
        Corner { moving: End::Low, work: End::Low },
        Corner { moving: End::Low, work: End::High },
        Corner { moving: End::High, work: End::Low },
        Corner { moving: End::High, work: End::High },
    ];

    fn of(self, item: &Item, interval: Interval) -> Interval {
        let end = if matches!(item, Item::Work | Item::Entry(_)) { self.work } else { self.moving };
        Interval::exactly(if end == End::Low { interval.low } else { interval.high })
    }
}

impl fmt::Display for Corner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |end| if end == End::Low { "least" } else { "most" };
        write!(f, "moving messages costs {} and work {}", word(self.moving), word(self.work))
    }
}

/// The factor for the width of an interval beyond the measured sizes, or of another MPI.
const STRETCHED: f64 = 2.0;

impl Costs {
    /// The modelled costs alone.
    pub fn modelled() -> Costs {
        Costs::default()
    }

    /// Costs with these rows; what they lack is modelled.
    pub fn of(mut rows: Vec<Row>) -> Costs {
        rows.sort_by(|a, b| (&a.item, a.size).cmp(&(&b.item, b.size)));
        Costs { rows, corner: None }
    }

    /// The same costs at a corner of their intervals, as if known exactly.
    #[must_use]
    pub fn at(mut self, corner: Corner) -> Costs {
        self.corner = Some(corner);
        self
    }

    /// The measured rows, by item and size.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The cost of `item`, whatever the size.
    pub fn get(&self, item: &Item) -> Cost {
        self.sized(item, Bytes(0))
    }

    /// The cost of `item` for a message of `size`: between measured sizes linear in bytes, beyond them modelled and
    /// twice as wide.
    pub fn sized(&self, item: &Item, size: Bytes) -> Cost {
        let absent = || Cost {
            reading: Reading::absent(format!("{item} was never measured here: run plimsoll calibrate")),
            source: String::new(),
        };
        let measured = self.measured(item, size).filter(|cost| cost.reading.value().is_some());
        let found = measured.or_else(|| {
            let sibling = self.sibling(item)?;
            let cost = self.measured(&sibling, size)?;
            let reading = modelled_of(cost.reading);
            Some(Cost { reading, source: format!("{}, of {sibling}", cost.source) })
        });
        let known = found.or_else(|| modelled::cost(item)).or_else(|| self.measured(item, size));
        let Cost { reading, source } = known.unwrap_or_else(absent);
        let exact = |interval| self.corner.map_or(interval, |corner| corner.of(item, interval));
        Cost { reading: reading.map(exact), source }
    }

    /// Core time of a short message between two sites, or within one, both ends together.
    pub fn crossing(&self, one: &Site, other: &Site) -> Cost {
        let beside = one.agent().zip(other.agent()).is_some_and(|((one, _), (other, _))| one == other);
        let hook = one.kind().is_hook() || other.kind().is_hook();
        // Between an agent's site and others lies the network. All hooks share memory with programs in the same way.
        let kind = |site: &Site| match site.kind() {
            _ if site.agent().is_some() => SiteKind::Agent,
            SiteKind::Tc => SiteKind::Xdp,
            kind => kind,
        };
        self.get(&match () {
            () if one == other => Item::Call,
            // Sites of one agent cross within its host, two cores by memory.
            () if beside && hook => Item::crossing(SiteKind::App, SiteKind::Xdp),
            () if beside => Item::crossing(SiteKind::App, SiteKind::Core),
            () => Item::crossing(kind(one), kind(other)),
        })
    }

    /// `interval`, which is not of the table, at the same end as costs like `item`.
    pub fn placed(&self, item: &Item, interval: Interval) -> Interval {
        self.corner.map_or(interval, |corner| corner.of(item, interval))
    }

    fn measured(&self, item: &Item, size: Bytes) -> Option<Cost> {
        let rows: Vec<&Row> = self.rows.iter().filter(|row| row.item == *item).collect();
        let (first, last) = (rows.first()?, rows.last()?);
        let cost = |row: &Row, reading| Some(Cost { reading, source: row.source.clone() });
        let at = |row: &Row| row.size.unwrap_or_default();
        if at(first) >= size || first.size.is_none() {
            return cost(first, first.cost.clone());
        }
        if at(last) < size {
            let factor = size.0 as f64 / at(last).0.max(1) as f64;
            return cost(last, modelled_of(last.cost.clone().map(|interval| interval.times(factor))));
        }
        let above = rows.partition_point(|row| at(row) < size);
        let (below, above) = (rows[above - 1], rows[above]);
        let part = (size.0 - at(below).0) as f64 / (at(above).0 - at(below).0).max(1) as f64;
        match (&below.cost, &above.cost) {
            (Reading::Measured(a), Reading::Measured(b)) => cost(above, Reading::Measured(a.towards(*b, part))),
            (a, b) => match (a.value(), b.value()) {
                (Some(a), Some(b)) => cost(above, Reading::Modelled(a.towards(*b, part))),
                (None, _) => cost(below, a.clone()),
                _ => cost(above, b.clone()),
            },
        }
    }

    /// The same item and way under another MPI that has rows.
    fn sibling(&self, item: &Item) -> Option<Item> {
        let row = self.rows.iter().find(|row| row.item.is_like(item))?;
        Some(row.item.clone())
    }

    /// Each way that was measured, once.
    pub fn ways(&self) -> impl Iterator<Item = &Way> {
        let mut ways: Vec<&Way> = self
            .rows
            .iter()
            .filter_map(|row| match &row.item {
                Item::HalfTrip(way) => Some(way),
                _ => None,
            })
            .collect();
        ways.dedup();
        ways.into_iter()
    }

    /// The costs with `newer` in place of rows of the same item and size.
    pub fn refined(self, newer: Vec<Row>) -> Costs {
        let replaced = |row: &Row| newer.iter().any(|new| (&new.item, new.size) == (&row.item, row.size));
        let mut rows: Vec<Row> = self.rows.into_iter().filter(|row| !replaced(row)).collect();
        rows.extend(newer);
        Costs::of(rows)
    }

    /// The costs with measured intervals `factor` times as wide.
    pub fn widened(mut self, factor: f64) -> Costs {
        for row in &mut self.rows {
            row.cost = row.cost.clone().map(|interval| interval.widened(factor));
        }
        self
    }
}

fn modelled_of(reading: Reading<Interval>) -> Reading<Interval> {
    match reading {
        Reading::Measured(interval) | Reading::Modelled(interval) => Reading::Modelled(interval.widened(STRETCHED)),
        missing => missing,
    }
}

/// The provenance of a reading, in a word.
pub fn how<T>(reading: &Reading<T>) -> Cow<'static, str> {
    match reading {
        Reading::Measured(_) => "measured".into(),
        Reading::Modelled(_) => "modelled".into(),
        Reading::Absent { .. } => "absent".into(),
        Reading::NotPermitted { .. } => "not permitted".into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn way(mpi: &str) -> Way {
        Way { carrier: ENGINE.into(), mpi: mpi.into(), placement: SiteKind::App, network: None }
    }

    fn row(item: Item, size: u64, value: f64) -> Row {
        let cost = Reading::Measured(Interval::between(value * 0.9, value / 0.9));
        Row { item, size: Some(Bytes(size)), cost, source: "calibrate".into(), taken: Nanoseconds(1) }
    }

    fn costs() -> Costs {
        let trip = || Item::HalfTrip(way("Open MPI 4.1.4"));
        Costs::of(vec![row(trip(), 4096, 1000.0), row(trip(), 8, 200.0)])
    }

    #[test]
    fn at_a_corner_costs_are_the_ends_of_their_intervals() {
        let ends = |corner: Corner| {
            let costs = costs().at(corner);
            [Item::Work, Item::Handover].map(|item| costs.get(&item).reading.value().unwrap().middle)
        };
        let middle = |item| costs().get(&item).reading.value().copied().unwrap();
        let (work, moving) = (middle(Item::Work), middle(Item::Handover));
        assert_eq!(ends(Corner { moving: End::Low, work: End::High }), [work.high, moving.low]);
        assert_eq!(ends(Corner { moving: End::High, work: End::Low }), [work.low, moving.high]);
    }

    #[test]
    fn sizes_between_are_linear_and_beyond_are_modelled() {
        let (costs, trip) = (costs(), Item::HalfTrip(way("Open MPI 4.1.4")));
        let middle = |size| costs.sized(&trip, Bytes(size)).reading.value().unwrap().middle;
        assert_eq!((middle(0), middle(8), middle(2052), middle(4096)), (200.0, 200.0, 600.0, 1000.0));
        let Reading::Modelled(far) = costs.sized(&trip, Bytes(8192)).reading else { panic!("it was not measured") };
        assert!(far.middle == 2000.0 && far.high / far.middle > 1.2, "{far:?}");
    }

    #[test]
    fn another_mpi_gives_a_model_and_what_nobody_knows_is_absent() {
        let costs = costs();
        let cost = costs.sized(&Item::HalfTrip(way("MPICH 4.0")), Bytes(8));
        assert!(matches!(cost.reading, Reading::Modelled(_)) && cost.source.contains("Open MPI 4.1.4"), "{cost:?}");
        let cost = costs.get(&Item::Message(way("MPICH 4.0")));
        let Reading::Absent { reason } = cost.reading else { panic!("{cost:?}") };
        assert!(reason.contains("plimsoll calibrate"), "{reason}");
    }

    #[test]
    fn models_name_their_source_and_give_way_to_rows() {
        let cost = Costs::modelled().get(&Item::DevicePost);
        assert!(matches!(cost.reading, Reading::Modelled(i) if i.low < i.high), "{cost:?}");
        assert!(cost.source.contains("doorbell"), "{}", cost.source);
        let handover = Row { size: None, ..row(Item::Handover, 0, 55.0) };
        let cost = Costs::modelled().refined(vec![handover.clone()]).get(&Item::Handover);
        assert_eq!(cost.reading, handover.cost);
    }

    #[test]
    fn what_layouts_need_is_never_absent() {
        use SiteKind::{Agent, App, Core, Xdp};
        let kinds = [App, Core, Xdp, Agent];
        let crossings = kinds.iter().flat_map(|one| kinds.iter().map(|other| Item::crossing(*one, *other)));
        let entries = BodyKind::ALL.map(Item::Entry);
        for item in crossings.chain(entries).chain([Item::Call, Item::Work, Item::Handover, Item::DevicePost]) {
            let absent = Row { item, size: None, cost: Reading::absent("no such thing"), ..row(Item::Call, 0, 1.0) };
            let cost = Costs::of(vec![absent.clone()]).get(&absent.item);
            assert!(cost.reading.value().is_some(), "{}", absent.item);
        }
    }

    #[test]
    fn newer_rows_take_the_place_of_older_ones() {
        let trip = Item::HalfTrip(way("Open MPI 4.1.4"));
        let costs = costs().refined(vec![row(trip.clone(), 8, 100.0)]);
        assert_eq!((costs.rows().len(), costs.sized(&trip, Bytes(8)).reading.value().unwrap().middle), (2, 100.0));
    }

    proptest! {
        #[test]
        fn intervals_stay_in_order(size in 0u64..1 << 24, factor in 1.0..3.0f64) {
            let cost = costs().widened(factor).sized(&Item::HalfTrip(way("Open MPI 4.1.4")), Bytes(size));
            let interval = cost.reading.value().copied().unwrap();
            prop_assert!(interval.low <= interval.middle && interval.middle <= interval.high, "{interval:?}");
        }
    }
}
