//! One file a subcommand: its arguments and what it prints.

pub mod agent;
pub mod bench;
pub mod lab;
pub mod machine;
pub mod odf;
pub mod peer;
pub mod plan;
pub mod serve;
pub mod study;

/// What a shell expects of a program that was interrupted.
const INTERRUPTED: u8 = 130;
