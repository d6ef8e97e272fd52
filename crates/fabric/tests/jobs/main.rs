//! The provider under programs that are not ours to change: what the libfabric API promises, MPI under each MPI that is
//! installed, applications, and what happens when processes die, wires fail and strangers interfere.
//!
//! One test at a time: the processes of a job spin, and two jobs on one core test the scheduler.

mod applications;
mod death;
mod launcher;
mod libfabric;
mod mpi;
mod place;
mod remains;
mod strangers;
