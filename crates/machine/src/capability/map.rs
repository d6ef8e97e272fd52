//! The capability of the cores of a host, or of several.

use serde::{Deserialize, Serialize};

use super::CoreCapability;
use crate::quantity::Hertz;
use crate::reading::Reading;

/// The cores of a host, or of several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CapabilityMap {
    /// The cores, by host and number.
    pub cores: Vec<CoreCapability>,
    /// Clock of the fastest core.
    pub fastest: Reading<Hertz>,
    /// Hosts that were asked and did not answer.
    pub silent: Vec<SilentHost>,
}

/// A host that did not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SilentHost {
    /// The host, by its name.
    pub host: String,
    /// Why it did not answer.
    pub reason: String,
}

impl CapabilityMap {
    /// Cores with their clocks, where these are known, as a map.
    pub fn of(cores: impl IntoIterator<Item = (CoreCapability, Reading<Hertz>)>) -> CapabilityMap {
        let cores: Vec<_> = cores.into_iter().collect();
        let fastest = cores.iter().filter_map(|(_, clock)| clock.value()).max().copied();
        let over = |clock: Hertz| clock.0 as f64 / fastest.map_or(1.0, |fastest| fastest.0.max(1) as f64);
        let cores = cores.into_iter().map(|(core, clock)| CoreCapability { clock: clock.map(over), ..core }).collect();
        let fastest = fastest.map_or_else(|| Reading::absent("the clock of no core is known"), Reading::Measured);
        CapabilityMap { cores, fastest, silent: Vec::new() }
    }

    /// The maps of several hosts as one, with clocks relative to the fastest core of all.
    pub fn join(maps: impl IntoIterator<Item = CapabilityMap>) -> CapabilityMap {
        let (mut cores, mut silent) = (Vec::new(), Vec::new());
        for map in maps {
            let fastest = map.fastest;
            cores.extend(map.cores.into_iter().map(|core| {
                let clock = match fastest.value() {
                    Some(fastest) => core.clock.clone().map(|share| Hertz((share * fastest.0 as f64).round() as u64)),
                    None => Reading::absent("its clock is not known"),
                };
                (core, clock)
            }));
            silent.extend(map.silent);
        }
        CapabilityMap { silent, ..CapabilityMap::of(cores) }
    }
}
