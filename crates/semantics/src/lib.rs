//! Two semantics side by side (paper 004): messages matched by an engine, and queue pairs with matching above them.
//! The same messages, ports, threads and matching queues; only what lies between them differs.
//!
//! One end, the hub, has 2 to 1,000 peers; what it spends and needs is measured. Its peers, the leaves, are all driven by
//! one thread: in runs of fixed work by the hub's own, in turns, so that nobody waits and every nanosecond is work; in
//! runs for rate and latency by a thread on another core.
#![forbid(unsafe_code)]

mod flood;
mod footprint;
mod layer;
mod measure;
mod order;
mod pace;
mod used;
mod wiring;
mod work;

use std::fmt;
use std::str::FromStr;

use experiment::nearness::at_one_place;
use experiment::sample::Probe;
use machine::{CoreId, Fault, Result};
use serde::{Deserialize, Serialize};

pub use flood::Flood;
pub use footprint::Footprint;
pub use measure::measure;
pub use order::Order;
pub use used::{Used, used};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Semantics {
    /// The engine: messages go to an address and are matched by it.
    Matched,
    /// A connected queue pair for each peer, receives posted for each.
    QueuePair,
    /// The same, with one shared receive queue for all peers.
    QueuePairShared,
}

/// What carries the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// Queues inside this process, one for each end, as at a network card.
    Memory,
    /// Rings in shared memory, one for each peer and direction.
    Shm,
    /// Sockets on loopback.
    Udp,
}

macro_rules! named {
    ($type:ty, $what:literal, [$(($variant:ident, $name:literal)),+]) => {
        impl $type {
            pub const ALL: &[$type] = &[$(<$type>::$variant),+];

            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $type {
            type Err = Fault;

            fn from_str(text: &str) -> Result<Self> {
                let all = Self::ALL;
                all.iter().find(|one| one.name() == text).copied().ok_or_else(|| {
                    let names: Vec<_> = all.iter().map(|one| one.name()).collect();
                    Fault::new(format!("{} '{text}'", $what), "there is no such", format!("choose {}", names.join(", ")))
                })
            }
        }
    };
}
pub(crate) use named;

named!(
    Semantics,
    "semantics",
    [(Matched, "matched"), (QueuePair, "queue-pair"), (QueuePairShared, "queue-pair-shared")]
);
named!(Carrier, "port", [(Memory, "memory"), (Shm, "shm"), (Udp, "udp")]);

/// What a block measures; all of it in nanoseconds but the rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Work of the hub for a message it sends, and for one it receives. Nobody waits in these runs.
    SendWork,
    ReceiveWork,
    /// Messages a second that the hub receives from and sends to all leaves, which another core drives.
    ReceiveRate,
    SendRate,
    /// CPU time of the hub's thread for a message in those runs, waiting included.
    ReceiveCpu,
    SendCpu,
    /// Half a round trip with one leaf after another.
    HalfRoundTrip,
}

named!(
    Quantity,
    "quantity",
    [
        (SendWork, "send work"),
        (ReceiveWork, "receive work"),
        (ReceiveRate, "receive rate"),
        (SendRate, "send rate"),
        (ReceiveCpu, "receive CPU"),
        (SendCpu, "send CPU"),
        (HalfRoundTrip, "half round trip")
    ]
);

impl Quantity {
    pub fn more_is_better(self) -> bool {
        matches!(self, Quantity::ReceiveRate | Quantity::SendRate)
    }

    /// Whether the cores' distance matters.
    pub fn between_cores(self) -> bool {
        !matches!(self, Quantity::SendWork | Quantity::ReceiveWork)
    }
}

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct Request {
    pub semantics: Vec<Semantics>,
    /// Numbers of peers.
    pub peers: Vec<u32>,
    pub carrier: Carrier,
    pub orders: Vec<Order>,
    /// Bytes of a message.
    pub size: usize,
    pub rounds: u32,
    /// The cores of the hub and of the leaves.
    pub cores: (CoreId, CoreId),
}

impl Outcome {
    /// Values of one place in the table, round by round.
    pub fn values(&self, semantics: Semantics, peers: u32, order: Order, quantity: Quantity) -> Vec<(u32, f64)> {
        self.of(semantics, peers, order, quantity).map(|sample| (sample.round, sample.value)).collect()
    }

    fn of(&self, semantics: Semantics, peers: u32, order: Order, quantity: Quantity) -> impl Iterator<Item = &Sample> {
        let same =
            move |s: &&Sample| (s.semantics, s.peers, s.order, s.quantity) == (semantics, peers, order, quantity);
        self.samples.iter().filter(same)
    }

    /// How much better `one` does than `other`, round by round: above 1 where it is better. Rounds in which the cores moved
    /// between the two are left out.
    pub fn ratios(&self, one: Semantics, other: Semantics, peers: u32, order: Order, quantity: Quantity) -> Vec<f64> {
        let of = |semantics| self.of(semantics, peers, order, quantity);
        let pairs = of(one).filter_map(|a| Some((a, of(other).find(|b| b.round == a.round)?)));
        let met_the_same = |(a, b): &(&Sample, &Sample)| at_one_place([a.probe, b.probe].into_iter().flatten());
        let pairs = pairs.filter(met_the_same).map(|(a, b)| (a.value, b.value));
        let usable = pairs.filter(|(a, b)| *a > 0.0 && *b > 0.0);
        usable.map(|(a, b)| if quantity.more_is_better() { a / b } else { b / a }).collect()
    }
}

/// One block.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sample {
    pub semantics: Semantics,
    pub peers: u32,
    pub order: Order,
    pub quantity: Quantity,
    pub round: u32,
    pub value: f64,
    /// Beside blocks between cores.
    pub probe: Option<Probe>,
}

/// All that was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    pub carrier: Carrier,
    pub size: usize,
    pub rounds: u32,
    pub cores: (CoreId, CoreId),
    pub samples: Vec<Sample>,
    pub footprints: Vec<Footprint>,
    pub used: Vec<Used>,
    pub floods: Vec<Flood>,
    /// What the layers counted by the end that a reader must know.
    pub notes: Vec<String>,
}
