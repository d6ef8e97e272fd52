//! Experiments: designs, stores of results, verdicts and reports. Measurements and statistics are in `rounds`.
#![forbid(unsafe_code)]

pub mod analysis;
pub mod axes;
pub mod campaign;
pub mod cause;
pub mod conduct;
mod database;
pub mod decision;
pub mod design;
pub mod designs;
pub mod export;
pub mod findings;
pub mod ledger;
mod nearness;
pub mod observer;
mod patience;
pub mod ranges;
pub mod refine;
pub mod report;
pub mod simulate;
pub mod store;
mod stretch;
pub mod sweep;
mod tally;
pub mod trial;
pub mod verdict;
mod wording;
