//! Clock control: cpufreq policies, `intel_pstate`, `amd_pstate`, boost.
//!
//! Files are those of the kernel's `Documentation/admin-guide/pm/cpufreq.rst`, `intel_pstate.rst` and
//! `amd-pstate.rst`.

use serde::{Deserialize, Serialize};

use crate::cpuset::CpuSet;
use crate::quantity::Hertz;
use crate::site::CoreId;
use crate::source::Source;

pub(crate) const CPUFREQ: &str = "/sys/devices/system/cpu/cpufreq";
const INTEL: &str = "/sys/devices/system/cpu/intel_pstate";
const AMD: &str = "/sys/devices/system/cpu/amd_pstate";

/// The clock policy of a set of cores; equal policies are merged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockPolicy {
    /// Cores that the policy applies to.
    pub cores: CpuSet,
    /// The kernel's driver that sets the clock, such as `intel_pstate`.
    pub driver: Option<String>,
    /// The governor in force, such as `performance`.
    pub governor: Option<String>,
    /// Governors that can be chosen.
    pub governors: Vec<String>,
    /// Energy performance preference, where the hardware picks the clock.
    pub preference: Option<String>,
    /// Lowest clock that the policy allows.
    pub low: Option<Hertz>,
    /// Highest clock that the policy allows.
    pub high: Option<Hertz>,
    /// Lowest clock of the hardware.
    pub hardware_low: Option<Hertz>,
    /// Highest clock of the hardware.
    pub hardware_high: Option<Hertz>,
    /// Clock guaranteed without boost.
    pub base: Option<Hertz>,
}

/// All clock control of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// The policies, in the order of their first cores.
    pub policies: Vec<ClockPolicy>,
    /// Mode of intel_pstate or amd_pstate: `active`, `passive`, `guided` or `off`.
    pub mode: Option<String>,
    /// Whether clocks above the base are allowed.
    pub boost: Option<bool>,
}

impl Clock {
    /// Reads every policy, the mode and boost; what the source lacks stays empty.
    pub fn read(source: &Source) -> Clock {
        let mut policies: Vec<ClockPolicy> = Vec::new();
        for (_, policy) in Clock::each(source) {
            let same = |other: &ClockPolicy| ClockPolicy { cores: policy.cores.clone(), ..other.clone() } == policy;
            match policies.iter_mut().find(|other| same(other)) {
                Some(other) => other.cores = other.cores.iter().chain(policy.cores.iter()).collect(),
                None => policies.push(policy),
            }
        }
        let no_turbo = source.number::<u8>(&format!("{INTEL}/no_turbo")).map(|off| off == 0);
        Clock {
            policies,
            mode: source.word(&format!("{INTEL}/status")).or_else(|| source.word(&format!("{AMD}/status"))),
            boost: no_turbo.or_else(|| source.number::<u8>(&format!("{CPUFREQ}/boost")).map(|on| on != 0)),
        }
    }

    /// Every policy by its number, not merged; policies whose cores are all offline are left out.
    pub fn each(source: &Source) -> Vec<(u32, ClockPolicy)> {
        let number = |name: &str| name.strip_prefix("policy").and_then(|n| n.parse::<u32>().ok());
        let names = source.names(CPUFREQ, |name| number(name).is_some()).unwrap_or_default();
        let read = |name: &String| ClockPolicy::read(source, &format!("{CPUFREQ}/{name}"));
        // The kernel refuses all files of a policy whose cores are offline (EBUSY).
        let on = |name: &&String| match source.text(&format!("{CPUFREQ}/{name}/affected_cpus")) {
            Ok(cores) => !cores.trim().is_empty(),
            Err(refusal) => refusal.missing(),
        };
        names.iter().filter(on).filter_map(|name| Some((number(name)?, read(name)))).collect()
    }

    /// One line about all policies, the mode and boost; `None` without cpufreq.
    pub fn summary(&self) -> Option<String> {
        let first = self.policies.first()?;
        let mut text = first.summary();
        if let Some(mode) = &self.mode {
            text += &format!(", {mode} mode");
        }
        if let Some(boost) = self.boost {
            text += if boost { ", boost on" } else { ", boost off" };
        }
        for other in &self.policies[1..] {
            text += &format!("; cores {}: {}", other.cores, other.summary());
        }
        Some(text)
    }
}

impl ClockPolicy {
    fn read(source: &Source, directory: &str) -> ClockPolicy {
        let word = |name: &str| source.word(&format!("{directory}/{name}"));
        let kilohertz = |name: &str| word(name)?.parse::<u64>().ok()?.checked_mul(1000).map(Hertz);
        let cores =
            word("affected_cpus").and_then(|cpus| CpuSet::from_list(&cpus.replace(' ', ","))).unwrap_or_default();
        // Nominal clock in MHz, where the firmware has ACPI CPPC.
        let nominal = |core: CoreId| {
            let path = format!("/sys/devices/system/cpu/cpu{}/acpi_cppc/nominal_freq", core.0);
            source.number::<u64>(&path)?.checked_mul(1_000_000).map(Hertz)
        };
        ClockPolicy {
            driver: word("scaling_driver"),
            governor: word("scaling_governor"),
            governors: word("scaling_available_governors")
                .unwrap_or_default()
                .split_whitespace()
                .map(String::from)
                .collect(),
            preference: word("energy_performance_preference"),
            low: kilohertz("scaling_min_freq"),
            high: kilohertz("scaling_max_freq"),
            hardware_low: kilohertz("cpuinfo_min_freq"),
            hardware_high: kilohertz("cpuinfo_max_freq"),
            base: kilohertz("base_frequency").or_else(|| nominal(cores.first()?)),
            cores,
        }
    }

    fn summary(&self) -> String {
        let mut parts = vec![format!("driver {}", self.driver.as_deref().unwrap_or("unnamed"))];
        parts.extend(self.governor.as_ref().map(|governor| format!("governor {governor}")));
        parts.extend(self.preference.as_ref().map(|preference| format!("preference {preference}")));
        parts.extend(self.low.zip(self.high).map(|(low, high)| format!("{low} to {high}")));
        parts.extend(self.base.map(|base| format!("base {base}")));
        parts.join(", ")
    }
}
