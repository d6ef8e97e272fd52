//! Formats of profiles, for writers and readers.
//!
//! A profile is a [`folder`]: one file of tables for each rank ([`layout`], read by [`rank`]), which the rank keeps up
//! to date while it runs, so that a crash loses nothing; if requested, a timeline for each of its threads; and
//! samples of each host's cores. [`functions`] is the list of the MPI functions that are recorded.
//!
//! Nothing here is unsafe, and no reader trusts a file.
#![forbid(unsafe_code)]

pub mod blocks;
pub mod folder;
pub mod functions;
mod header;
pub mod image;
pub mod layout;
pub mod live;
pub mod perturbation;
pub mod rank;
pub mod samples;
pub mod scale;
pub mod seal;
pub mod trace;
pub mod untrusted;
pub mod worlds;
