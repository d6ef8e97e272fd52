//! Channels: pathways between offcodes, or between an application and offcodes (HYDRA section 1.3).

#[cfg(feature = "conformance")]
pub mod conformance;

use std::sync::Arc;

use crate::{Bytes, Nanoseconds, Result};
use serde::{Deserialize, Serialize};

/// The number of endpoints that a channel joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cast {
    /// Two endpoints, both ways.
    Unicast,
    /// One writer and many readers: one write reaches all.
    Multicast,
}

/// The content of a channel's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Content {
    /// Calls and their answers, each with a `offcode::call::Header`.
    Calls,
    /// Whatever the two ends agree on.
    Messages,
}

/// The treatment of a message for which there is no buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Delivery {
    /// The message is not taken: the writer is told and tries again. Nothing is lost while both ends live.
    Reliable,
    /// The message is dropped, and counted.
    Unreliable,
}

/// The reader's way to wait while nothing arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Synchronization {
    /// Polls: the lowest latency, and a core that is always busy.
    Poll,
    /// May sleep in [`Channel::wait`]; a write wakes it (25 to 40 us on this project's machines).
    Blocking,
}

/// The place of payloads on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Whatever the two sites allow: in place where they share memory, else copied.
    Any,
    /// Written and read in place, in memory that both ends map. Only between sites that share memory.
    ZeroCopy,
    /// Payloads may be copied on the way; where sites share memory they are not.
    Copy,
}

/// Buffers of each direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Buffers {
    /// A power of two, 4 to 65536.
    pub count: u32,
    /// Largest message.
    pub size: Bytes,
    /// Whether a message is copied between its two ends.
    pub policy: Policy,
}

/// The choices of a channel's creator: step one of two. Attaching an offcode is the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Specification {
    /// How many endpoints the channel joins.
    pub cast: Cast,
    /// Treatment of a message for which there is no buffer.
    pub delivery: Delivery,
    /// The reader's way to wait while nothing arrives.
    pub synchronization: Synchronization,
    /// Content of the channel's messages.
    pub content: Content,
    /// Buffers of each direction.
    pub buffers: Buffers,
}

impl Default for Specification {
    /// Unicast, reliable, polled, for calls, 64 buffers of 4 KiB, in place where that can be.
    fn default() -> Self {
        Specification {
            cast: Cast::Unicast,
            delivery: Delivery::Reliable,
            synchronization: Synchronization::Poll,
            content: Content::Calls,
            buffers: Buffers { count: 64, size: Bytes(4096), policy: Policy::Any },
        }
    }
}

/// The outcome of one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Written {
    /// The message is on its way.
    Taken,
    /// A reliable channel has no buffer: the message was not taken and `fill` not called.
    Full,
    /// An unreliable channel had no buffer for at least one reader: the loss was counted.
    Dropped,
    /// No other end is left.
    Gone,
    /// Only from `offcode::Context::write`: the message is longer than a buffer, or this end may not write. The log says which.
    Refused,
}

/// Counters of one endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Messages that this end wrote.
    pub written: u64,
    /// Messages that this end read.
    pub read: u64,
    /// Messages lost for want of a buffer, seen from this end: by the writer where it drops, by the reader where it was lapped.
    pub dropped: u64,
    /// Writes that were refused with [`Written::Full`].
    pub full: u64,
}

/// The place where a channel loses messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// At the end that writes, whose buffers are full.
    Writer,
    /// At an end that reads, which the writer has lapped.
    Reader,
    /// At a driver hook: a queue to or from the program is full.
    Hook,
    /// On the way to another host: the agent's queue is full.
    Agent,
    /// On the way, while an offcode moved.
    Move,
}

impl Loss {
    /// The place in a few words.
    pub fn place(self) -> &'static str {
        match self {
            Loss::Writer => "full at the writer",
            Loss::Reader => "lapped at the reader",
            Loss::Hook => "at a hook",
            Loss::Agent => "at an agent's backlog",
            Loss::Move => "in a move",
        }
    }
}

/// The means to end a thread's sleep.
pub trait Bell: Send + Sync {
    /// Ends the thread's sleep, or the next one where it is awake. Costs a system call.
    fn ring(&self);
}

/// A thread that is about to sleep until one of its channels has something for it.
pub trait Sleeper {
    /// The bell that ends its sleep.
    fn bell(&self) -> Arc<dyn Bell>;

    /// Ends the sleep also once the descriptor can be read. `false`: it cannot be watched.
    #[cfg(unix)]
    fn watch(&mut self, descriptor: std::os::fd::BorrowedFd<'_>) -> bool;
}

/// One endpoint of a channel; only [`Channel::wait`] blocks. Both ends of a unicast channel read and write; of a
/// multicast channel the creator writes and the attached ends read.
///
/// `fill` and `deliver` run inline on the channel's own memory. A peer that breaks the protocol may write there
/// meanwhile: read a value that decides something once, or copy it first.
pub trait Channel: Send {
    /// The specification that the channel's creator chose.
    fn specification(&self) -> &Specification;

    /// Sends a message of `length` bytes, which `fill` writes whole. A fault where it is longer than a buffer, or where
    /// this end may not write.
    fn write_with(&mut self, length: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<Written>;

    /// Hands the next message to `deliver`, if there is one; says whether there was.
    fn read_with(&mut self, deliver: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Whether a read would deliver.
    fn poll(&mut self) -> Result<bool>;

    /// Sleeps until a read would deliver, another end goes, or `limit_ns` has passed; says whether a read would
    /// deliver. A fault unless [`Synchronization::Blocking`].
    fn wait(&mut self, limit: Nanoseconds) -> Result<bool>;

    /// Lets the next message, or the leaving of another end, end the sleep that the thread is about to begin. `false`:
    /// there is one already, or this channel cannot tell (the default); the thread then polls instead of sleeping.
    fn arm(&mut self, sleeper: &mut dyn Sleeper) -> bool {
        let _ = sleeper;
        false
    }

    /// Whether every other end has gone; what was written before may still be read.
    fn is_abandoned(&self) -> bool;

    /// Counters of this end since it was made.
    fn counted(&self) -> Counted;

    /// The place where the messages that it counts as dropped were lost.
    fn loses(&self) -> Loss {
        Loss::Writer
    }

    /// Copies `message` in.
    fn write(&mut self, message: &[u8]) -> Result<Written> {
        self.write_with(message.len(), &mut |buffer| buffer.copy_from_slice(message))
    }
}

macro_rules! forwarded {
    () => {
        #[inline]
        fn specification(&self) -> &Specification {
            (**self).specification()
        }
        #[inline]
        fn write_with(&mut self, length: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<Written> {
            (**self).write_with(length, fill)
        }
        #[inline]
        fn read_with(&mut self, deliver: &mut dyn FnMut(&[u8])) -> Result<bool> {
            (**self).read_with(deliver)
        }
        #[inline]
        fn poll(&mut self) -> Result<bool> {
            (**self).poll()
        }
        fn wait(&mut self, limit: Nanoseconds) -> Result<bool> {
            (**self).wait(limit)
        }
        fn arm(&mut self, sleeper: &mut dyn Sleeper) -> bool {
            (**self).arm(sleeper)
        }
        fn is_abandoned(&self) -> bool {
            (**self).is_abandoned()
        }
        fn counted(&self) -> Counted {
            (**self).counted()
        }
        fn loses(&self) -> Loss {
            (**self).loses()
        }
        #[inline]
        fn write(&mut self, message: &[u8]) -> Result<Written> {
            (**self).write(message)
        }
    };
}

impl<C: Channel + ?Sized> Channel for Box<C> {
    forwarded!();
}

impl<C: Channel + ?Sized> Channel for &mut C {
    forwarded!();
}
