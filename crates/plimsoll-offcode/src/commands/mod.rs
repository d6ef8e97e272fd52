//! One file a subcommand: its arguments and what it prints.

pub mod agent;
pub mod costs;
pub mod deployment;
mod expected;
mod migrate;
pub mod odf;
pub mod offcode;
mod plan;
mod ps;
mod run;
mod set;
mod stop;
pub mod traffic;
mod upgrade;
