//! Tests of `engine` through its interface, a module for each subject.
#![forbid(unsafe_code)]

mod credit;
mod exchange;
mod hostile;
mod matching;
mod recovery;
mod rendezvous;
mod silence;
mod simulation;
mod withdrawal;
