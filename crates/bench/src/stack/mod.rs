//! Stacks: what one end of a message path implements, and how two ends meet.

use std::net::IpAddr;
use std::time::Duration;

use machine::{CoreId, Fault, Result, Site};
use serde::{Deserialize, Serialize};
use study::point::Stack as StackName;

use crate::buffer::Buffer;
use crate::control::Connection;
use crate::endpoint::{Job, Outcome, Role, Watch};
use crate::pattern::{self, Pools};

pub mod tcp;

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
    fn idle(&mut self) -> Result<()>;

    /// A block begins: threads of the stack's own wake, and have woken when this returns.
    fn resume(&mut self) -> Result<()>;

    /// What ran otherwise than asked, or needs a word.
    fn notes(&self) -> Vec<String>;
}

/// What both ends of a session are told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prepare {
    pub stack: StackName,
    pub placement: Site,
    /// Core to which this end's application thread is pinned; `None` leaves it where it is.
    pub core: Option<CoreId>,
    /// Address at which the responder waits; it takes its control connection's where this is `None`.
    pub address: Option<IpAddr>,
    /// Both ends need the same core: polls that find nothing give it away.
    pub polite: bool,
}

/// Where and with what secret the responder can be met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    pub port: u16,
    pub token: String,
}

/// The responder's end before the initiator has come.
pub enum Waiting {
    Tcp(tcp::Waiting),
}

/// One end of a session's message path, whatever its stack.
pub enum Path {
    Tcp(tcp::Tcp),
}

macro_rules! each {
    ($path:expr, $stack:ident => $body:expr) => {
        match $path {
            Path::Tcp($stack) => $body,
        }
    };
}

impl Waiting {
    /// The responder's first step; the offer goes to the initiator.
    pub fn new(prepare: &Prepare, address: IpAddr) -> Result<(Waiting, Offer)> {
        match prepare.stack {
            StackName::Tcp => tcp::Waiting::new(address).map(|(waiting, offer)| (Waiting::Tcp(waiting), offer)),
            stack => Err(unavailable(stack)),
        }
    }

    /// The responder's second step: waits until the initiator has come.
    pub fn accept(self, _control: &mut Connection) -> Result<Path> {
        match self {
            Waiting::Tcp(waiting) => waiting.accept().map(Path::Tcp),
        }
    }
}

impl Path {
    /// The initiator's step.
    pub fn connect(prepare: &Prepare, address: IpAddr, offer: &Offer, _control: &mut Connection) -> Result<Path> {
        match prepare.stack {
            StackName::Tcp => tcp::Tcp::connect(address, offer).map(Path::Tcp),
            stack => Err(unavailable(stack)),
        }
    }

    /// Runs one job at this end. `ready` is called when every receive that the initiator may count on is posted.
    #[allow(clippy::too_many_arguments)]
    pub fn perform(
        &mut self,
        job: &Job,
        role: Role,
        number: u64,
        pools: &mut Pools,
        polite: bool,
        watch: Watch<'_>,
        ready: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Outcome> {
        each!(self, stack => pattern::perform(stack, job, role, number, pools, polite, watch, ready))
    }

    pub fn idle(&mut self) -> Result<()> {
        each!(self, stack => stack.idle())
    }

    pub fn resume(&mut self) -> Result<()> {
        each!(self, stack => stack.resume())
    }

    pub fn notes(&self) -> Vec<String> {
        each!(self, stack => stack.notes())
    }
}

fn unavailable(stack: StackName) -> Fault {
    Fault::new(format!("stack {stack}"), "this build has no such message path", "choose tcp or udp")
}
