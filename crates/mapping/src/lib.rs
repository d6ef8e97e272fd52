//! Which rank belongs on which core.
//!
//! [`problem`] is what is known of a job and its cores, [`search`] proposes mappings and has a [`search::Judge`] decide among them:
//! the replay of a recorded program ([`recorded`]) or a simulated cluster ([`simulated`]). [`decision`] says which ranks of a
//! running job to move, and what to take back.
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
