//! The costs of a message by place: a protocol as a table of constants, each with its origin.
//!
//! The constants are named, so that a file can put measured ones in the place of modelled ones.

use std::collections::BTreeMap;

use machine::fault::{Fault, Result};
use machine::reading::Reading;

mod loggops;
mod mpich_tcp;
mod psm;
mod verbs;

/// One constant.
#[derive(Debug, Clone, PartialEq)]
pub struct Constant {
    pub name: &'static str,
    pub value: Reading<f64>,
    pub unit: &'static str,
    /// Paper and section, or a command.
    pub source: String,
}

/// When messages of a computing rank make progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Never: ranks move messages only in their calls.
    Calls,
    /// At once: a thread of the rank interrupts its computing.
    Thread,
    /// As soon as the core is free, in the order in which work came to be, as LogGOPS has it.
    Between,
    /// Without the rank for a message that waited for its receive; for others in calls of the rank.
    Device,
}

/// The place of the protocol's work, beyond the rank's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Rank,
    /// The rank sends; the host's interrupt core receives, before what else is on it.
    Softirq,
    /// Cores of the host that do nothing else, ranks dealt out to them in turn.
    Engine,
    /// One server of each host, beside its cores.
    Device,
}

/// The behaviour of a rank that waits for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    Spin,
    Sleep,
}

/// `message + bytes x (byte x f0/f + fixed)`, the message's part times f0/f too; ns and ns a byte.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cost {
    pub message: f64,
    pub byte: f64,
    /// Time for memory, which no core's clock changes.
    pub fixed: f64,
}

impl Cost {
    pub fn is_free(&self) -> bool {
        *self == Cost::default()
    }
}

/// A protocol. Work is charged a piece (`unit`) at a time; a message's part with its first piece.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    pub name: String,
    pub progress: Progress,
    pub place: Place,
    pub waiting: Waiting,
    /// Bytes of a piece.
    pub unit: u64,
    /// The largest message whose send waits for no receive.
    pub eager: u64,
    /// Bytes that the library buffers for a connection's sends, and that the sockets of both ends hold.
    pub library: u64,
    pub socket: u64,
    /// Work of the rank itself: into the library's buffer, out of it, into the program's memory.
    pub copy: Cost,
    pub hand: Cost,
    pub take: Cost,
    /// Work of the protocol, at `place`.
    pub send: Cost,
    pub receive: Cost,
    /// Work of the sender's interrupt core, for each piece that the receiver took.
    pub acknowledge: Cost,
    /// Work of the sending rank in place of `send` and `receive`, between ranks of one host.
    pub inside: Cost,
    /// The factor of `hand` and `take` where the rank is on another socket than the interrupt core or its engine.
    pub far: [f64; 2],
    /// Latency within a host, ns.
    pub inside_latency: f64,
    /// Whether pieces are moved in the order of the other ranks' numbers, as polls of sockets do; else in the order in
    /// which they came.
    pub by_peer: bool,
    pub constants: Vec<Constant>,
}

/// Values and their sources that replace a profile's, by name.
pub type Overrides = BTreeMap<String, (Reading<f64>, String)>;

/// A row of a profile's table: name, value, unit, source.
type Row = (&'static str, f64, &'static str, &'static str);

/// The names of all constants, with their units.
const NAMES: [(&str, &str); 30] = [
    ("unit", "B"),
    ("eager", "B"),
    ("library", "B"),
    ("socket", "B"),
    ("copy.message", "ns"),
    ("copy.byte", "ns/B"),
    ("copy.fixed", "ns/B"),
    ("hand.message", "ns"),
    ("hand.byte", "ns/B"),
    ("hand.fixed", "ns/B"),
    ("take.message", "ns"),
    ("take.byte", "ns/B"),
    ("take.fixed", "ns/B"),
    ("send.message", "ns"),
    ("send.byte", "ns/B"),
    ("send.fixed", "ns/B"),
    ("receive.message", "ns"),
    ("receive.byte", "ns/B"),
    ("receive.fixed", "ns/B"),
    ("acknowledge.message", "ns"),
    ("acknowledge.byte", "ns/B"),
    ("acknowledge.fixed", "ns/B"),
    ("inside.message", "ns"),
    ("inside.byte", "ns/B"),
    ("inside.fixed", "ns/B"),
    ("inside.latency", "ns"),
    ("far.hand", "times"),
    ("far.take", "times"),
    ("watts.dynamic", "of watts"),
    ("watts.exponent", ""),
];

/// The adapter of paper 000 whose watts a protocol's hosts follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Card {
    Onload,
    Offload,
}

impl Card {
    /// P(f) = P0 (1 - d + d (f / f0)^3): d from what the adapter's host saved at 2.9 of 3.8 GHz.
    pub fn watts(self) -> [Constant; 2] {
        let (saving, source) = match self {
            Card::Onload => (0.364, "paper 000, IV.A: onload's saving at 2.9 GHz, n = 3"),
            Card::Offload => (0.215, "paper 000, IV.A and VII: offload's saving at 2.9 GHz, n = 3"),
        };
        let exponent: f64 = 3.0;
        let dynamic = saving / (1.0 - (2.9_f64 / 3.8).powf(exponent));
        let constant = |name, value, unit, source: &str| Constant {
            name,
            value: Reading::Modelled(value),
            unit,
            source: source.to_owned(),
        };
        [
            constant("watts.dynamic", dynamic, "of watts", source),
            constant("watts.exponent", exponent, "", "assumed: the voltage follows the clock"),
        ]
    }
}

/// The names of the profiles of constants.
pub const PROFILES: [&str; 4] = [mpich_tcp::NAME, verbs::NAME, psm::NAME, loggops::NAME];

impl Profile {
    /// The profile of that name, with `replaced` in place of its constants.
    ///
    /// # Errors
    /// No such profile, no such constant, a value that is no number of at least 0.
    pub fn named(name: &str, replaced: &Overrides) -> Result<Profile> {
        let (rows, shape, card): (&[Row], _, _) = match name {
            mpich_tcp::NAME => (&mpich_tcp::ROWS, mpich_tcp::SHAPE, Card::Onload),
            verbs::NAME => (&verbs::ROWS, verbs::SHAPE, Card::Offload),
            psm::NAME => (&psm::ROWS, psm::SHAPE, Card::Onload),
            loggops::NAME => (&loggops::ROWS, loggops::SHAPE, Card::Onload),
            _ => {
                let next = format!("name one of {}, plimsoll", PROFILES.join(", "));
                return Err(Fault::new(format!("profile {name}"), "there is no such profile", next));
            }
        };
        let modelled = |(name, value, unit, source): &Row| Constant {
            name,
            value: Reading::Modelled(*value),
            unit,
            source: (*source).to_owned(),
        };
        let mut constants: Vec<Constant> = rows.iter().map(modelled).collect();
        constants.extend(card.watts());
        Profile::replace(&mut constants, &NAMES, replaced)?;
        Ok(Profile::of(name, shape, constants))
    }

    /// Replaces constants by those that are given.
    pub fn replace(
        constants: &mut Vec<Constant>,
        names: &[(&'static str, &'static str)],
        given: &Overrides,
    ) -> Result<()> {
        for (name, (value, source)) in given {
            let subject = format!("constant {name}");
            let Some((name, unit)) = names.iter().find(|(known, _)| known == name) else {
                let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
                let next = format!("name one of {}", known.join(", "));
                return Err(Fault::new(subject, "the protocol has no such constant", next));
            };
            if !value.value().is_some_and(|value| value.is_finite() && *value >= 0.0) {
                return Err(Fault::new(subject, "it has no value of at least 0", "give a number, or leave it out"));
            }
            constants.retain(|constant| constant.name != *name);
            constants.push(Constant { name, value: value.clone(), unit, source: source.clone() });
        }
        Ok(())
    }

    pub fn of(name: &str, shape: (Place, Progress, Waiting, bool), constants: Vec<Constant>) -> Profile {
        let get = |name: &str| constants.iter().find(|of| of.name == name).and_then(|of| of.value.value().copied());
        let cost = |name: &str| {
            let part = |part: &str| get(&format!("{name}.{part}")).unwrap_or(0.0);
            Cost { message: part("message"), byte: part("byte"), fixed: part("fixed") }
        };
        // A constant that is not in the table has no bound.
        let bytes = |name: &str| get(name).map_or(u64::MAX, |bytes| bytes as u64);
        let (place, progress, waiting, by_peer) = shape;
        Profile {
            name: name.to_owned(),
            progress,
            place,
            waiting,
            unit: bytes("unit").max(1),
            eager: bytes("eager"),
            library: bytes("library"),
            socket: bytes("socket"),
            copy: cost("copy"),
            hand: cost("hand"),
            take: cost("take"),
            send: cost("send"),
            receive: cost("receive"),
            acknowledge: cost("acknowledge"),
            inside: cost("inside"),
            far: ["far.hand", "far.take"].map(|name| get(name).unwrap_or(1.0)),
            inside_latency: get("inside.latency").unwrap_or(0.0),
            by_peer,
            constants,
        }
    }
}
