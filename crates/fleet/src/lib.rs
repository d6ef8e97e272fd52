//! The question of a centre: which of all jobs would gain, from what, and how much of the machine's time it is.
//!
//! Each job leaves a [`Summary`] of a few KiB in a spool. [`spool::add`] takes summaries into one [`Store`], [`totals`] adds
//! them up, [`history`] follows one program over time, and [`page`], [`terminal`] and [`rows`] show
//! both; [`metrics`] is for who watches.

pub mod example;
pub mod export;
pub mod harvest;
pub mod history;
pub mod metrics;
pub mod page;
pub mod rows;
pub mod spool;
pub mod steps;
pub mod store;
pub mod summary;
pub mod sweep;
pub mod terminal;
pub mod totals;

pub use store::Store;
pub use summary::Summary;
