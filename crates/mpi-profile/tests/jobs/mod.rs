//! The profile of programs whose calls are known, under each MPI that is installed: counted exactly, from whatever
//! language, however the job ends; and of applications, against what Open MPI itself counts.
//!
//! One test at a time: the processes of a job spin, and two jobs on one core test the scheduler.

mod applications;
mod closed_form;
mod delays;
mod ends;
mod expectation;
mod fortran;
mod python;
mod views;

use std::path::{Path, PathBuf};

use testbed::{Mpi, Place};

/// A program beside these tests.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

fn program(place: &Place, mpi: &Mpi, name: &str) -> PathBuf {
    mpi.compile(place, &[source(name)], name.trim_end_matches(".c"))
}
