//! The entries of the daemon's log.

use std::fmt;

use machine::CpuSet;
use mapping::decision::{Action, Change, Process};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Milliseconds since 1970.
    pub at: u64,
    /// The job's name.
    pub job: String,
    #[serde(flatten)]
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    Decided(Action),
    /// An action that was decided and not carried out.
    Refused {
        step: Vec<Change>,
        reason: String,
    },
    Restored(Restored),
    /// A remark on a job or rank that is left alone or cannot be observed.
    Noted(String),
}

/// A process whose affinities were restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    pub process: Process,
    pub cores: CpuSet,
    /// Threads that were restored.
    pub threads: usize,
    /// Threads that were left alone, since others had moved them meanwhile.
    pub left: usize,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.job)?;
        let moves = |step: &[Change]| {
            let moves = step.iter().map(|change| format!("rank {} from {} to {}", change.rank, change.from, change.to));
            moves.collect::<Vec<_>>().join(", ")
        };
        match &self.what {
            What::Decided(Action::Move { step, reason, .. }) => write!(f, "moves {}: {reason}", moves(step)),
            What::Decided(Action::Undo { step, reason }) => write!(f, "moves back {}: {reason}", moves(step)),
            What::Decided(Action::Confirm { reason }) => write!(f, "the move stays: {reason}"),
            What::Decided(Action::Keep { reason }) => write!(f, "moves nobody: {reason}"),
            What::Refused { step, reason } => write!(f, "did not move {}: {reason}", moves(step)),
            What::Restored(Restored { process, cores, threads, left }) => {
                write!(f, "process {} is back on {cores}, with {threads} threads", process.pid)?;
                if *left > 0 { write!(f, "; {left} threads that others moved were left there") } else { Ok(()) }
            }
            What::Noted(note) => f.write_str(note),
        }
    }
}
