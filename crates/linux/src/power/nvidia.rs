//! NVIDIA's GPUs, by the command of their driver.
//!
//! `nvidia-smi` has the power of every GPU that NVML knows, and needs no library at build time or in this process. A
//! run takes some 30 ms to 1 s: enough for a GPU's sensor, which is worth one sample a second.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use machine::power::{Band, Covers, Measure, Sensor};
use machine::{Fault, Nanoseconds, Result};

use super::reader::{Look, Reader};
use super::spawn;
use super::told::{self, Unit};
use crate::clock::monotonic;

const LIMIT: Duration = Duration::from_secs(10);

pub struct Nvidia {
    sensors: Vec<Sensor>,
    end: Arc<AtomicBool>,
}

/// Number, name and power of each GPU.
fn ask(end: &AtomicBool) -> std::result::Result<Vec<(String, String, String)>, String> {
    let mut command = Command::new("nvidia-smi");
    command.args(["--query-gpu=index,name,power.draw", "--format=csv,noheader,nounits"]);
    parse(&spawn::output(command, LIMIT, end)?)
}

fn parse(text: &str) -> std::result::Result<Vec<(String, String, String)>, String> {
    let of = |line: &str| {
        let (index, rest) = line.split_once(',')?;
        let (name, watts) = rest.rsplit_once(", ")?;
        index.trim().parse::<u32>().ok()?;
        Some((index.trim().to_owned(), name.trim().to_owned(), watts.trim().to_owned()))
    };
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| of(line).ok_or_else(|| format!("nvidia-smi says '{}'", line.trim()))).collect()
}

impl Nvidia {
    /// # Errors
    /// There is no nvidia-smi, it finds no GPU, or no GPU tells its power.
    pub fn open(end: Arc<AtomicBool>) -> Result<Nvidia> {
        let absent = |cause: String| {
            Fault::new("nvidia", cause, "install NVIDIA's driver with nvidia-smi; other GPUs are in hwmon")
        };
        let gpus = ask(&end).map_err(|cause| absent(format!("nvidia-smi: {cause}")))?;
        if !gpus.iter().any(|(_, _, watts)| told::value(watts, Unit::WATT).is_ok()) {
            return Err(absent(match gpus.first() {
                None => "nvidia-smi finds no GPU".to_owned(),
                Some((_, name, watts)) => format!("{name} tells no power: {watts}"),
            }));
        }
        let sensor = |(index, _, _): &(String, String, String)| Sensor {
            name: format!("nvidia:{index}"),
            covers: Covers::Device,
            band: Band::In,
            measure: Measure::Gauge,
            within: None,
        };
        Ok(Nvidia { sensors: gpus.iter().map(sensor).collect(), end })
    }
}

impl Reader for Nvidia {
    fn sensors(&self) -> &[Sensor] {
        &self.sensors
    }

    fn look(&mut self, give: &mut dyn FnMut(usize, Look)) {
        let begun = monotonic();
        let gpus = ask(&self.end);
        let at = Nanoseconds(begun.0 + (monotonic().0 - begun.0) / 2);
        for (place, sensor) in self.sensors.iter().enumerate() {
            let told = gpus.as_ref().map_err(Clone::clone).and_then(|gpus| {
                let index = sensor.name.trim_start_matches("nvidia:");
                let gpu = gpus.iter().find(|(number, _, _)| number == index);
                let (_, _, watts) = gpu.ok_or_else(|| "the GPU is gone".to_owned())?;
                told::value(watts, Unit::WATT)
            });
            give(
                place,
                match told {
                    Ok(micro) => Look::Value { at, micro },
                    Err(cause) => Look::Stopped { at, cause },
                },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_have_commas() {
        let gpus = parse("0, NVIDIA A100-SXM4-40GB, 52.41\n1, Tesla, the first, [N/A]\n\n").unwrap();
        assert_eq!(gpus[0], ("0".into(), "NVIDIA A100-SXM4-40GB".into(), "52.41".into()));
        assert_eq!((gpus[1].1.as_str(), gpus[1].2.as_str()), ("Tesla, the first", "[N/A]"));
        assert_eq!(parse("0, GPU, 52,41\n").unwrap()[0].2, "52,41", "a decimal comma is none between columns");
        assert!(parse("No devices were found").is_err());
    }
}
