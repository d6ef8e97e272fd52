//! The power sensors that a machine has as files: powercap, hwmon, Cray's pm_counters.

use std::collections::BTreeMap;

use super::sensor::{Band, Covers, Measure, Sensor};
use crate::availability::Availability;
use crate::quantity::Nanoseconds;
use crate::source::Source;

const POWERCAP: &str = "/sys/class/powercap";
const HWMON: &str = "/sys/class/hwmon";
/// Folder of the counters of Cray's node controllers.
pub const PM_COUNTERS: &str = "/sys/cray/pm_counters";

/// A sensor and the file that it is read from.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The sensor.
    pub sensor: Sensor,
    /// The file's absolute path.
    pub file: String,
    /// The time up to now that the number is the mean of.
    pub mean_over: Nanoseconds,
}

/// The result of a search for sensors of one kind. Some may be found while others are closed.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// Sensors that may be read, in the kernel's order.
    pub found: Vec<Found>,
    /// Why others, or all, are missing.
    pub refused: Option<Availability>,
    /// Files that hold no number, each with the answer to reading it.
    pub(crate) unread: Vec<String>,
}

impl Search {
    fn or(mut self, absent: impl FnOnce() -> Availability) -> Search {
        if self.refused.is_none() {
            self.refused = match &self.unread[..] {
                [] => self.found.is_empty().then(absent),
                [only] => Some(Availability::absent(only, UNREAD)),
                [first, rest @ ..] => {
                    Some(Availability::absent(format!("{first}; {} more like it", rest.len()), UNREAD))
                }
            };
        }
        self
    }

    /// Adds the sensor if its file can be read, else notes why not.
    fn add(&mut self, source: &Source, found: Found, next: &str) {
        let file = &found.file;
        match source.text(file) {
            Ok(text) => {
                let word = text.split_whitespace().next().unwrap_or_default();
                match word.parse::<u64>() {
                    Ok(_) => self.found.push(found),
                    Err(_) => self.unread.push(format!("{file} holds '{word}', which is no number from 0 up")),
                }
            }
            Err(refusal) if refusal.not_permitted() => {
                let closed = || Availability::not_permitted(format!("{file}: {refusal}"), next);
                self.refused.get_or_insert_with(closed);
            }
            Err(refusal) if refusal.missing() => {}
            Err(refusal) => self.unread.push(format!("{file}: {refusal}")),
        }
    }

    /// Makes names unique: equal ones get their place behind an `@`.
    fn named_apart(mut self, place: impl Fn(&Found) -> String) -> Search {
        let mut count = BTreeMap::new();
        for found in &self.found {
            *count.entry(found.sensor.name.clone()).or_insert(0) += 1;
        }
        for found in &mut self.found {
            if count[&found.sensor.name] > 1 {
                found.sensor.name = format!("{}@{}", found.sensor.name, place(found));
            }
        }
        self
    }
}

/// The next step for files that hold no number.
const UNREAD: &str = "look for newer firmware, or read the power supply by 'command: ipmitool dcmi power reading'";

/// The next step for energy counters that this user may not read.
const CLOSED: &str = "run as root, or grant read access to energy_uj (closed since CVE-2020-8694)";

/// RAPL by powercap, on Intel and by the same driver on AMD: packages, their cores, their memory, the platform.
pub fn rapl(source: &Source) -> Search {
    // `intel-rapl:0` is a package, `intel-rapl:0:0` a part of it; the mmio twins count the same energy again.
    let is_zone = |name: &str| name.contains(':') && !name.starts_with("intel-rapl-mmio");
    let mut search = Search::default();
    for zone in source.names(POWERCAP, is_zone).unwrap_or_default() {
        let full = full_name(source, &zone);
        let own = full.rsplit('/').next().unwrap_or_default();
        let package = full.rsplit_once('/').map(|(package, _)| format!("rapl:{package}"));
        // The memory's counter is a zone below the package's, but no part of its energy.
        let (covers, within) = match own {
            "dram" => (Covers::Memory, None),
            "psys" => (Covers::Node, None),
            _ if package.is_some() => (Covers::Cores, package),
            _ => (Covers::Package, None),
        };
        let measure = Measure::Counter {
            range: source.number(&format!("{POWERCAP}/{zone}/max_energy_range_uj")).filter(|range| *range > 0),
            step: 62,
            lag: Nanoseconds(1_000_000),
        };
        let sensor = Sensor { name: format!("rapl:{full}"), covers, band: Band::In, measure, within };
        let file = format!("{POWERCAP}/{zone}/energy_uj");
        search.add(source, Found { sensor, file, mean_over: Nanoseconds(0) }, CLOSED);
    }
    search.named_apart(|found| found.file.rsplit('/').nth(1).unwrap_or_default().to_owned()).or(|| {
        Availability::absent("no powercap zone has a counter", "load intel_rapl_msr; virtual machines show none")
    })
}

/// The zone's name behind the names of its parent zones.
fn full_name(source: &Source, zone: &str) -> String {
    let name = |zone: &str| source.word(&format!("{POWERCAP}/{zone}/name")).unwrap_or_else(|| zone.to_owned());
    match zone.rsplit_once(':') {
        Some((above, _)) if above.contains(':') => format!("{}/{}", full_name(source, above), name(zone)),
        _ => name(zone),
    }
}

/// A monitoring chip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chip {
    /// Its folder, such as `/sys/class/hwmon/hwmon2`.
    pub folder: String,
    /// The driver's name for it.
    pub name: String,
    /// Its files of power or energy.
    pub files: Vec<String>,
}

/// All monitoring chips, in the order of the kernel.
pub fn chips(source: &Source) -> Vec<Chip> {
    let chip = |device: String| {
        let folder = format!("{HWMON}/{device}");
        let name = source.word(&format!("{folder}/name")).unwrap_or(device);
        let files = source.names(&folder, is_power).unwrap_or_default();
        Chip { folder, name, files }
    };
    let devices = source.names(HWMON, |name| name.starts_with("hwmon")).unwrap_or_default();
    devices.into_iter().map(chip).collect()
}

/// Power and energy of monitoring chips. They are never added up, since nothing says which include each other's power.
pub fn hwmon(source: &Source) -> Search {
    let (mut search, chips) = (Search::default(), chips(source));
    for Chip { folder, name, files } in &chips {
        for file in files {
            let Some((channel, kind)) = file.split_once('_') else { continue };
            // Both tell the same power; the present value is preferred to the average.
            if kind == "average" && files.contains(&format!("{channel}_input")) {
                continue;
            }
            let label = source.word(&format!("{folder}/{channel}_label")).unwrap_or_else(|| channel.to_owned());
            let (covers, band) = of_chip(name, &label);
            let measure = match channel.starts_with("energy") {
                true => Measure::Counter { range: None, step: 1, lag: Nanoseconds(0) },
                false => Measure::Gauge,
            };
            let over: u64 = match kind {
                "average" => source.number(&format!("{folder}/{channel}_average_interval")).unwrap_or(0),
                _ => 0,
            };
            let sensor = Sensor { name: format!("hwmon:{name}:{label}"), covers, band, measure, within: None };
            let mean_over = Nanoseconds(over.min(60_000) * 1_000_000);
            search.add(source, Found { sensor, file: format!("{folder}/{file}"), mean_over }, "run as root");
        }
    }
    let mut names: Vec<&str> = chips.iter().map(|chip| chip.name.as_str()).collect();
    names.dedup();
    search.named_apart(|found| found.file.rsplit('/').nth(1).unwrap_or_default().to_owned()).or(|| {
        match names.is_empty() {
            true => Availability::absent(
                "no monitoring chip",
                "load its driver (`sensors-detect` finds it); virtual machines show none",
            ),
            false => Availability::absent(
                format!("no chip tells power or energy: {}", names.join(", ")),
                "load acpi_power_meter, or read the power supply by 'command: ipmitool dcmi power reading'",
            ),
        }
    })
}

fn is_power(name: &str) -> bool {
    let numbered = |kind: &str| {
        let rest = name.strip_prefix(kind)?;
        let end = rest.find('_')?;
        rest[..end].parse::<u32>().ok().map(|_| &rest[end..])
    };
    matches!(numbered("power"), Some("_input" | "_average")) || numbered("energy") == Some("_input")
}

/// The coverage of a chip's channel, and the side that measures it.
fn of_chip(chip: &str, label: &str) -> (Covers, Band) {
    match chip {
        "power_meter" => (Covers::Node, Band::Out),
        "amdgpu" | "nouveau" | "xe" | "i915" => (Covers::Device, Band::In),
        "amd_energy" if label.starts_with("Esocket") => (Covers::Package, Band::In),
        "amd_energy" => (Covers::Cores, Band::In),
        _ => (Covers::Unstated, Band::Out),
    }
}

/// Cray's counters of the node and its parts, taken ten times a second by the node's controller.
pub fn cray(source: &Source) -> Search {
    let mut search = Search::default();
    let is_part =
        |name: &str| name == "energy" || name == "power" || name.ends_with("_energy") || name.ends_with("_power");
    let files = source.names(PM_COUNTERS, is_part).unwrap_or_default();
    let rate: Option<u64> = source.number(&format!("{PM_COUNTERS}/raw_scan_hz"));
    let lag = Nanoseconds(1_000_000_000 / rate.filter(|rate| (1..=1000).contains(rate)).unwrap_or(10));
    for file in &files {
        let (part, kind) = file.rsplit_once('_').unwrap_or(("", file));
        let energy = if part.is_empty() { "energy".to_owned() } else { format!("{part}_energy") };
        // A counter of energy is preferred to its power.
        if kind == "power" && files.contains(&energy) {
            continue;
        }
        let covers = match part {
            "" => Covers::Node,
            "cpu" => Covers::Package,
            "memory" => Covers::Memory,
            _ if part.starts_with("accel") => Covers::Device,
            _ => Covers::Unstated,
        };
        let measure = match kind {
            "energy" => Measure::Counter { range: None, step: 1_000_000, lag },
            _ => Measure::Gauge,
        };
        let name = if part.is_empty() { "node" } else { part };
        let within = (!part.is_empty()).then(|| "cray:node".to_owned());
        let sensor = Sensor { name: format!("cray:{name}"), covers, band: Band::Out, measure, within };
        let file = format!("{PM_COUNTERS}/{file}");
        let found = Found { sensor, file, mean_over: Nanoseconds(0) };
        search.add(source, found, "ask who runs the system for read access");
    }
    search
        .or(|| Availability::absent(format!("{PM_COUNTERS} has no counter"), "it is on nodes of HPE Cray systems only"))
}
