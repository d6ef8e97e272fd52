//! Tests of `mpi-profile` through its interface, one module per subject.
#![forbid(unsafe_code)]

mod jobs;
mod process;
mod timeline;
