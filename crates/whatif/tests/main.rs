//! Tests of `whatif` through its interface, a module for each subject.
#![forbid(unsafe_code)]

mod claims;
mod goal;
