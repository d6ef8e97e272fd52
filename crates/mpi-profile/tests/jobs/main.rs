//! The profile of programs whose calls are known, under each MPI that is installed: counted exactly, from whatever
//! language, however the job ends; and of applications, against what Open MPI itself counts.
//!
//! One test at a time: the processes of a job spin, and two jobs on one core test the scheduler.

mod applications;
mod closed_form;
mod ends;
mod expectation;
mod fortran;
mod launcher;
mod place;
mod python;
