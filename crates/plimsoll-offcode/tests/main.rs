//! Tests of `plimsoll-offcode` through its interface, a module for each subject.
#![forbid(unsafe_code)]

mod agent;
mod applications;
mod author;
#[path = "../../plimsoll/tests/golden/mod.rs"]
mod golden;
mod help;
mod odf;
mod plan;
mod run;
mod traffic;
