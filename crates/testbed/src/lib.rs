//! What job tests share. A job starts through `launch`, by the code behind `plimsoll mpirun` ([`job`]) and `plimsoll
//! profile` ([`recording`]), so that what is tested is what users run.
//!
//! [`mpi::Mpi`] is an MPI of this machine with its compilers; [`place::Place`] a folder in which one test's processes work,
//! one test at a time, and which they do not outlive; [`applications`] are programs that are not ours, [`programs`] ours. [`slurm::Cluster`] is a
//! real Slurm of two nodes; [`unequal`] two ranks with unequal work beside other work.
#![forbid(unsafe_code)]

pub mod applications;
mod compiled;
pub mod conformance;
pub mod job;
pub mod mpi;
pub mod place;
pub mod programs;
pub mod recording;
pub mod remains;
pub mod slurm;
pub mod unequal;

pub use job::{Carrier, Ended, Job, Started};
pub use mpi::Mpi;
pub use place::{Outcome, Place};

use std::path::{Path, PathBuf};

/// The program that this code runs in. Cargo leaves the libraries of the package under test beside it, where `launch` finds
/// them as it finds them beside the installed command.
pub fn command() -> PathBuf {
    std::env::current_exe().expect("a process has a program")
}

/// The C sources in `folder`, sorted.
pub fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "c"));
    files.sort();
    files
}
