//! Tests of `machine` through its interface, a module for each subject.
#![forbid(unsafe_code)]

mod archives;
mod choice;
mod lstopo;
mod memory_port;
mod threat_model;
