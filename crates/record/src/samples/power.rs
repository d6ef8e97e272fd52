//! Samples of power: descriptions of sensors, and their values, each with its time.

use machine::Nanoseconds;
use machine::power::{Band, Covers, Measure, Sensor, Track};

use super::frame::{Cursor, put, put_signed, put_text};

/// Codes of the format; the order never changes.
const COVERS: [Covers; 6] =
    [Covers::Unstated, Covers::Node, Covers::Package, Covers::Cores, Covers::Memory, Covers::Device];
const BANDS: [Band; 3] = [Band::Unstated, Band::In, Band::Out];

pub fn put_sensor(out: &mut Vec<u8>, sensor: &Sensor, bridge: Nanoseconds) {
    put_text(out, &sensor.name);
    put(out, COVERS.iter().position(|covers| *covers == sensor.covers).unwrap_or(0) as u64);
    put(out, BANDS.iter().position(|band| *band == sensor.band).unwrap_or(0) as u64);
    put_text(out, sensor.within.as_deref().unwrap_or_default());
    put(out, bridge.0);
    match sensor.measure {
        Measure::Gauge => put(out, 0),
        Measure::Counter { range, step, lag } => {
            [1, range.unwrap_or(0), step, lag.0].into_iter().for_each(|number| put(out, number));
        }
    }
}

fn sensor(contents: &mut Cursor) -> Option<(Sensor, Nanoseconds)> {
    let name = contents.text()?;
    // Codes of later versions are unknown.
    let covers = COVERS.get(contents.number()? as usize).copied().unwrap_or(Covers::Unstated);
    let band = BANDS.get(contents.number()? as usize).copied().unwrap_or(Band::Unstated);
    let within = Some(contents.text()?).filter(|within| !within.is_empty());
    let bridge = Nanoseconds(contents.number()?);
    let measure = match contents.number()? {
        0 => Measure::Gauge,
        _ => {
            let range = Some(contents.number()?).filter(|range| *range > 0);
            Measure::Counter { range, step: contents.number()?, lag: Nanoseconds(contents.number()?) }
        }
    };
    Some((Sensor { name, covers, band, measure, within }, bridge))
}

/// A sensor as it was sampled.
#[derive(Debug, Clone)]
pub struct PowerSamples {
    pub sensor: Sensor,
    pub track: Track,
    /// Time and number of the last sample.
    pub(super) last: (u64, u64),
}

/// Time and number of a sensor's last written sample.
pub type Last = (u64, u64);

pub fn put_sample(out: &mut Vec<u8>, place: usize, last: &mut Last, at: u64, micro: u64) {
    put(out, place as u64);
    put_signed(out, at.wrapping_sub(last.0) as i64);
    put_signed(out, micro.wrapping_sub(last.1) as i64);
    *last = (at, micro);
}

/// Adds a sensor from a frame; `None` where the frame is invalid.
pub fn take_sensor(sensors: &mut Vec<PowerSamples>, mut contents: Cursor) -> Option<()> {
    let (sensor, bridge) = sensor(&mut contents)?;
    sensors.push(PowerSamples { track: Track::new(&sensor, bridge), sensor, last: (0, 0) });
    Some(())
}

pub fn take_samples(sensors: &mut [PowerSamples], mut contents: Cursor) -> Option<()> {
    while !contents.is_at_end() {
        let of = sensors.get_mut(usize::try_from(contents.number()?).ok()?)?;
        let (time, went) = (contents.signed()?, contents.signed()?);
        of.last = (of.last.0.wrapping_add_signed(time), of.last.1.wrapping_add_signed(went));
        of.track.push(Nanoseconds(of.last.0), of.last.1);
    }
    Some(())
}

pub fn take_stop(sensors: &mut [PowerSamples], mut contents: Cursor) -> Option<()> {
    let of = sensors.get_mut(usize::try_from(contents.number()?).ok()?)?;
    let at = Nanoseconds(contents.number()?);
    of.track.stop(at, &contents.text()?);
    Some(())
}
