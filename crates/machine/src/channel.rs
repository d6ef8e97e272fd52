//! Channels: pathways between offcodes, or between an application and offcodes (HYDRA section 1.3).

#[cfg(feature = "conformance")]
pub mod conformance;

use std::sync::Arc;

use crate::{Bytes, Nanoseconds, Result};
use serde::{Deserialize, Serialize};

/// How many a channel joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cast {
    /// Two endpoints, both ways.
    Unicast,
    /// One writer, many readers, one write.
    Multicast,
}

/// What travels on a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Content {
    /// Calls and their answers, each with a `offcode::call::Header`.
    Calls,
    /// Whatever the two ends agree on.
    Messages,
}

/// What happens to a message for which there is no buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Delivery {
    /// It is not taken: the writer learns and tries again. Nothing is lost while both ends live.
    Reliable,
    /// It is dropped, and counted.
    Unreliable,
}

/// What the reader does while nothing arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Synchronization {
    /// Looks again and again: the lowest latency, and a core that is always busy.
    Poll,
    /// May sleep in [`Channel::wait`]; a write wakes it (25 to 40 us on this project's machines).
    Blocking,
}

/// Where payloads live on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Whatever the two sites have: in place where they share memory, copied elsewhere.
    Any,
    /// Written and read in place, in memory that both ends map. Only between sites that share memory.
    ZeroCopy,
    /// May be copied on the way; where sites share memory it is not.
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

/// What the creator of a channel determines: step one of two. Attaching an offcode is the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Specification {
    /// How many endpoints the channel joins.
    pub cast: Cast,
    /// What happens to a message for which there is no buffer.
    pub delivery: Delivery,
    /// What a reader does while nothing arrives.
    pub synchronization: Synchronization,
    /// What travels on the channel.
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

/// What became of one write.
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
    /// Only from `offcode::Context::write`: longer than a buffer, or this end may not write. The log says which.
    Refused,
}

/// What one endpoint has counted.
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

/// Where a channel loses messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// At the end that writes, whose buffers are full.
    Writer,
    /// At an end that reads, which the writer has lapped.
    Reader,
    /// At a driver hook, where what leads to or from the program is full.
    Hook,
    /// Before another host, whose agent has as much waiting as may wait.
    Agent,
    /// On the way while an offcode moved.
    Move,
}

impl Loss {
    /// In a few words.
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

/// What ends the sleep of a thread.
pub trait Bell: Send + Sync {
    /// Ends the thread's sleep, or its next one where it does not sleep yet. Costs a system call.
    fn ring(&self);
}

/// A thread that is about to sleep until one of its channels has something for it.
pub trait Sleeper {
    /// What ends its sleep.
    fn bell(&self) -> Arc<dyn Bell>;

    /// Ends its sleep too once the descriptor can be read. `false`: it cannot be watched.
    #[cfg(unix)]
    fn watch(&mut self, descriptor: std::os::fd::BorrowedFd<'_>) -> bool;
}

/// One endpoint of a channel. It blocks in [`Channel::wait`] only. Both ends of a unicast channel read and write; of a
/// multicast channel the creator writes and the attached ends read.
///
/// `fill` and `deliver` run inline on the channel's own memory. Another end that breaks the protocol may write there
/// meanwhile: what is decided on is read once, or copied first.
pub trait Channel: Send {
    /// What the channel's creator determined.
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

    /// Has the next message, and the going of another end, end the sleep that the thread is about to begin. `false`: it is
    /// there already, or this channel cannot tell, as by default; the thread looks again instead of sleeping.
    fn arm(&mut self, sleeper: &mut dyn Sleeper) -> bool {
        let _ = sleeper;
        false
    }

    /// Whether every other end has gone; what was written before may still be read.
    fn is_abandoned(&self) -> bool;

    /// What this end has counted since it was made.
    fn counted(&self) -> Counted;

    /// Where what it counts as dropped was lost.
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
