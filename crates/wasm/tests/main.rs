//! Tests of `wasm` through its interface, a module for each subject.
#![forbid(unsafe_code)]

mod built;
mod crafted;
mod guests;
mod hostile;
mod output;
mod recorder;
