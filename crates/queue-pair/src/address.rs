//! Names of queue pairs, and the addresses that the two ends of a connection exchange.

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

/// The address of one end, told to the other out of band before the queue pair is ready to receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    pub queue_pair: QueuePairNumber,
    /// Sequence number of this end's first packet.
    pub first_psn: u32,
    /// This end's number of the peer: the source in the headers of the peer's messages.
    pub source: u32,
}

/// A datagram by which one end connects to the other, like the communication manager's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectRequest {
    pub address: Address,
    /// Whether the sender knows the receiver's address.
    pub knows: bool,
    /// Whether an answer is wanted, since the sender does not know that its address has arrived.
    pub asks: bool,
}

impl ConnectRequest {
    pub const LENGTH: usize = 13;

    pub fn write(&self, into: &mut [u8]) {
        into[..4].copy_from_slice(&self.address.queue_pair.0.to_le_bytes());
        into[4..8].copy_from_slice(&self.address.first_psn.to_le_bytes());
        into[8..12].copy_from_slice(&self.address.source.to_le_bytes());
        into[12] = u8::from(self.knows) | u8::from(self.asks) << 1;
    }

    pub fn parse(bytes: &[u8]) -> Option<ConnectRequest> {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        if bytes.len() != ConnectRequest::LENGTH || bytes[12] > 3 {
            return None;
        }
        let address = Address { queue_pair: QueuePairNumber(word(0)), first_psn: word(4), source: word(8) };
        Some(ConnectRequest { address, knows: bytes[12] & 1 != 0, asks: bytes[12] & 2 != 0 })
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
            let hello = ConnectRequest { address, knows, asks };
            let mut bytes = [0xAA; ConnectRequest::LENGTH];
            hello.write(&mut bytes);
            prop_assert_eq!(ConnectRequest::parse(&bytes), Some(hello));
            prop_assert_eq!(ConnectRequest::parse(&bytes[1..]), None);
        }

        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
            let _ = ConnectRequest::parse(&bytes);
        }
    }
}
