//! Stacks: what one end of a message path implements.

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

/// Something that a stack finished. The buffer comes back to its owner.
#[derive(Debug)]
pub enum Completion {
    /// The oldest posted receive now holds a message of exactly the posted length.
    Received(Buffer),
    /// The oldest posted send's buffer may be used again.
    Sent(Buffer),
    /// The oldest posted receive's message was lost; `waited` is the time spent to be sure.
    Lost { buffer: Buffer, waited: Duration },
}

/// One end of a message path to one peer. Never blocks.
///
/// Messages match posted receives in the order of posting, on both ends. A message whose length is not the posted
/// one is a fault. A stack that may lose messages completes each posted receive within a bounded time, if need be
/// as [`Completion::Lost`]; completions of receives come in the order of posting.
pub trait Stack {
    /// Hands over room for the next message that no earlier receive is posted for.
    fn post_receive(&mut self, buffer: Buffer) -> Result<()>;

    /// Hands over a message; it may leave at once.
    fn post_send(&mut self, buffer: Buffer) -> Result<()>;

    /// Moves what can move now and reports what completed.
    fn progress(&mut self, done: &mut impl FnMut(Completion)) -> Result<()>;

    /// A job begins on both ends, with nothing posted. `job` counts from 1 and is the same on both ends.
    fn begin(&mut self, job: u64) -> Result<()>;

    /// No traffic until the next block: threads of the stack's own stop spinning.
    fn idle(&mut self) -> Result<()> {
        Ok(())
    }

    /// A block begins: threads of the stack's own wake, and have woken when this returns.
    fn resume(&mut self) -> Result<()> {
        Ok(())
    }

    /// Threads of the stack's own, as the kernel numbers them, with what each does (`engine`).
    fn threads(&self) -> Vec<(String, i32)> {
        Vec::new()
    }

    /// What was stretched of the engine's work so far; `None` where nothing is.
    fn dilated(&mut self) -> Result<Option<Dilated>> {
        Ok(None)
    }

    /// What ran otherwise than asked, or needs a word.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Where and with what secret the responder can be met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    pub port: u16,
    pub token: String,
}
