//! One file a subcommand: its arguments and what it prints.

use std::path::Path;
use std::process::ExitCode;

use ::machine::Result;

mod against;
mod bank;
pub mod bench;
pub mod calibrate;
pub mod campaign;
mod capability;
pub mod claims;
pub mod clock;
pub mod clock_keeper;
pub mod daemon;
mod delay;
pub mod doctor;
pub mod engine;
mod expectation;
pub mod fleet;
pub mod host_agent;
pub mod lab;
pub mod ledger;
mod levers;
pub mod machine;
pub mod map;
pub mod mpirun;
mod outputs;
mod path;
pub mod peer;
pub mod power;
pub mod profile;
pub mod profile_sampler;
pub mod replay;
pub mod report;
pub mod schedule;
pub mod seat;
pub mod serve;
mod shipped;
mod simulate;
pub mod steer;
pub mod steering_keeper;
pub mod study;
pub mod top;
pub mod r#try;
pub mod tune;
pub mod whatif;

/// The result of a write to the ledger. Where it fails, a note says so, and the command's answer stands.
fn kept<T: Default>(kept: Result<T>) -> T {
    kept.unwrap_or_else(|fault| {
        eprintln!("note: not in the ledger: {fault}");
        T::default()
    })
}

/// Reports that a signal ended the command early, and that `finished` is kept in the store.
fn interrupted(finished: &str, store: &Path) -> ExitCode {
    eprintln!("Interrupted; {finished} in {}. Run the same command to go on.", store.display());
    exit_code()
}

/// Success, unless a signal ended the command before its work was done.
fn exit_code() -> ExitCode {
    linux::signal::exit_status().map_or(ExitCode::SUCCESS, ExitCode::from)
}
