//! Tests of `claims` through its interface, a module for each subject.
#![forbid(unsafe_code)]

mod rows;
mod testbeds;
