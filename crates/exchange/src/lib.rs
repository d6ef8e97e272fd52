//! Stacks and patterns: a [`stack::Stack`] is one end of a message [`path`], a [`pattern`] drives two of them.
//!
//! What a measured message passes is in this crate, and nothing else, since it is compiled with all that is inlined into it.
#![forbid(unsafe_code)]

pub mod buffer;
pub mod endpoint;
pub mod path;
pub mod pattern;
pub mod stack;
