//! The header of each message of the MPI layer: kind, returned credits, source and label; the tag's 64 bits hold the
//! communicator's context too, as with the engine's users.

use engine::{Label, Space};

/// Length of the header without data and rendezvous fields.
pub(crate) const HEADER: usize = 16;
const DATA: usize = 8;
/// Length of the longest header.
pub(crate) const LONGEST: usize = HEADER + DATA + 32;
/// Flag in the second byte: data follows. The other bits are the space.
const HAS_DATA: u8 = 0x80;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An eager message follows.
    Eager,
    /// A message of this length waits at the sender (RTS).
    RequestToSend { length: u64, sender: u64 },
    /// The receiver's buffer is registered under this key, with this length (CTS).
    ClearToSend { sender: u64, receiver: u64, key: u64, length: u64 },
    /// The bytes were written (FIN).
    Finished { receiver: u64 },
    /// The message only brings credits.
    Credit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: Kind,
    /// Receives posted anew for the peer.
    pub credits: u16,
    /// The receiver's number of the sender.
    pub source: u32,
    pub label: Label,
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Header {
    /// Length of the header before an eager message.
    #[inline]
    pub fn before(label: &Label) -> usize {
        HEADER + if label.data.is_some() { DATA } else { 0 }
    }

    #[inline]
    pub fn length(&self) -> usize {
        Header::before(&self.label)
            + match self.kind {
                Kind::Eager | Kind::Credit => 0,
                Kind::RequestToSend { .. } => 16,
                Kind::ClearToSend { .. } => 32,
                Kind::Finished { .. } => 8,
            }
    }

    /// Writes the header over the start of `into`.
    #[inline]
    pub fn write(&self, into: &mut [u8]) {
        let (kind, words): (u8, [u64; 4]) = match self.kind {
            Kind::Eager => (1, [0; 4]),
            Kind::RequestToSend { length, sender } => (2, [length, sender, 0, 0]),
            Kind::ClearToSend { sender, receiver, key, length } => (3, [sender, receiver, key, length]),
            Kind::Finished { receiver } => (4, [receiver, 0, 0, 0]),
            Kind::Credit => (5, [0; 4]),
        };
        let has_data = if self.label.data.is_some() { HAS_DATA } else { 0 };
        into[..2].copy_from_slice(&[kind, self.label.space as u8 | has_data]);
        into[2..4].copy_from_slice(&self.credits.to_le_bytes());
        into[4..8].copy_from_slice(&self.source.to_le_bytes());
        into[8..16].copy_from_slice(&self.label.tag.to_le_bytes());
        if let Some(data) = self.label.data {
            into[HEADER..HEADER + DATA].copy_from_slice(&data.to_le_bytes());
        }
        let (at, length) = (Header::before(&self.label), self.length());
        for (word, place) in words.iter().zip(into[at..length].chunks_exact_mut(8)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// The header and the message; `None` for anything malformed.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<(Header, &[u8])> {
        if bytes.len() < HEADER {
            return None;
        }
        let space = Space::from_wire(bytes[1] & !HAS_DATA)?;
        let has_data = bytes[1] & HAS_DATA != 0;
        let at = if has_data { HEADER + DATA } else { HEADER };
        if bytes.len() < at {
            return None;
        }
        let label = Label::new(space, u64_at(bytes, 8), has_data.then(|| u64_at(bytes, HEADER)));
        let word = |nth: usize| u64_at(bytes, at + 8 * nth);
        let exactly = |words: usize| (bytes.len() == at + 8 * words).then_some(());
        let kind = match bytes[0] {
            1 => Kind::Eager,
            2 => {
                exactly(2)?;
                Kind::RequestToSend { length: word(0), sender: word(1) }
            }
            3 => {
                exactly(4)?;
                Kind::ClearToSend { sender: word(0), receiver: word(1), key: word(2), length: word(3) }
            }
            4 => {
                exactly(1)?;
                Kind::Finished { receiver: word(0) }
            }
            5 => {
                exactly(0)?;
                Kind::Credit
            }
            _ => return None,
        };
        let header = Header {
            kind,
            credits: u16::from_le_bytes([bytes[2], bytes[3]]),
            source: u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes")),
            label,
        };
        Some((header, &bytes[header.length()..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Header::parse(&bytes);
        }

        #[test]
        fn headers_read_back_as_written(kind in 0..5, credits: u16, source: u32, tag: u64, data: Option<u64>, space in 0u8..4, a: u64, b: u64, c: u64, d: u64) {
            let kind = match kind {
                0 => Kind::Eager,
                1 => Kind::RequestToSend { length: a, sender: b },
                2 => Kind::ClearToSend { sender: a, receiver: b, key: c, length: d },
                3 => Kind::Finished { receiver: a },
                _ => Kind::Credit,
            };
            let space = Space::from_wire(space).unwrap();
            let header = Header { kind, credits, source, label: Label::new(space, tag, data) };
            let mut bytes = vec![0xAA; header.length()];
            header.write(&mut bytes);
            prop_assert!(bytes.len() <= LONGEST);
            prop_assert_eq!(Header::parse(&bytes), Some((header, &[][..])));
        }
    }
}
