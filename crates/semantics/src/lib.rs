//! Two semantics side by side (paper 004): messages matched by an engine, and queue pairs with matching above them. Messages,
//! ports, threads and matching queues are the same; only the layer between differs.
//!
//! One end, the hub, has 2 to 1,000 peers; its time and memory are measured. Its peers, the leaves, are all driven by one
//! thread: in runs of fixed work by the hub's own, alternating, so that nobody waits and every nanosecond is work; in runs for
//! rate and latency by a thread on another core.
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

use machine::CoreId;
use rounds::blocks::Series;
use rounds::comparison::Paired;
use serde::{Deserialize, Serialize};

pub use endpoint::Semantics;
pub use flood::Flood;
pub use footprint::Footprint;
pub use measure::measure;
pub use order::Order;
pub use used::{Used, used};

machine::named! {
    /// The port that carries the packets.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Carrier ("port") {
        /// Queues inside this process, one for each end, as at a network card.
        Memory = "memory",
        /// Rings in shared memory, one for each peer and direction.
        Shm = "shm",
        /// Sockets on loopback.
        Udp = "udp",
    }
}

machine::named! {
    /// The measured quantity of a block; in nanoseconds, except the rates.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Quantity {
        /// Work of the hub per message it sends, and per message it receives. Nobody waits in these runs.
        SendWork = "send work",
        ReceiveWork = "receive work",
        /// Messages per second that the hub receives from and sends to all leaves, which another core drives.
        ReceiveRate = "receive rate",
        SendRate = "send rate",
        /// CPU time of the hub's thread per message in those runs, waiting included.
        ReceiveCpu = "receive CPU",
        SendCpu = "send CPU",
        /// Half a round trip with one leaf after another.
        HalfRoundTrip = "half round trip",
    }
}

impl Quantity {
    pub fn more_is_better(self) -> bool {
        matches!(self, Quantity::ReceiveRate | Quantity::SendRate)
    }

    /// Whether the cores' distance matters.
    pub fn between_cores(self) -> bool {
        !matches!(self, Quantity::SendWork | Quantity::ReceiveWork)
    }
}

/// The quantities and conditions to be measured.
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

/// The measured blocks.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    pub carrier: Carrier,
    pub size: usize,
    /// Most rounds: a decided cell gets no more.
    pub rounds: u32,
    pub cores: (CoreId, CoreId),
    pub cells: Vec<Cell>,
    pub footprints: Vec<Footprint>,
    pub used: Vec<Used>,
    pub floods: Vec<Flood>,
    /// Layers' remarks that a reader needs, and blocks that failed.
    pub notes: Vec<String>,
}

/// The blocks measured side by side.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    pub peers: u32,
    pub order: Order,
    pub measured: Vec<Measured>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    pub semantics: Semantics,
    #[serde(flatten)]
    pub series: Series<BlockValues>,
}

/// Values of one block: some kinds give two quantities.
#[derive(Debug, Clone, Serialize)]
pub struct BlockValues {
    pub values: Vec<(Quantity, f64)>,
}

impl BlockValues {
    pub fn of(&self, quantity: Quantity) -> Option<f64> {
        self.values.iter().find(|(of, _)| *of == quantity).map(|(_, value)| *value)
    }
}

impl Outcome {
    /// Number of measured blocks.
    pub fn blocks(&self) -> usize {
        self.cells.iter().flat_map(|cell| &cell.measured).map(|of| of.series.blocks.len()).sum()
    }

    /// Numbers of peers and orders in which `quantity` was measured.
    pub fn places(&self, quantity: Quantity) -> Vec<(u32, Order)> {
        let gives = |of: &Measured| of.series.blocks.iter().any(|taken| taken.block.of(quantity).is_some());
        let cells = self.cells.iter().filter(|cell| cell.measured.iter().any(gives));
        cells.map(|cell| (cell.peers, cell.order)).collect()
    }

    fn series(&self, semantics: Semantics, place: (u32, Order), quantity: Quantity) -> Option<&Series<BlockValues>> {
        let cells = self.cells.iter().filter(|cell| (cell.peers, cell.order) == place);
        let mut series =
            cells.flat_map(|cell| &cell.measured).filter(|of| of.semantics == semantics).map(|of| &of.series);
        series.find(|series| series.blocks.iter().any(|taken| taken.block.of(quantity).is_some()))
    }

    /// Values round by round.
    pub fn values(&self, semantics: Semantics, place: (u32, Order), quantity: Quantity) -> Vec<f64> {
        self.series(semantics, place, quantity).map_or(Vec::new(), |series| series.values(|gave| gave.of(quantity)))
    }

    /// How much better `one` does than `other`, round by round: above 1 where it is better.
    pub fn over(&self, one: Semantics, other: Semantics, place: (u32, Order), quantity: Quantity) -> Option<Paired> {
        let (one, other) = (self.series(one, place, quantity)?, self.series(other, place, quantity)?);
        let value = |gave: &BlockValues| gave.of(quantity);
        Some(if quantity.more_is_better() { one.over(other, value) } else { other.over(one, value) })
    }
}
