//! Stacks, patterns, and the two ends of a measurement with the control connection between them.
//!
//! A [`stack::Stack`] is one end of a message path; a [`pattern`] drives two of them; a [`peer`] is the end that
//! another process runs; [`runner::Bench`] opens sessions with peers and measures points block by block.
#![forbid(unsafe_code)]

pub mod buffer;
pub mod cache;
mod calibration;
pub mod control;
pub mod endpoint;
mod meters;
pub mod mpi;
pub mod pattern;
pub mod peer;
pub mod peer_process;
pub mod profiler;
pub mod reference;
pub mod runner;
pub mod semantics;
pub mod serve;
pub mod session;
pub mod stack;
mod worker;
