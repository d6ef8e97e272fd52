//! Tests of `fabric` through its interface, a module for each subject.
#![forbid(unsafe_code)]

mod abi;
mod jobs;
mod programs;
