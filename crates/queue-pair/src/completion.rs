//! Completion queues.

use std::collections::VecDeque;

use crate::address::QueuePairNumber;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opcode {
    Send,
    RdmaWrite,
    Receive,
}

/// How a work request ended (InfiniBand 1.3, 11.6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkStatus {
    Success,
    /// The message was longer than the posted buffer.
    LocalLength,
    /// The queue pair went to Error before this request was begun or ended.
    Flushed,
    /// The peer refused the packet.
    RemoteInvalidRequest,
    RemoteAccess,
    /// No acknowledgement came, however often the packet was sent again.
    RetryExceeded,
    /// The peer had no receive posted at any retry.
    RnrRetryExceeded,
}

/// A completion polled from the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkCompletion {
    /// The id given with the work request.
    pub id: u64,
    pub queue_pair: QueuePairNumber,
    pub opcode: Opcode,
    pub status: WorkStatus,
    /// Bytes received.
    pub length: u32,
}

/// A queue of fixed size: those who push make sure of the room.
pub(crate) struct CompletionQueue {
    entries: VecDeque<WorkCompletion>,
    depth: usize,
}

impl CompletionQueue {
    pub fn new(depth: u32) -> Self {
        CompletionQueue { entries: VecDeque::with_capacity(depth as usize), depth: depth as usize }
    }

    pub fn room(&self) -> usize {
        self.depth - self.entries.len()
    }

    #[inline]
    pub fn add(&mut self, entry: WorkCompletion) {
        debug_assert!(self.entries.len() < self.depth, "a completion queue overrun");
        self.entries.push_back(entry);
    }

    #[inline]
    pub fn poll(&mut self) -> Option<WorkCompletion> {
        self.entries.pop_front()
    }
}
