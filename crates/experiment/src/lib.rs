//! Experiment design, statistics, the results store, the verdict and the report.
#![forbid(unsafe_code)]

pub mod analysis;
pub mod axes;
pub mod bound;
pub mod campaign;
pub mod clocks;
pub mod comparison;
pub mod conduct;
pub mod contrast;
pub mod cost;
mod database;
pub mod decision;
pub mod design;
pub mod export;
pub mod findings;
pub mod ledger;
pub mod nearness;
pub mod order;
pub mod parallel;
pub mod point;
pub mod random;
pub mod ranges;
pub mod refine;
pub mod report;
pub mod rounds;
pub mod sample;
pub mod simulate;
pub mod sitting;
pub mod statistics;
pub mod store;
mod stretch;
pub mod sweep;
mod tally;
pub mod trial;
pub mod verdict;
mod wording;
