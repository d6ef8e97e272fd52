//! State of one peer in the MPI layer, and of connections in progress.

use std::collections::VecDeque;
use std::time::Instant;

use engine::SendKey;
use machine::PeerIndex;

use crate::address::QueuePairNumber;
use crate::memory::MemoryKey;
use crate::settings::Link;

/// Work to be posted once the send queue has room and the peer a receive for it.
#[derive(Clone, Copy)]
pub(crate) enum Waiting {
    /// A message, eager or by request.
    Message(SendKey),
    ClearToSend {
        sender: u64,
        receiver: u64,
        key: u64,
        length: u64,
    },
    /// The RDMA writes of a message, from `done` on.
    Write {
        send: SendKey,
        from: MemoryKey,
        key: u64,
        length: u64,
        done: u64,
    },
    Finished {
        receiver: u64,
    },
}

pub(crate) struct Connection {
    pub link: Link,
    /// [`QueuePairNumber::NONE`] until it is first needed.
    pub queue_pair: QueuePairNumber,
    /// Whether both ends know each other's queue pair.
    pub ready: bool,
    pub alive: bool,
    /// The number of this end at the peer.
    pub source: u32,
    /// Posted receives of the peer that are still unused.
    pub credits: u32,
    /// Receives posted anew since the peer was last told.
    pub returning: u32,
    /// Whether the peer is in the list of those owed credits, and in that of those with work waiting.
    pub owing: bool,
    pub listed: bool,
    pub waiting: VecDeque<Waiting>,
    /// Inline sends since the last one that asked for a completion.
    pub unsignaled: u32,
    /// Pool of the buffers of this peer's receives.
    pub buffers: MemoryKey,
}

impl Connection {
    pub fn new(link: Link) -> Connection {
        Connection {
            link,
            queue_pair: QueuePairNumber::NONE,
            ready: false,
            alive: true,
            source: 0,
            credits: 0,
            returning: 0,
            owing: false,
            listed: false,
            waiting: VecDeque::new(),
            unsignaled: 0,
            buffers: MemoryKey(0),
        }
    }
}

/// A connection in progress.
#[derive(Default)]
pub(crate) struct Connecting {
    pub peers: Vec<(PeerIndex, Instant)>,
    pub last: Option<Instant>,
}
