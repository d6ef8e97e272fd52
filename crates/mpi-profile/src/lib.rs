//! The library that is preloaded into MPI programs and records their MPI calls.
//!
//! Each recorded function has a wrapper in C, generated from [`record::functions`] (`build.rs`), in which every argument is
//! a word: one library serves every MPI. A wrapper reads the clock, calls the real `PMPI_` function and passes the call to
//! [`recorder`], which counts the call in a mapped file ([`tables`]): whatever ends the process, the file has all calls.
//! The meaning of a word in each MPI is in [`abi`] alone.
//!
//! The library never communicates, never ends a job, and writes one line to stderr only where something is lost. Jobs are
//! delayed only where [`record::folder::variable::PERTURB`] requests it, which is absent by default ([`perturb`]).
//! A panic in the library ends recording and nothing else ([`contained`]).
//! Without the variable [`record::folder::variable::FOLDER`] every call passes straight through.
//!
//! This crate has unsafe code, as a library behind a C interface must; each block names the invariant it rests on.

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {}"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {}"
    };
}

pub mod abi;
pub mod amount;
pub mod call;
pub mod clock;
pub mod communicators;
pub mod complaint;
pub mod contained;
pub mod cpu;
pub mod datatypes;
pub mod delays;
pub mod fortran;
pub mod hashed;
pub mod heading;
pub mod here;
mod log;
pub mod models;
pub mod narrow;
pub mod operations;
mod past;
pub mod perturb;
pub mod process;
pub mod progress;
pub mod rank;
pub mod real;
pub mod recorder;
pub mod requests;
pub mod rules;
pub mod sampler;
pub mod sites;
pub mod state;
pub mod tables;
pub mod timeline;
pub mod trace;
pub mod world;

/// The names that MPI programs are linked to.
mod exports {
    include!(concat!(env!("OUT_DIR"), "/exports.rs"));
}
