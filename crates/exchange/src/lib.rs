//! Stacks and patterns: a [`stack::Stack`] is one end of a message [`path`], a [`pattern`] drives two of them.
//!
//! This crate holds only what a measured message passes, since it is compiled with all that is inlined into it.
#![forbid(unsafe_code)]

pub mod buffer;
pub mod endpoint;
pub mod path;
pub mod pattern;
pub mod stack;
