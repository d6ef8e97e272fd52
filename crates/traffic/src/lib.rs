//! The traffic generator, an application of offcodes (HYDRA section 2).
#![forbid(unsafe_code)]

pub mod body;
pub mod capture;
pub mod control;
pub mod frame;
pub mod guard;
pub mod hog;
pub mod offcodes;
pub mod paper;
pub mod profile;
pub mod receiver;
pub mod report;
pub mod schedule;
pub mod session;
pub mod socket_receiver;
pub mod stamp;
mod tally;
pub mod wire;
