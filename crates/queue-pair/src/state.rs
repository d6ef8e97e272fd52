//! The states of a queue pair (InfiniBand 1.3, 10.3.1).

use machine::{Fault, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// As created: nothing can be posted.
    Reset,
    /// Receives can be posted; packets are not looked at.
    Init,
    /// The peer is known: packets are received.
    ReadyToReceive,
    /// Sends go out.
    ReadyToSend,
    /// Posted work requests complete as flushed.
    Error,
}

impl State {
    /// Whether `next` may follow: Reset and Error follow any state, the others one another in order.
    pub fn may_become(self, next: State) -> bool {
        matches!(
            (self, next),
            (_, State::Reset | State::Error)
                | (State::Reset, State::Init)
                | (State::Init, State::Init | State::ReadyToReceive)
                | (State::ReadyToReceive, State::ReadyToSend)
                | (State::ReadyToSend, State::ReadyToSend)
        )
    }

    pub(crate) fn check(self, next: State, number: u32) -> Result<()> {
        if self.may_become(next) {
            return Ok(());
        }
        Err(Fault::new(
            format!("queue pair {number}"),
            format!("it is in state {self:?}, from which none goes to {next:?}"),
            "take it through Reset, Init, ReadyToReceive, ReadyToSend in this order",
        ))
    }

    pub fn receives_packets(self) -> bool {
        matches!(self, State::ReadyToReceive | State::ReadyToSend)
    }
}
