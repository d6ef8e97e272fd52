//! One queue pair: what an adapter keeps for one connection.

use machine::{Nanoseconds, PeerIndex};

use crate::receive_queue::{ReceiveQueue, ReceiveWork};
use crate::send_queue::SendQueue;
use crate::settings::{Link, ReceiveQueues, Settings};
use crate::state::State;
use crate::wire::{BTH, RETH, Verdict};

/// Names a queue pair of one adapter. 0 and 1 are not given out: they are the subnet's own, and 1 takes management datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QueuePairNumber(pub u32);

pub(crate) const MANAGEMENT: u32 = 1;
pub(crate) const FIRST_NUMBER: u32 = 2;

impl QueuePairNumber {
    pub(crate) const NONE: QueuePairNumber = QueuePairNumber(0);

    pub(crate) fn index(self) -> usize {
        self.0.wrapping_sub(FIRST_NUMBER) as usize
    }
}

/// What the two ends of a connection tell each other, out of band, before it is ready to receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    pub queue_pair: QueuePairNumber,
    /// The first packet of this end will have this sequence number.
    pub first_psn: u32,
    /// The peer, as this end numbers it: the source in the headers of the peer's messages.
    pub source: u32,
}

/// What one end tells the other to connect, as the communication manager's datagrams do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hello {
    pub address: Address,
    /// The sender knows the receiver's address.
    pub knows: bool,
    /// The sender does not know whether the receiver has its own: answer.
    pub asks: bool,
}

impl Hello {
    pub const LENGTH: usize = 13;

    pub fn write(&self, into: &mut [u8]) {
        into[..4].copy_from_slice(&self.address.queue_pair.0.to_le_bytes());
        into[4..8].copy_from_slice(&self.address.first_psn.to_le_bytes());
        into[8..12].copy_from_slice(&self.address.source.to_le_bytes());
        into[12] = u8::from(self.knows) | u8::from(self.asks) << 1;
    }

    pub fn parse(bytes: &[u8]) -> Option<Hello> {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        if bytes.len() != Hello::LENGTH || bytes[12] > 3 {
            return None;
        }
        let address = Address { queue_pair: QueuePairNumber(word(0)), first_psn: word(4), source: word(8) };
        Some(Hello { address, knows: bytes[12] & 1 != 0, asks: bytes[12] & 2 != 0 })
    }
}

/// Where the bytes of the message now arriving go.
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
    /// Listed among those that have something to transmit.
    pub ready: bool,
    /// Packets since an acknowledgement was last asked for.
    pub unasked: u32,
    /// Waits, since the peer was not ready.
    pub rnr_until: Option<Nanoseconds>,
    pub rnr_left: u8,
    pub deadline: Option<Nanoseconds>,
    pub retries_left: u8,
    /// By the peer's host, since the peer was last heard of.
    pub refusals: u8,
    // Responder.
    /// `None`: the shared one is used.
    pub receive: Option<ReceiveQueue>,
    pub expected: u32,
    pub arriving: Arriving,
    /// Packets taken in and not acknowledged, and that this queue pair is listed among those that may do it later.
    pub unacknowledged: u32,
    pub lazy: bool,
    /// What to tell the requester, and that this queue pair is listed among those that have to.
    pub answer: Option<Verdict>,
    pub answering: bool,
    /// Refused what came out of order; it need not be said again before something comes in order.
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

    /// Bytes that this queue pair takes, its receive buffers apart.
    pub fn bytes(&self) -> usize {
        size_of::<QueuePair>() + self.send.bytes() + self.receive.as_ref().map_or(0, ReceiveQueue::bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_said_to_connect_reads_back(queue_pair: u32, first_psn: u32, source: u32, knows: bool, asks: bool) {
            let address = Address { queue_pair: QueuePairNumber(queue_pair), first_psn, source };
            let hello = Hello { address, knows, asks };
            let mut bytes = [0xAA; Hello::LENGTH];
            hello.write(&mut bytes);
            prop_assert_eq!(Hello::parse(&bytes), Some(hello));
            prop_assert_eq!(Hello::parse(&bytes[1..]), None);
        }

        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
            let _ = Hello::parse(&bytes);
        }
    }
}
