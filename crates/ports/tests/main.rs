//! Tests of `ports` through its interface, a module for each subject.
#![forbid(unsafe_code)]

mod channels_between_processes;
mod identities;
mod lanes_between_processes;
mod two_processes;
