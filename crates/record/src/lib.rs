//! What profiling leaves behind, as its writers and readers share it.
//!
//! A profile is a [`folder`]: one file of tables for each rank ([`layout`], read by [`rank`]), which the rank keeps up to
//! date while it runs, so that nothing is lost with it; where asked for, a timeline for each of its threads; and what each
//! host's cores did meanwhile. [`functions`] is the one list of the MPI calls that are recorded.
//!
//! Nothing here is unsafe, and nothing trusts a file.
#![forbid(unsafe_code)]

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
