//! Messages of remote memory operations between initiator and target: a header, and small operands behind it.

use crate::abi::constants::*;
use crate::arithmetic::Operator;

/// Most bytes of operands that travel with their request.
pub const INLINE: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Write = 1,
    Read = 2,
    Atomic = 3,
    /// The target could not carry out the request.
    Failed = 4,
}

/// The operands come in a message of their own.
pub const APART: u8 = 1;
/// `data` is for the target's completion queue.
pub const WITH_DATA: u8 = 2;
/// An atomic's answer is the memory's content before.
pub const FETCH: u8 = 4;

/// 48 bytes, little endian: kind, datatype, operator, flags (1 each), error (4), ticket, key, address, length, data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    pub datatype: u8,
    pub operator: u8,
    pub flags: u8,
    pub error: u32,
    pub ticket: u64,
    pub key: u64,
    pub address: u64,
    pub length: u64,
    pub data: u64,
}

pub const HEADER: usize = 48;

impl Header {
    pub fn write(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&[self.kind as u8, self.datatype, self.operator, self.flags]);
        bytes[4..8].copy_from_slice(&self.error.to_le_bytes());
        for (at, word) in [self.ticket, self.key, self.address, self.length, self.data].into_iter().enumerate() {
            bytes[8 + 8 * at..16 + 8 * at].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The header and the bytes after it.
    pub fn read(bytes: &[u8]) -> Option<(Header, &[u8])> {
        let (head, rest) = bytes.split_at_checked(HEADER)?;
        let kind = match head[0] {
            1 => Kind::Write,
            2 => Kind::Read,
            3 => Kind::Atomic,
            4 => Kind::Failed,
            _ => return None,
        };
        let word = |at: usize| u64::from_le_bytes(head[8 + 8 * at..16 + 8 * at].try_into().expect("eight bytes"));
        let header = Header {
            kind,
            datatype: head[1],
            operator: head[2],
            flags: head[3],
            error: u32::from_le_bytes(head[4..8].try_into().expect("four bytes")),
            ticket: word(0),
            key: word(1),
            address: word(2),
            length: word(3),
            data: word(4),
        };
        Some((header, rest))
    }

    /// The rights that a region must grant for this request; `None` if no call makes such a request.
    pub fn needs(&self) -> Option<u64> {
        let needs = match self.kind {
            Kind::Write => FI_REMOTE_WRITE,
            Kind::Read => FI_REMOTE_READ,
            Kind::Atomic => {
                let reads = self.flags & FETCH != 0;
                let writes = Operator::of(i32::from(self.operator)) != Some(Operator::Read);
                let right = |needed, right| if needed { right } else { 0 };
                right(reads, FI_REMOTE_READ) | right(writes, FI_REMOTE_WRITE)
            }
            Kind::Failed => 0,
        };
        (needs != 0).then_some(needs)
    }
}

/// Two tags per ticket: for the initiator's operands, and for the answer. The low half of a ticket is its slot, of which the
/// highest bit is never reached.
pub fn given(ticket: u64) -> u64 {
    ticket
}

pub fn answered(ticket: u64) -> u64 {
    ticket | 1 << 31
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Header = Header {
        kind: Kind::Atomic,
        datatype: 7,
        operator: 12,
        flags: FETCH | WITH_DATA,
        error: 5,
        ticket: u64::MAX >> 1,
        key: 42,
        address: 1 << 50,
        length: 4096,
        data: 99,
    };

    #[test]
    fn headers_read_back_as_written() {
        let mut bytes = HEAD.write().to_vec();
        bytes.extend_from_slice(b"operands");
        assert_eq!(Header::read(&bytes), Some((HEAD, &b"operands"[..])));
        assert_eq!(Header::read(&bytes[..HEADER - 1]), None);
        bytes[0] = 9;
        assert_eq!(Header::read(&bytes), None);
    }

    #[test]
    fn what_is_given_and_what_is_answered_never_match() {
        assert_ne!(given(7), answered(7));
        assert_ne!(answered(7), given(8));
    }

    #[test]
    fn what_writes_needs_the_right_to_write_and_what_answers_with_bytes_the_right_to_read() {
        let (read, write) = (FI_REMOTE_READ, FI_REMOTE_WRITE);
        let needs = |kind, operator, flags| Header { kind, operator, flags, ..HEAD }.needs();
        for flags in 0..8 {
            assert_eq!(needs(Kind::Write, 0, flags), Some(write));
            assert_eq!(needs(Kind::Read, 0, flags), Some(read));
            assert_eq!(needs(Kind::Failed, 0, flags), None);
            let fetches = flags & FETCH != 0;
            for operator in 0..=u8::MAX {
                let expected = match (Operator::of(i32::from(operator)), fetches) {
                    (Some(Operator::Read), true) => Some(read),
                    (Some(Operator::Read), false) => None,
                    (_, true) => Some(read | write),
                    (_, false) => Some(write),
                };
                assert_eq!(needs(Kind::Atomic, operator, flags), expected, "operator {operator}, flags {flags}");
            }
        }
    }
}
