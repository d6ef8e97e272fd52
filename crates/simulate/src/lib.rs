//! Programs that nobody recorded: schedules of GOAL, and programs made by rule, run under LogGOPS.
//!
//! [`whatif::goal`] reads a schedule, which [`running`] runs; [`programs`] makes halos and the like for any number of ranks. A
//! [`file`] says all of a simulation. [`loggops`] runs them by the
//! rules of LogGOPSim, to the nanosecond; [`cluster`] on machines, whose cores and links they share; [`engines`] over plimsoll's
//! own message engine, the production code under a virtual clock.

#![forbid(unsafe_code)]

use machine::fault::Result;

use loggops::{Finished, Parameters};
use running::Running;
use whatif::goal::Schedule;
pub use whatif::goal::{ANY, Kind, Operation};

pub mod cluster;
pub mod engines;
pub mod file;
pub mod loggops;
pub mod programs;
pub mod running;
#[cfg(test)]
mod tests;

/// A program that hands out operations as they become free: only those in progress need memory.
pub trait Program {
    fn ranks(&self) -> u32;

    /// The number of cpus and of network interfaces of each rank.
    fn places(&self) -> (usize, usize) {
        (1, 1)
    }

    /// Appends the first operations of `rank`.
    fn begin(&mut self, rank: u32, free: &mut Vec<Operation>);

    /// Reports that an operation of `rank` has started; appends those that waited only for this.
    fn started(&mut self, rank: u32, number: u32, free: &mut Vec<Operation>);

    /// Reports that an operation of `rank` is over; appends those that waited only for this.
    fn over(&mut self, rank: u32, number: u32, free: &mut Vec<Operation>);

    /// Whether a send is over only when the network has all of it, as with `MPI_Isend` and its wait, or already when the
    /// library has a copy, as with `MPI_Send`. Where nothing is copied both are the same.
    fn waits_for_network(&self) -> bool {
        false
    }

    /// A rank with an operation that never became free.
    fn stuck(&self) -> Option<u32> {
        None
    }
}

/// Runs a schedule from time 0 to its end.
///
/// ```
/// use simulate::loggops::Parameters;
/// use whatif::goal;
///
/// let text = "num_ranks 2\nrank 0 {\nsend 1b to 1\n}\nrank 1 {\nrecv 1b from 0\n}\n";
/// let parameters: Parameters = "L=1000,o=200,g=0,G=1,O=0,S=65536".parse()?;
/// let finished = simulate::run(&goal::read(text.as_bytes())?, &parameters)?;
/// assert_eq!(finished.ranks, [200, 200 + 1000 + 200]);
/// # Ok::<(), machine::Fault>(())
/// ```
///
/// # Errors
/// A message that nobody receives, a receive that no message comes for, operations that require each other, more time than
/// 64 bits of nanoseconds hold, more than 2 billion operations in progress.
pub fn run(schedule: &Schedule, parameters: &Parameters) -> Result<Finished> {
    loggops::simulate(&mut Running::of(schedule), parameters)
}
