//! Profiles of MPI programs: what the ranks and the cores recorded, joined, judged and shown.
#![forbid(unsafe_code)]

pub mod job;
pub mod summary;
pub mod verdict;
