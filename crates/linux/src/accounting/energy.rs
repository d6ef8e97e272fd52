//! Energy that the processor's packages and their parts used: RAPL, by the kernel's powercap files.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use machine::Reading;

const POWERCAP: &str = "/sys/class/powercap";

/// One zone: a package, its cores, its memory.
#[derive(Debug)]
struct Zone {
    name: String,
    file: PathBuf,
    /// The counter's last value, and where it begins again.
    last: u64,
    range: u64,
    total: u64,
}

/// What a zone used since the sensor was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneEnergy {
    /// `package-0`, or `package-0/dram` of a part.
    pub name: String,
    pub microjoules: u64,
}

/// Counters of energy; look often enough that none goes round twice, which takes minutes.
#[derive(Debug)]
pub struct EnergySensor {
    zones: Vec<Zone>,
}

impl EnergySensor {
    pub fn open() -> Reading<EnergySensor> {
        EnergySensor::below(Path::new(POWERCAP))
    }

    fn below(powercap: &Path) -> Reading<EnergySensor> {
        let names = fs::read_dir(powercap).into_iter().flatten().flatten().map(|entry| entry.file_name());
        // `intel-rapl:0` is a package, `intel-rapl:0:0` a part of it; the mmio twins count the same energy again.
        let names = names.filter_map(|name| name.into_string().ok());
        let mut names: Vec<_> = names.filter(|n| n.contains(':') && !n.starts_with("intel-rapl-mmio")).collect();
        names.sort();
        let (mut zones, mut refused) = (Vec::new(), None);
        for name in names {
            let folder = powercap.join(&name);
            let file = folder.join("energy_uj");
            match fs::read_to_string(&file) {
                Ok(text) => {
                    let Ok(last) = text.trim().parse() else { continue };
                    let range = number(&folder.join("max_energy_range_uj")).unwrap_or(u64::MAX);
                    zones.push(Zone { name: full_name(powercap, &name), file, last, range, total: 0 });
                }
                Err(e) if e.kind() == ErrorKind::PermissionDenied => refused = Some(file),
                Err(_) => {}
            }
        }
        match refused {
            _ if !zones.is_empty() => Reading::Measured(EnergySensor { zones }),
            Some(file) => Reading::not_permitted(
                format!("energy: {} may not be read", file.display()),
                "run as root, or grant read access to energy_uj (closed since CVE-2020-8694)",
            ),
            None => Reading::absent("energy: no powercap zone has a counter; virtual machines show none"),
        }
    }

    /// What each zone used since `open`; a zone that cannot be read any more stands still.
    pub fn read(&mut self) -> Vec<ZoneEnergy> {
        let look = |zone: &mut Zone| {
            if let Some(now) = number(&zone.file) {
                let went = if now >= zone.last { now - zone.last } else { now + zone.range.saturating_sub(zone.last) };
                zone.total = zone.total.saturating_add(went);
                zone.last = now;
            }
            ZoneEnergy { name: zone.name.clone(), microjoules: zone.total }
        };
        self.zones.iter_mut().map(look).collect()
    }
}

/// The zone's name behind those of the zones that it is a part of.
fn full_name(powercap: &Path, zone: &str) -> String {
    let name_of = |zone: &str| {
        let name = fs::read_to_string(powercap.join(zone).join("name")).unwrap_or_else(|_| zone.to_owned());
        name.trim().to_owned()
    };
    match zone.rsplit_once(':') {
        Some((above, _)) if above.contains(':') => format!("{}/{}", full_name(powercap, above), name_of(zone)),
        _ => name_of(zone),
    }
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(powercap: &Path, zone: &str, name: &str, energy: u64) {
        let folder = powercap.join(zone);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("name"), format!("{name}\n")).unwrap();
        fs::write(folder.join("max_energy_range_uj"), "1000\n").unwrap();
        fs::write(folder.join("energy_uj"), format!("{energy}\n")).unwrap();
    }

    #[test]
    fn counters_that_go_round_are_summed() {
        let powercap = tempfile::tempdir().unwrap();
        assert!(matches!(EnergySensor::below(powercap.path()), Reading::Absent { .. }));
        zone(powercap.path(), "intel-rapl:0", "package-0", 900);
        zone(powercap.path(), "intel-rapl:0:0", "dram", 5);
        zone(powercap.path(), "intel-rapl-mmio:0", "package-0", 900);
        fs::create_dir(powercap.path().join("intel-rapl")).unwrap();
        let Reading::Measured(mut sensor) = EnergySensor::below(powercap.path()) else { panic!("there are zones") };
        for (energy, total) in [(950, 50), (20, 120), (20, 120)] {
            zone(powercap.path(), "intel-rapl:0", "package-0", energy);
            let read = sensor.read();
            assert_eq!(read[0], ZoneEnergy { name: "package-0".into(), microjoules: total });
            assert_eq!(read[1], ZoneEnergy { name: "package-0/dram".into(), microjoules: 0 });
        }
    }
}
