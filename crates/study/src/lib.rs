//! Experiment design, statistics, the results store, the verdict and the report.
#![forbid(unsafe_code)]

pub mod findings;
pub mod point;
pub mod sample;
