//! Tests of `queue-pair` through its interface, a module for each subject.
#![forbid(unsafe_code)]

mod calls;
mod conformance;
mod layers;
mod messages;
mod verbs;
