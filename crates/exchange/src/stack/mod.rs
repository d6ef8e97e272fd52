//! Stacks: the interface of one end of a message path.

use std::time::Duration;

pub use endpoint::Dilated;
use machine::Result;
use serde::{Deserialize, Serialize};

use crate::buffer::Buffer;

pub mod engine;
pub mod tcp;
pub mod udp;

/// How long two ends may take to meet.
pub const MEETING_TIME: Duration = Duration::from_secs(5);

/// A completion of a stack. The buffer comes back to its owner.
#[derive(Debug)]
pub enum Completion {
    /// The oldest posted receive now holds a message of exactly the posted length.
    Received(Buffer),
    /// The oldest posted send's buffer may be used again.
    Sent(Buffer),
    /// The oldest posted receive's message was lost; `waited` is the time after which it counted as lost.
    Lost { buffer: Buffer, waited: Duration },
}

/// One end of a message path to one peer. Never blocks.
///
/// Messages match posted receives in the order of posting, on both ends. A message whose length is not the posted
/// one is a fault. A stack that may lose messages completes each posted receive within a bounded time, if need be
/// as [`Completion::Lost`]; completions of receives come in the order of posting.
pub trait Stack {
    /// Posts a receive for the next message that no earlier one is posted for.
    fn post_receive(&mut self, buffer: Buffer) -> Result<()>;

    /// Posts a message; it may leave at once.
    fn post_send(&mut self, buffer: Buffer) -> Result<()>;

    /// Moves what can move now and reports what completed.
    fn progress(&mut self, done: &mut impl FnMut(Completion)) -> Result<()>;

    /// Begins a job on both ends, with nothing posted. `job` counts from 1 and is the same on both ends.
    fn begin(&mut self, job: u64) -> Result<()>;

    /// Goes idle until the next block: threads of the stack's own stop spinning.
    fn idle(&mut self) -> Result<()> {
        Ok(())
    }

    /// Resumes for a block: threads of the stack's own have woken when this returns.
    fn resume(&mut self) -> Result<()> {
        Ok(())
    }

    /// Threads of the stack's own: what each does (`engine`), and its kernel id.
    fn threads(&self) -> Vec<(String, i32)> {
        Vec::new()
    }

    /// Counts of the engine's dilated work so far; `None` without dilation.
    fn dilated(&mut self) -> Result<Option<Dilated>> {
        Ok(None)
    }

    /// Deviations from what was asked, and remarks.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Address and secret at which the responder can be met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    pub port: u16,
    pub token: String,
}
