//! Power and energy: what a sensor covers, its samples, and the energy of any interval that they cover.
//!
//! Samples carry times of one monotonic clock, that of profiles. What is between two samples is either known or a gap
//! with its cause: a sensor that stopped, a counter that began again, a time without samples. A gap is left out of the
//! energy and of the time, so that [`Integral::covered`] says how much of the interval the joules are of.
//!
//! A counter that falls went round where the power for that is possible ([`Covers::most`]), else it began again. One that
//! begins again within that power of either end of its range cannot be told from one that counted on.

mod drawn;
pub mod found;
mod offset;
mod sensor;
#[cfg(test)]
mod tests;
mod track;

pub use drawn::{Drawn, Floor, total};
pub use offset::{Offset, fit};
pub use sensor::{Band, Covers, Measure, Sensor};
pub use track::{Advance, Gap, Integral, Track, advance};
