//! Reading power from all sensors that this user may read, with times of CLOCK_MONOTONIC.
//!
//! A [`Source`] is what a user names, a [`Reader`] reads its sensors, a [`Meter`] reads all of them in the background
//! and gives the energy between two moments. Sensors are files (powercap, hwmon, Cray), a command that is run
//! periodically (`nvidia-smi`, Slurm's, the user's), or a file that another program writes.

mod command;
mod csv;
mod files;
mod held;
mod load;
mod meter;
mod nvidia;
mod reader;
mod slurm;
mod source;
mod spawn;
#[cfg(test)]
mod tests;
mod told;

pub use files::Files;
pub use load::{Pattern, load};
pub use meter::{Meter, Settings};
pub use reader::{Look, Reader};
pub use source::{Kind, Listing, Source};
pub use told::{Column, Format, TimeFormat, Unit};
