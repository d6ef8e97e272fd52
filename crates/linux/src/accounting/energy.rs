//! Energy of the processor's packages and their parts: RAPL, by the kernel's powercap files.

use std::path::Path;

use machine::availability::Availability;
use machine::power::{Advance, Measure, Sensor, advance, found};
use machine::{Nanoseconds, Reading, Source};

use crate::power::{Files, Look, Reader};

/// One zone: a package, its cores, its memory.
#[derive(Debug, Default)]
struct Zone {
    /// The counter's last value, and the time at which it was read.
    last: Option<(Nanoseconds, u64)>,
    total: u64,
}

/// Energy of a zone since the sensor was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneEnergy {
    /// The zone's name: `package-0`, or `package-0/dram` for a part.
    pub name: String,
    pub microjoules: u64,
}

/// Energy counters, to be read before they wrap twice, which takes minutes.
pub struct EnergySensor {
    files: Files,
    zones: Vec<Zone>,
}

impl EnergySensor {
    pub fn open() -> Reading<EnergySensor> {
        EnergySensor::below(Path::new("/"), &Source::live())
    }

    fn below(root: &Path, source: &Source) -> Reading<EnergySensor> {
        let search = found::rapl(source);
        match search.refused {
            _ if !search.found.is_empty() => {
                let zones = search.found.iter().map(|_| Zone::default()).collect();
                let mut sensor = EnergySensor { files: Files::new(root, &search.found), zones };
                sensor.read();
                Reading::Measured(sensor)
            }
            Some(Availability::NotPermitted { reason, next }) => {
                Reading::not_permitted(format!("energy: {reason}"), next)
            }
            Some(refused) => Reading::absent(format!("energy: {}", refused.explanation())),
            None => Reading::absent("energy: no powercap zone has a counter"),
        }
    }

    /// The energy of each zone since `open`. A zone that cannot be read, or whose counter was reset, does not advance meanwhile.
    pub fn read(&mut self) -> Vec<ZoneEnergy> {
        let (zones, sensors) = (&mut self.zones, self.files.sensors().to_vec());
        self.files.look(&mut |place, look| {
            if let Look::Value { at, micro } = look {
                zones[place].take(&sensors[place], at, micro);
            }
        });
        let name = |sensor: &Sensor| sensor.name.trim_start_matches("rapl:").to_owned();
        let energy = |(zone, sensor): (&Zone, &Sensor)| ZoneEnergy { name: name(sensor), microjoules: zone.total };
        self.zones.iter().zip(&sensors).map(energy).collect()
    }
}

impl Zone {
    fn take(&mut self, sensor: &Sensor, at: Nanoseconds, micro: u64) {
        let range = match sensor.measure {
            Measure::Counter { range, .. } => range,
            Measure::Gauge => None,
        };
        if let Some((since, last)) = self.last.replace((at, micro))
            && let Advance::By(went) = advance(last, micro, range, sensor.covers.most(), at - since)
        {
            self.total = self.total.saturating_add(went);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const RANGE: u64 = 262_143_328_850;

    fn zone(root: &Path, zone: &str, name: &str, energy: u64) {
        let folder = root.join("sys/class/powercap").join(zone);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("name"), format!("{name}\n")).unwrap();
        fs::write(folder.join("max_energy_range_uj"), format!("{RANGE}\n")).unwrap();
        fs::write(folder.join("energy_uj"), format!("{energy}\n")).unwrap();
    }

    #[test]
    fn counters_that_go_round_are_summed() {
        let ground = tempfile::tempdir().unwrap();
        let root = ground.path();
        fs::create_dir_all(root.join("sys/class/powercap/intel-rapl")).unwrap();
        let open = || EnergySensor::below(root, &Source::open(root).unwrap());
        assert!(matches!(open(), Reading::Absent { .. }));
        zone(root, "intel-rapl:0", "package-0", RANGE - 100);
        zone(root, "intel-rapl:0:0", "dram", 5);
        zone(root, "intel-rapl-mmio:0", "package-0", 900);
        let Reading::Measured(mut sensor) = open() else { panic!("there are zones") };
        // The counter advances, wraps, stands still, is reset, advances.
        for (energy, total) in [(RANGE - 50, 50), (20, 120), (20, 120), (RANGE / 2, 120), (7, 120), (9, 122)] {
            zone(root, "intel-rapl:0", "package-0", energy);
            // At 3 kW a microjoule takes less than a nanosecond.
            std::thread::sleep(std::time::Duration::from_millis(1));
            let read = sensor.read();
            assert_eq!(read[0], ZoneEnergy { name: "package-0".into(), microjoules: total });
            assert_eq!(read[1], ZoneEnergy { name: "package-0/dram".into(), microjoules: 0 });
        }
    }
}
