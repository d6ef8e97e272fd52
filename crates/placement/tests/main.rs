//! Tests of `placement` through its interface, a module for each subject.
#![forbid(unsafe_code)]

mod brute;
mod refusals;
