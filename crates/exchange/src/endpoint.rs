//! One end of a running pattern: posts, counts completions, and never waits without a bound.

use std::hint::black_box;
use std::time::Duration;

use machine::{Fault, Result};
use rounds::point::{Pattern, Receiver};
use serde::{Deserialize, Serialize};

use crate::buffer::{Pool, digest, fill, first_difference};
use crate::stack::{Completion, Stack};

/// Polls between two looks at the clock and at the peer: about a millisecond of system calls, less over shared memory.
const POLLS_BETWEEN_WATCHES: u32 = 4096;
/// Polls that a yield counts for besides: others may have the core for milliseconds.
const YIELD: u32 = 63;

/// Messages of one size, in one pattern.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    pub pattern: Pattern,
    /// Message size.
    pub size: usize,
    /// Number of the initiator's messages; whole windows where the pattern has them.
    pub messages: u64,
    pub receiver: Receiver,
    /// Whether each message has a payload of its own that is checked: for blocks that are not timed.
    pub verify: bool,
}

/// The role of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sends first and holds the clock.
    Initiator,
    Responder,
}

/// Results of a job at one end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub sent: u64,
    pub received: u64,
    pub lost: u64,
    /// Time from first post to last completion, on this end's clock; nanoseconds.
    pub elapsed: u64,
    /// Part of `elapsed` spent waiting for messages that never came; nanoseconds.
    pub waited_for_lost: u64,
    /// Result of a receiver that works on the data.
    pub digest: u64,
}

/// Checks that the peer lives and time is left; a fault ends the job.
pub type Watch<'a> = &'a mut dyn FnMut() -> Result<()>;

/// One end of a running job.
pub struct Endpoint<'a, S> {
    stack: &'a mut S,
    outgoing: &'a mut Pool,
    incoming: &'a mut Pool,
    watch: Watch<'a>,
    job: &'a Job,
    role: Role,
    polite: bool,
    polls: u32,
    posted: u64,
    sent: u64,
    received: u64,
    lost: u64,
    waited: Duration,
    digest: u64,
    corrupt: Option<(u64, usize)>,
}

impl<'a, S: Stack> Endpoint<'a, S> {
    /// `polite`: whether to yield after a poll that found nothing, because the peer needs the same core.
    pub fn new(
        stack: &'a mut S,
        (outgoing, incoming): (&'a mut Pool, &'a mut Pool),
        watch: Watch<'a>,
        (job, role): (&'a Job, Role),
        polite: bool,
    ) -> Self {
        Endpoint {
            stack,
            outgoing,
            incoming,
            watch,
            job,
            role,
            polite,
            polls: 0,
            posted: 0,
            sent: 0,
            received: 0,
            lost: 0,
            waited: Duration::ZERO,
            digest: 0,
            corrupt: None,
        }
    }

    pub fn job(&self) -> &'a Job {
        self.job
    }

    pub fn post_receive(&mut self, length: usize) -> Result<()> {
        self.stack.post_receive(self.incoming.take(length))
    }

    pub fn post_send(&mut self, length: usize) -> Result<()> {
        let mut buffer = self.outgoing.take(length);
        if self.job.verify {
            fill(&mut buffer, seed(self.role, self.posted));
        }
        self.posted += 1;
        self.stack.post_send(buffer)
    }

    /// Drives the end until `count` sends of this job have completed.
    pub fn until_sent(&mut self, count: u64) -> Result<()> {
        while self.sent < count {
            self.step()?;
        }
        Ok(())
    }

    /// Drives the end until `count` posted receives of this job have completed, by a message or by its loss.
    pub fn until_received(&mut self, count: u64) -> Result<()> {
        while self.received + self.lost < count {
            self.step()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        let Endpoint { stack, outgoing, incoming, sent, received, lost, waited, digest: state, corrupt, .. } = self;
        let (job, sender) = (self.job, self.role.other());
        let before = *sent + *received + *lost;
        stack.progress(&mut |completion| match completion {
            Completion::Received(buffer) => {
                if job.receiver == Receiver::Works {
                    *state = black_box(digest(&buffer, *state));
                }
                if job.verify
                    && corrupt.is_none()
                    && let Some(at) = first_difference(&buffer, seed(sender, *received + *lost))
                {
                    *corrupt = Some((*received + *lost, at));
                }
                *received += 1;
                incoming.give(buffer);
            }
            Completion::Sent(buffer) => {
                *sent += 1;
                outgoing.give(buffer);
            }
            Completion::Lost { buffer, waited: time } => {
                *lost += 1;
                *waited += time;
                incoming.give(buffer);
            }
        })?;
        if self.polite && self.sent + self.received + self.lost == before {
            std::thread::yield_now();
            self.polls += YIELD;
        }
        self.polls += 1;
        if self.polls >= POLLS_BETWEEN_WATCHES {
            self.polls = 0;
            (self.watch)()?;
        }
        Ok(())
    }

    /// The outcome; a fault where a payload was not what its sender wrote.
    pub fn finish(self, elapsed: Duration) -> Result<Outcome> {
        if let Some((message, at)) = self.corrupt {
            return Err(Fault::new(
                format!("message {message} of {} bytes", self.job.size),
                format!("its payload differs from what was sent, first at byte {at}"),
                "this stack delivers wrong data: report it with the command line that showed it",
            ));
        }
        Ok(Outcome {
            sent: self.sent,
            received: self.received,
            lost: self.lost,
            elapsed: elapsed.as_nanos() as u64,
            waited_for_lost: self.waited.as_nanos() as u64,
            digest: self.digest,
        })
    }
}

impl Role {
    fn other(self) -> Role {
        match self {
            Role::Initiator => Role::Responder,
            Role::Responder => Role::Initiator,
        }
    }
}

fn seed(sender: Role, message: u64) -> u64 {
    message * 2 + u64::from(sender == Role::Responder)
}
