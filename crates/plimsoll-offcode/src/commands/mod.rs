//! One file a subcommand: its arguments and what it prints.

pub mod agent;
pub mod costs;
mod expected;
pub mod migrate;
pub mod odf;
pub mod offcode;
pub mod plan;
pub mod ps;
pub mod run;
pub mod set;
pub mod stop;
pub mod traffic;
pub mod upgrade;
