//! Tests of `manual` through its interface, a module for each subject.
#![forbid(unsafe_code)]

mod build;
mod documents;
mod features;
mod links;
mod package;
