//! Power and energy: what a sensor covers, its samples, and the energy of any interval that they cover.
//!
//! Samples carry times of one monotonic clock, that of profiles. The time between two samples is either known or a gap
//! with its cause: a sensor that stopped, a counter that was reset, missing samples. Energy and time leave gaps out,
//! and [`Integral::covered`] says how much of the interval the energy is of.
//!
//! A counter that falls has wrapped where the power for that is possible ([`Covers::most`]), else it was reset. A reset
//! close to either end of its range, within that power, cannot be told from counting on.

mod energy_reading;
pub mod found;
mod offset;
mod sensor;
#[cfg(test)]
mod tests;
mod track;

pub use energy_reading::{EnergyReading, Floor, total};
pub use offset::{Offset, fit};
pub use sensor::{Band, Covers, Measure, Sensor};
pub use track::{Advance, Gap, Integral, Track, advance};
