//! Tests of `plimsoll` through its interface, a module for each subject.
#![forbid(unsafe_code)]

mod allocation;
mod bench;
mod campaign;
mod campaign_submit;
mod causal;
mod claims;
mod clock;
mod costs;
mod daemon;
mod engine;
mod fleet;
mod fleet_jobs;
mod golden;
mod help;
mod lab;
mod ledger;
mod machine;
mod map;
mod mpirun;
mod power;
mod profile;
mod recipes;
mod rehearsal;
mod report;
mod seats;
mod serve;
mod simulate;
mod started;
mod steer;
mod stopped;
mod study;
#[path = "../../profile/tests/synthetic/mod.rs"]
mod synthetic;
mod top;
mod r#try;
mod tune;
mod tutorial;
mod version;
mod whatif;
mod words;
