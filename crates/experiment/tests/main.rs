//! Tests of `experiment` through its interface, a module for each subject.
#![forbid(unsafe_code)]

mod browser;
mod budget;
mod campaign;
mod commands;
mod decision;
mod export;
mod fixture;
mod refine;
mod report;
mod simulated;
mod store;
mod trial;
mod verdict;
