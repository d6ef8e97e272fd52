//! Profiles of programs whose calls are known, under each installed MPI: exact counts, from every language, at every end
//! of the job; and profiles of applications, against Open MPI's own counts.
//!
//! The tests run one at a time: the processes of a job spin, and two jobs on one core test the scheduler.

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

/// The source of a program of these tests.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

fn program(place: &Place, mpi: &Mpi, name: &str) -> PathBuf {
    mpi.compile(place, &[source(name)], name.trim_end_matches(".c"))
}
