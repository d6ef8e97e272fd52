//! Memory of closed ranks' endpoints that their engine may still write to: it stays until the engine has let go of it, or has
//! ended.

use std::sync::{Mutex, MutexGuard, PoisonError};

use machine::{Notice, Port, Result, Sent};
use ports::shm::ShmPort;
use slotmap::SlotMap;

use super::protocol::{Command, EVENTS, OTHER, Record};
use super::waiting::{Ticket, Waiting};
use crate::driver::Buffer;

/// Progress of a rank in leaving its engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    No,
    /// The engine was told.
    Said,
    /// The engine has let go of all memory, or has ended.
    Done,
}

impl Leaving {
    /// Advances without waiting. Until the rings' end closes, the engine reads and writes the memory of requests in progress.
    pub fn go_on(&mut self, rings: &mut ShmPort) -> Result<()> {
        if *self == Leaving::No {
            let command = Command::Leave;
            match rings.send(OTHER, command.length(), |into| command.write(into))? {
                Sent::Taken => *self = Leaving::Said,
                Sent::Full => {}
                Sent::Gone => *self = Leaving::Done,
            }
        }
        rings.receive(EVENTS, |_, _| ())?;
        rings.notices(|notice| {
            if matches!(notice, Notice::Dead(_) | Notice::Closed(_)) {
                *self = Leaving::Done;
            }
        })
    }
}

/// Memory of a closed endpoint.
pub(super) struct Remains<B> {
    pub leaving: Leaving,
    pub rings: ShmPort,
    pub _waiting: SlotMap<Ticket, Waiting<B>>,
    /// The word by which others check the process whose memory they read.
    pub _word: Option<Box<u64>>,
}

trait Kept: Send {
    fn is_let_go(&mut self) -> bool;
}

impl<B: Buffer> Kept for Remains<B> {
    fn is_let_go(&mut self) -> bool {
        self.leaving.go_on(&mut self.rings).is_ok() && self.leaving == Leaving::Done
    }
}

fn kept() -> MutexGuard<'static, Vec<Box<dyn Kept>>> {
    static KEPT: Mutex<Vec<Box<dyn Kept>>> = Mutex::new(Vec::new());
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn keep<B: Buffer>(remains: Remains<B>) {
    kept().push(Box::new(remains));
}

/// Frees memory that engines have let go of by now.
pub(super) fn give_back() {
    kept().retain_mut(|remains| !remains.is_let_go());
}
