//! Tests of `profile` through its interface, a module for each subject.
#![forbid(unsafe_code)]

mod browser;
mod documented;
mod fixture;
mod garbage;
mod live;
mod page;
mod report;
mod shares;
mod sites;
mod split;
mod synthetic;
mod verdict;
mod views;
