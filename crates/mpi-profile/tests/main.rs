//! Tests of `mpi-profile` through its interface, a module for each subject.
#![forbid(unsafe_code)]

mod jobs;
mod process;
mod timeline;
