//! Starts MPI programs so that the engine carries their messages, and reports what really carried the messages.
//!
//! [`installation::Installation`] is an MPI on this machine, found from a program that is linked with it ([`program`]).
//! [`engine::Engine`] and [`carriers::Carrier`] are the intended carriers, as the variables that make this MPI use them.
//! [`job::Job`] is one run of `mpirun`, on this host or spread over the two hosts of a lab.
//! [`summary::Summary`] sums up the reports of the job's ranks.
#![forbid(unsafe_code)]

pub mod agent;
pub mod allocation;
pub mod auto;
pub mod campaign;
pub mod carriers;
pub mod command_line;
pub mod companion;
pub mod diagnosis;
pub mod elf;
pub mod engine;
pub mod exit;
pub mod family;
pub mod installation;
pub mod instruments;
pub mod job;
pub mod nodes;
pub mod one_sided;
pub mod preload;
pub mod profiled;
pub mod program;
pub mod provider;
pub mod report;
pub mod running;
pub mod seats;
pub mod session;
pub mod sieve;
pub mod slurm;
pub mod srun_clock;
pub mod summary;
pub mod transports;
pub mod trial;

/// Variables of a job's environment.
pub type Variables = Vec<(String, std::ffi::OsString)>;

/// This host's own name for itself, as `uname` gives it.
pub fn this_host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
