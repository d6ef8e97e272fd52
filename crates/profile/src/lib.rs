//! Profiles of MPI programs: what the ranks and the cores recorded, joined, judged and shown.
#![forbid(unsafe_code)]

pub mod by_function;
pub mod capability;
mod columns;
pub mod cores;
pub mod critical;
pub mod csv_tables;
pub mod decide;
pub mod export;
mod impossible;
pub mod injection;
pub mod job;
mod last_seen;
pub mod live;
pub mod lost;
pub mod measured;
pub mod page;
pub mod printable;
pub mod profile;
mod report;
pub mod sites;
pub mod split;
pub mod summarize;
pub mod summary;
pub mod symbols;
pub mod tables;
pub mod terminal;
pub mod verdict;
pub mod words;
