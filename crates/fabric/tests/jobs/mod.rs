//! The provider under programs of others: promises of the libfabric API, MPI under each installed MPI, applications; and
//! deaths of processes, failing wires, and interference by processes that are no peers.
//!
//! One test at a time: the processes of a job spin, and two jobs on one core test the scheduler.

mod applications;
mod death;
mod hostile;
mod libfabric;
mod mpi;
mod remains;

use std::path::{Path, PathBuf};

/// The C programs beside this one.
fn sources(folder: &str) -> Vec<PathBuf> {
    testbed::sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder))
}
