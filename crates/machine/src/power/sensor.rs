//! What a sensor of power is of.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::quantity::{Nanoseconds, Watts};

/// What draws the power that a sensor tells.
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
    /// Whoever named the source did not say.
    Unstated,
}

impl Covers {
    /// All, with the word for each.
    pub const WORDS: [(Covers, &'static str); 6] = [
        (Covers::Node, "node"),
        (Covers::Package, "package"),
        (Covers::Cores, "cores"),
        (Covers::Memory, "memory"),
        (Covers::Device, "device"),
        (Covers::Unstated, "not stated"),
    ];

    /// More than anything of the kind draws; what exceeds it is no power but a counter that jumped or an error's code.
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
    /// Who measures: the host's own parts, at the cost of its time, or something beside it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Band {
        /// The processor, or a program on the host.
        In = "in-band",
        /// A controller, a power supply or a meter of its own.
        Out = "out-of-band",
        /// Whoever named the source did not say.
        Unstated = "not stated",
    }
}

/// What the numbers of a sensor are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Microjoules since some moment.
    Counter {
        /// Where it begins again at 0; `None`: it never does.
        range: Option<u64>,
        /// The least step, microjoules.
        step: u64,
        /// How long a number may have stood when it is read.
        lag: Nanoseconds,
    },
    /// Microwatts at the moment.
    Gauge,
}

/// A sensor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sensor {
    /// `rapl:package-0/dram`: unique among those of a host.
    pub name: String,
    /// What draws the power.
    pub covers: Covers,
    /// Who measures it.
    pub band: Band,
    /// What the numbers are.
    pub measure: Measure,
    /// The sensor that has this energy in its own, by name: the two are never added.
    pub within: Option<String>,
}

impl Sensor {
    /// Whether its numbers are energies.
    pub fn is_counter(&self) -> bool {
        matches!(self.measure, Measure::Counter { .. })
    }
}
