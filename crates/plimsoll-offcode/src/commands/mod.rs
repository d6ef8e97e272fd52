//! One file a subcommand: its arguments and what it prints.

pub mod agent;
pub mod costs;
mod expected;
pub mod odf;
pub mod plan;
pub mod ps;
pub mod run;
pub mod stop;
pub mod traffic;
