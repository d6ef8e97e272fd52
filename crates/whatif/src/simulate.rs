//! Programs that nobody recorded: schedules of GOAL, and programs made by rule, run under LogGOPS.
//!
//! [`goal`] reads a schedule, [`programs`] makes halos and the like for any number of ranks. [`loggops`] runs them by the
//! rules of LogGOPSim, to the nanosecond; [`cluster`] on machines, whose cores and links they share; [`engines`] over plimsoll's
//! own message engine, the production code under a virtual clock.

use machine::fault::Result;

use goal::{Running, Schedule};
use loggops::{Finished, Parameters};

pub mod cluster;
pub mod engines;
pub mod goal;
pub mod loggops;
pub mod programs;
#[cfg(test)]
mod tests;

/// Matches any rank, or any tag.
pub const ANY: u32 = u32::MAX;

/// What an operation does. In the order in which those that become free at the same moment begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Send,
    Receive,
    Compute,
}

/// One operation of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    pub kind: Kind,
    /// Bytes of a message, or nanoseconds to compute.
    pub amount: u64,
    /// The other rank; 0 where it computes.
    pub peer: u32,
    pub tag: u32,
    /// By which the program knows it.
    pub number: u32,
    pub cpu: u16,
    pub nic: u8,
}

/// What ranks do, handed out as it becomes free: only what is in progress needs memory.
pub trait Program {
    fn ranks(&self) -> u32;

    /// How many cpus and network interfaces each rank has.
    fn places(&self) -> (usize, usize) {
        (1, 1)
    }

    /// Appends what `rank` begins with.
    fn begin(&mut self, rank: u32, free: &mut Vec<Operation>);

    /// An operation of `rank` has started: appends what waited only for this.
    fn started(&mut self, rank: u32, number: u32, free: &mut Vec<Operation>);

    /// An operation of `rank` is over: appends what waited only for this.
    fn over(&mut self, rank: u32, number: u32, free: &mut Vec<Operation>);

    /// Whether a send is over when the network has all of it, as of `MPI_Isend` and its wait, and not already when the library
    /// has a copy, as of `MPI_Send`. Where nothing is copied both are one.
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
/// use whatif::simulate::{self, goal, loggops::Parameters};
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
