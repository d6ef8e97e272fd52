//! What a layout must be before it is solved.

use machine::{Fault, Result};

use crate::layout::{Layout, Place, Tie};

/// Most units of one layout.
pub const MAX_UNITS: usize = 10_000;
/// Most sites of one layout.
pub const MAX_SITES: usize = 1_024;
/// Core time is summed in whole nanoseconds a second; this keeps every sum in 63 bits.
const MAX_LOAD: f64 = 1e5;
/// For the same reason: 512 TiB a unit.
const MAX_MEMORY: u64 = 1 << 49;
/// Seconds of core time a second that all costs together may reach; beyond, differences would drown in rounding.
const MAX_COST: f64 = 1e9;

impl Layout {
    /// Whether sizes, numbers and indices make sense.
    ///
    /// # Errors
    /// Names the first thing that does not.
    pub fn check(&self) -> Result<()> {
        let (units, sites) = (self.units.len(), self.sites.len());
        if units > MAX_UNITS {
            return Err(fault("units", format!("{units} of them, more than {MAX_UNITS}"), "split the application"));
        }
        if sites > MAX_SITES {
            return Err(fault("sites", format!("{sites} of them, more than {MAX_SITES}"), "offer fewer sites"));
        }
        if sites == 0 && units > 0 {
            return Err(fault("sites", "there is none".into(), "offer at least one, for example app"));
        }
        self.check_sites()?;
        self.check_units()?;
        self.check_crossings()?;
        self.check_ties()
    }

    fn check_sites(&self) -> Result<()> {
        let mut seen = std::collections::BTreeSet::new();
        for candidate in &self.sites {
            let name = format!("site {}", candidate.site);
            let capacity = candidate.capacity.0;
            if capacity.is_nan() || capacity < 0.0 {
                let next = "state cores, 0 or more; infinity is no limit";
                return Err(fault(name, format!("its capacity is {capacity}"), next));
            }
            for (what, value) in [("price", candidate.price), ("opening", candidate.opening)] {
                if !(0.0..=MAX_LOAD).contains(&value) {
                    let next = "state a number from 0 to 100,000";
                    return Err(fault(name, format!("its {what} is {value}"), next));
                }
            }
            if !seen.insert(&candidate.site) {
                return Err(fault(name, "it is there twice".into(), "offer each site once"));
            }
        }
        Ok(())
    }

    fn check_units(&self) -> Result<()> {
        let sites = self.sites.len();
        for unit in &self.units {
            let name = format!("unit {}", unit.name);
            if unit.places.len() != sites {
                let cause = format!("it has {} places for {sites} sites", unit.places.len());
                return Err(fault(name, cause, "give one place a site"));
            }
            if unit.priority > 1000 {
                return Err(fault(name, format!("its priority is {}", unit.priority), "choose 0 to 1000"));
            }
            if unit.memory.0 > MAX_MEMORY {
                return Err(fault(name, format!("it asks for {}", unit.memory), "ask for at most 512 TiB"));
            }
            for (place, candidate) in unit.places.iter().zip(&self.sites) {
                if let Place::Possible(load) = place
                    && !(0.0..=MAX_LOAD).contains(&load.0)
                {
                    let cause = format!("its load at {} is {} cores", candidate.site, load.0);
                    return Err(fault(name, cause, "state a share of one core, 0 to 100,000"));
                }
            }
        }
        Ok(())
    }

    fn check_crossings(&self) -> Result<()> {
        let (units, sites) = (self.units.len(), self.sites.len());
        if self.crossing_ns.len() != sites || self.crossing_ns.iter().any(|row| row.len() != sites) {
            let next = format!("give {sites} rows of {sites} nanoseconds");
            return Err(fault("crossings", "they are no square of the sites".into(), next));
        }
        for (a, row) in self.crossing_ns.iter().enumerate() {
            for (b, &cost) in row.iter().enumerate() {
                if !cost.is_finite() || cost < 0.0 {
                    let name = format!("crossing from {} to {}", self.sites[a].site, self.sites[b].site);
                    return Err(fault(name, format!("it costs {cost} ns"), "state nanoseconds, 0 or more"));
                }
            }
        }
        let dearest = self.crossing_ns.iter().flatten().fold(0.0f64, |m, &c| m.max(c));
        let mut total = 0.0;
        for (index, channel) in self.channels.iter().enumerate() {
            let name = format!("channel {index}");
            if channel.from.0 >= units || channel.to.0 >= units {
                return Err(fault(name, "it ends at no unit".into(), format!("the units are 0 to {units}, less one")));
            }
            let name = format!("channel {} -> {}", self.units[channel.from.0].name, self.units[channel.to.0].name);
            if channel.from == channel.to {
                return Err(fault(name, "it leads back to where it comes from".into(), "leave it out"));
            }
            if !channel.rate.is_finite() || channel.rate < 0.0 {
                let cause = format!("its rate is {}", channel.rate);
                return Err(fault(name, cause, "state messages a second, 0 or more"));
            }
            total += channel.rate * dearest * 1e-9 * 10.0;
            if total > MAX_COST {
                let cause = "with it the crossings may cost more than a thousand million cores".into();
                return Err(fault(name, cause, "state messages a second, and crossings in nanoseconds"));
            }
        }
        Ok(())
    }

    fn check_ties(&self) -> Result<()> {
        let (units, sites) = (self.units.len(), self.sites.len());
        for (index, tie) in self.constraints.iter().enumerate() {
            let name = format!("constraint {index}");
            match *tie {
                Tie::Pull(a, b) | Tie::Gang(a, b) => {
                    if a.0 >= units || b.0 >= units {
                        return Err(fault(name, "it names no unit".into(), format!("there are {units} units")));
                    }
                    if a == b {
                        let cause = format!("it ties {} to itself", self.units[a.0].name);
                        return Err(fault(name, cause, "leave it out"));
                    }
                }
                Tie::Pin(a, site) => {
                    if a.0 >= units || site.0 >= sites {
                        let cause = "it names no unit or no site".into();
                        return Err(fault(name, cause, format!("there are {units} units and {sites} sites")));
                    }
                }
            }
        }
        Ok(())
    }
}

fn fault(subject: impl Into<String>, cause: String, next: impl Into<String>) -> Fault {
    Fault::new(subject, cause, next).within("layout")
}
