//! One file a subcommand: its arguments and what it prints.

pub mod agent;
pub mod bench;
mod bench_mpi;
mod bench_profiler;
mod bench_semantics;
pub mod engine;
pub mod lab;
pub mod lab_agent;
pub mod machine;
pub mod mpirun;
pub mod odf;
pub mod peer;
pub mod plan;
pub mod profile;
pub mod profile_sampler;
pub mod ps;
pub mod report;
pub mod run;
pub mod serve;
pub mod stop;
pub mod study;
pub mod top;
pub mod traffic;

/// What a shell expects of a program that was interrupted.
const INTERRUPTED: u8 = 130;
