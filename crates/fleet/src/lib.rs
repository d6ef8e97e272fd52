//! The question of a centre: which of all jobs would gain, from what, and how much of the machine's time it is.
//!
//! Each job leaves a [`Summary`] of a few KiB in a spool. [`spool::add`] takes summaries into one [`Store`], [`totals`] adds
//! them up, and [`page`] and [`terminal`] show the sums.

pub mod harvest;
pub mod page;
pub mod spool;
pub mod store;
pub mod summary;
pub mod terminal;
pub mod totals;

pub use store::Store;
pub use summary::Summary;
