//! Sensors of power: what they cover and how they count.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::quantity::{Nanoseconds, Watts};

/// The part of the machine whose power a sensor tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Covers {
    /// The whole host.
    Node,
    /// A processor's package, without its memory's modules.
    Package,
    /// The cores of a package.
    Cores,
    /// Memory.
    Memory,
    /// A device, such as an accelerator.
    Device,
    /// Unknown: whoever named the source did not say.
    Unstated,
}

impl Covers {
    /// All, each with its word.
    pub const WORDS: [(Covers, &'static str); 6] = [
        (Covers::Node, "node"),
        (Covers::Package, "package"),
        (Covers::Cores, "cores"),
        (Covers::Memory, "memory"),
        (Covers::Device, "device"),
        (Covers::Unstated, "not stated"),
    ];

    /// A power above what any part of the kind draws; a greater value is a counter's jump or an error code.
    pub fn most(self) -> Watts {
        match self {
            Covers::Package | Covers::Cores | Covers::Memory | Covers::Device => Watts(3e3),
            Covers::Node => Watts(5e4),
            Covers::Unstated => Watts(1e8),
        }
    }
}

impl fmt::Display for Covers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Covers::WORDS.iter().find(|(of, _)| of == self).map_or("", |(_, word)| word);
        f.pad(word)
    }
}

crate::named! {
    /// The side that measures: the host's own parts, at the cost of its time, or a device beside it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Band {
        /// The processor, or a program on the host.
        In = "in-band",
        /// A controller, a power supply or a meter of its own.
        Out = "out-of-band",
        /// Unknown: whoever named the source did not say.
        Unstated = "not stated",
    }
}

/// The meaning of a sensor's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Energy since some moment, microjoules.
    Counter {
        /// The number at which it wraps to 0; `None`: never.
        range: Option<u64>,
        /// The least increment, microjoules.
        step: u64,
        /// Greatest age of a number when it is read.
        lag: Nanoseconds,
    },
    /// Present power, microwatts.
    Gauge,
}

/// A sensor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sensor {
    /// Its name, unique on its host: `rapl:package-0/dram`.
    pub name: String,
    /// The part of the machine that it covers.
    pub covers: Covers,
    /// The side that measures.
    pub band: Band,
    /// The meaning of its numbers.
    pub measure: Measure,
    /// Name of the sensor that includes this one's energy: the two are never added.
    pub within: Option<String>,
}

impl Sensor {
    /// Whether its numbers are energies.
    pub fn is_counter(&self) -> bool {
        matches!(self.measure, Measure::Counter { .. })
    }
}
