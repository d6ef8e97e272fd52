//! The provider under programs that are not ours to change: what the libfabric API promises, MPI under each MPI that is
//! installed, applications, and what happens when processes die, wires fail and processes that are no peers interfere.
//!
//! One test at a time: the processes of a job spin, and two jobs on one core test the scheduler.

mod applications;
mod death;
mod hostile;
mod libfabric;
mod mpi;
mod remains;

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time for a job that takes seconds on a machine of its own.
const LIMIT: Duration = Duration::from_secs(600);

/// The C programs beside this one.
fn sources(folder: &str) -> Vec<PathBuf> {
    testbed::sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder))
}
