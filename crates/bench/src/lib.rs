//! The two ends of a measurement with the control connection between them.
//!
//! A [`peer`] is the end that another process runs; [`runner::Bench`] opens sessions with peers and measures points block by
//! block.
#![forbid(unsafe_code)]

pub mod admission;
mod calibration;
pub mod congestion;
pub mod control;
pub mod key;
pub mod mapping;
mod meters;
pub mod mpi;
pub mod owner;
pub mod peer;
pub mod peer_process;
pub mod profiler;
pub mod reference;
mod remote_meter;
pub mod runner;
mod scratch;
pub mod second_host;
mod secret;
pub mod serve;
pub mod session;
pub mod slack;
mod worker;

/// Clocks of this host's cores at present, without cores that this process may not run on.
fn clocks(cores: impl IntoIterator<Item = machine::CoreId>) -> rounds::clocks::Clocks {
    rounds::clocks::Clocks::of(linux::accounting::effective_clocks(cores))
}

/// Distance of two cores at present.
fn probe(one: machine::CoreId, other: machine::CoreId) -> Option<machine::Probe> {
    ports::probe::between(one, other).ok()
}
