//! Mappings of ranks to cores.
//!
//! [`problem`] has the facts about a job and its cores. [`search`] proposes mappings, which a [`search::Judge`] evaluates:
//! the replay of a recorded program ([`recorded`]) or a simulated cluster ([`simulated`]). [`decision`] chooses moves of
//! ranks of a running job, and undoes moves that do not help.
//!
//! Pure: no clock but the caller's, no socket, thread of its own or file.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod advice;
pub mod decision;
pub mod problem;
pub mod proving;
pub mod reason;
pub mod recorded;
pub mod replay_error;
pub mod search;
pub mod simulated;
pub mod steering;
