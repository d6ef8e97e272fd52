//! Tests of `offcode` through its interface, a module for each subject.
#![forbid(unsafe_code)]

mod caller;
mod depot;
mod interfaces;
mod odf;
mod queue;
