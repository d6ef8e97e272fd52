//! State of one connection's queue pair.

use machine::{Nanoseconds, PeerIndex};

use crate::address::QueuePairNumber;
use crate::receive_queue::{ReceiveQueue, ReceiveWork};
use crate::send_queue::SendQueue;
use crate::settings::{Link, ReceiveQueues, Settings};
use crate::state::State;
use crate::wire::{BTH, RETH, Verdict};

/// The destination of the message that is arriving.
#[derive(Clone, Copy)]
pub(crate) enum Arriving {
    Nothing,
    Message { work: ReceiveWork, got: u64 },
    Write { key: u64, offset: u64, left: u64 },
}

pub(crate) struct QueuePair {
    pub number: QueuePairNumber,
    pub peer: PeerIndex,
    pub state: State,
    pub remote: u32,
    // Requester.
    pub send: SendQueue,
    pub link: Link,
    /// Payload of a full packet.
    pub chunk: usize,
    pub first_psn: u32,
    /// Whether the queue pair is listed among those with packets to transmit.
    pub ready: bool,
    /// Packets since an acknowledgement was last asked for.
    pub unasked: u32,
    /// End of the wait after the peer was not ready.
    pub rnr_until: Option<Nanoseconds>,
    pub rnr_left: u8,
    pub deadline: Option<Nanoseconds>,
    pub retries_left: u8,
    /// Refusals by the peer's host since the peer was last heard.
    pub refusals: u8,
    // Responder.
    /// `None` with the shared receive queue.
    pub receive: Option<ReceiveQueue>,
    pub expected: u32,
    pub arriving: Arriving,
    /// Packets received and not acknowledged, and whether the queue pair is listed for late acknowledgement.
    pub unacknowledged: u32,
    pub lazy: bool,
    /// Verdict for the requester, and whether the queue pair is listed among those with one.
    pub answer: Option<Verdict>,
    pub answering: bool,
    /// Whether packets out of order were refused; it is not repeated before one comes in order.
    pub refused: bool,
}

impl QueuePair {
    pub fn new(
        number: QueuePairNumber,
        peer: PeerIndex,
        first_psn: u32,
        reserve: u32,
        link: Link,
        settings: &Settings,
    ) -> Self {
        QueuePair {
            number,
            peer,
            state: State::Reset,
            remote: 0,
            send: SendQueue::new(settings.send_depth, first_psn),
            chunk: (link.mtu.0 as usize).saturating_sub(BTH + RETH),
            link,
            first_psn,
            ready: false,
            unasked: 0,
            rnr_until: None,
            rnr_left: settings.rnr_retry,
            deadline: None,
            retries_left: settings.retry,
            refusals: 0,
            receive: match settings.receive {
                ReceiveQueues::PerPeer { depth } => Some(ReceiveQueue::new(depth + reserve)),
                ReceiveQueues::Shared { .. } => None,
            },
            expected: 0,
            arriving: Arriving::Nothing,
            unacknowledged: 0,
            lazy: false,
            answer: None,
            answering: false,
            refused: false,
        }
    }

    /// Memory of this queue pair without its receive buffers, bytes.
    pub fn bytes(&self) -> usize {
        size_of::<QueuePair>() + self.send.bytes() + self.receive.as_ref().map_or(0, ReceiveQueue::bytes)
    }
}
