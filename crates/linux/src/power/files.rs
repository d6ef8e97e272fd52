//! Sensors that the kernel shows as files.

use std::path::Path;

use machine::Nanoseconds;
use machine::power::found::{Found, PM_COUNTERS};
use machine::power::{Covers, Measure, Sensor};

use super::held::Held;
use super::reader::{Look, Reader};
use crate::clock::monotonic;

/// Powercap and hwmon: one file a sensor, in micro-units.
pub struct Files {
    sensors: Vec<Sensor>,
    files: Vec<(Held, Nanoseconds)>,
}

impl Files {
    pub fn new(root: &Path, found: &[Found]) -> Files {
        let held = |found: &Found| (Held::new(below(root, &found.file)), found.mean_over);
        Files { sensors: found.iter().map(|f| f.sensor.clone()).collect(), files: found.iter().map(held).collect() }
    }
}

impl Reader for Files {
    fn sensors(&self) -> &[Sensor] {
        &self.sensors
    }

    fn look(&mut self, give: &mut dyn FnMut(usize, Look)) {
        for (place, (file, mean_over)) in self.files.iter_mut().enumerate() {
            let at = monotonic();
            give(
                place,
                match file.number() {
                    // A mean is dated to the middle of its time.
                    Ok(micro) => Look::Value { at: Nanoseconds(at.0 - (mean_over.0 / 2).min(at.0)), micro },
                    Err(cause) => Look::Stopped { at, cause },
                },
            );
        }
    }
}

/// Cray's counters, which a controller updates together and numbers by `freshness`.
pub struct Cray {
    sensors: Vec<Sensor>,
    files: Vec<Held>,
    freshness: Held,
    generation: Held,
    startup: Held,
    /// The latest freshness, and when it was first seen.
    renewed: Option<(u64, Nanoseconds)>,
    told: [Option<u64>; 2],
    notes: Vec<String>,
}

/// Age at which counters are stale: the controller updates ten times a second.
const STALE: Nanoseconds = Nanoseconds(1_000_000_000);

impl Cray {
    pub fn new(root: &Path, found: &[Found]) -> Cray {
        let held = |name: &str| Held::new(below(root, &format!("{PM_COUNTERS}/{name}")));
        Cray {
            sensors: found.iter().map(|found| found.sensor.clone()).collect(),
            files: found.iter().map(|found| Held::new(below(root, &found.file))).collect(),
            freshness: held("freshness"),
            generation: held("generation"),
            startup: held("startup"),
            renewed: None,
            told: [None; 2],
            notes: Vec::new(),
        }
    }

    fn stop_all(&self, at: Nanoseconds, cause: &str, give: &mut dyn FnMut(usize, Look)) {
        (0..self.sensors.len()).for_each(|place| give(place, Look::Stopped { at, cause: cause.to_owned() }));
    }

    /// The old and the new number of a file, where it changed since the last look.
    fn change(told: &mut Option<u64>, file: &mut Held) -> Option<(u64, u64)> {
        let now = file.number().ok()?;
        let before = told.replace(now)?;
        (before != now).then_some((before, now))
    }
}

impl Reader for Cray {
    fn sensors(&self) -> &[Sensor] {
        &self.sensors
    }

    fn look(&mut self, give: &mut dyn FnMut(usize, Look)) {
        let at = monotonic();
        let fresh = match self.freshness.number() {
            Ok(fresh) => fresh,
            Err(cause) => return self.stop_all(at, &cause, give),
        };
        match self.renewed {
            Some((before, since)) if before == fresh => {
                if at.0 - since.0 > STALE.0 {
                    self.stop_all(
                        since,
                        &format!("the node's controller renews nothing: freshness stands at {fresh}"),
                        give,
                    );
                }
                return;
            }
            _ => self.renewed = Some((fresh, at)),
        }
        if Cray::change(&mut self.told[0], &mut self.startup).is_some() {
            self.stop_all(at, "the node's controller was started again", give);
        }
        if let Some((before, now)) = Cray::change(&mut self.told[1], &mut self.generation) {
            self.notes.push(format!("the node's power cap was set (generation {before}, then {now})"));
        }
        for (place, (file, sensor)) in self.files.iter_mut().zip(&self.sensors).enumerate() {
            // The files hold joules and watts.
            give(
                place,
                match file.number() {
                    Ok(number) if number <= u64::MAX / 1_000_000 => Look::Value { at, micro: number * 1_000_000 },
                    Ok(number) => Look::Stopped { at, cause: format!("{} holds {number}", sensor.name) },
                    Err(cause) => Look::Stopped { at, cause },
                },
            );
        }
    }

    fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }
}

fn below(root: &Path, file: &str) -> std::path::PathBuf {
    root.join(file.trim_start_matches('/'))
}

/// The sensor of a source that the user named.
pub fn named(name: String, covers: Covers, band: machine::power::Band, is_energy: bool, range: Option<u64>) -> Sensor {
    let measure = match is_energy {
        true => Measure::Counter { range, step: 1, lag: Nanoseconds(0) },
        false => Measure::Gauge,
    };
    Sensor { name, covers, band, measure, within: None }
}
