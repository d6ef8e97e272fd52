//! MPI over the engine beside MPI over its other transports: latency, bandwidth, message rate and steps of a simulation,
//! per place of the ranks and per placement of the engine, with each rank's CPU split into application, MPI and protocol.
//!
//! A [`bench::Bench`] starts `mpirun` for a [`contender::Contender`], which gives a [`block::Block`]; [`conduct`] interleaves
//! them round by round; [`comparison`] takes ratios within a round; [`split`] divides the CPU; [`targets`] judges the targets.

pub mod bench;
pub mod block;
pub mod comparison;
pub mod conduct;
pub mod contender;
pub mod costs;
pub mod nodes;
pub mod page;
pub mod pattern;
pub mod program;
pub mod request;
pub mod result;
pub mod seats;
pub mod split;
pub mod targets;
