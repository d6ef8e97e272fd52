//! Ends of channels at sites that share memory with this process.

use std::collections::VecDeque;
use std::time::Duration;

use machine::Bytes;
use offcode::channel::{Buffers, Content, Counted, Loss, Policy, Synchronization};
use offcode::{Cast, Channel, Delivery, Specification, Written};
use serde::{Deserialize, Serialize};

/// Time between two looks for room for messages that wait.
pub(crate) const ROOM_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The specification of every out-of-band channel.
pub const OUT_OF_BAND: Specification = Specification {
    cast: Cast::Unicast,
    delivery: Delivery::Reliable,
    synchronization: Synchronization::Blocking,
    content: Content::Calls,
    buffers: Buffers { count: 16, size: Bytes(4096), policy: Policy::Any },
};

/// One endpoint, and what waits to go out on it.
pub(crate) struct End {
    pub name: String,
    pub content: Content,
    /// Absent only while the seat reads from it.
    pub channel: Option<Box<dyn Channel>>,
    pub unsent: VecDeque<Vec<u8>>,
    /// Calls and messages that came on it.
    pub received: u64,
    /// Writes refused, as no channel takes them.
    pub refused: u64,
}

/// All endpoints of one offcode, in the order of their numbers.
#[derive(Default)]
pub struct Ends(pub(crate) Vec<End>);

/// One endpoint of an offcode, as its site sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndAt {
    /// The channel's name; empty out of band.
    pub name: String,
    pub specification: Specification,
    pub counted: Counted,
    /// Messages that wait for room to go out.
    pub unsent: u64,
    /// Writes refused, as no channel takes them.
    pub refused: u64,
    /// The place of the losses that it counts as dropped.
    pub loses: Loss,
}

impl End {
    pub fn new(name: &str, channel: Box<dyn Channel>) -> Self {
        let content = channel.specification().content;
        End { name: name.into(), content, channel: Some(channel), unsent: VecDeque::new(), received: 0, refused: 0 }
    }

    pub fn vacant() -> Self {
        let (name, content, unsent) = (String::new(), Content::Calls, VecDeque::new());
        End { name, content, channel: None, unsent, received: 0, refused: 0 }
    }

    pub fn waits(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends the messages that wait; says whether all are out.
    pub fn flush(&mut self) -> bool {
        let Some(channel) = self.channel.as_mut() else { return self.unsent.is_empty() };
        while let Some(message) = self.unsent.front() {
            if let Ok(Written::Full) = channel.write(message) {
                return false;
            }
            self.unsent.pop_front();
        }
        true
    }
}
