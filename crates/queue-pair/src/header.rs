//! What goes before each message of the MPI layer: kind, credits going back, source and tag to match by; the tag's 64
//! bits hold the communicator's context too, as the engine's users have it.

/// Without what rendezvous adds.
pub(crate) const HEADER: usize = 16;
/// The longest.
pub(crate) const LONGEST: usize = 48;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The message follows.
    Eager,
    /// A message of this length waits at the sender (RTS).
    RequestToSend { length: u64, sender: u64 },
    /// The receiver's buffer is registered under this key, for so many bytes (CTS).
    ClearToSend { sender: u64, receiver: u64, key: u64, length: u64 },
    /// The bytes were written (FIN).
    Finished { receiver: u64 },
    /// Nothing but credits.
    Credit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: Kind,
    /// Receives posted anew for the peer.
    pub credits: u16,
    /// The sender, as the receiver numbers it.
    pub source: u32,
    pub tag: u64,
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Header {
    #[inline]
    pub fn length(&self) -> usize {
        HEADER
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
        into[..2].copy_from_slice(&[kind, 0]);
        into[2..4].copy_from_slice(&self.credits.to_le_bytes());
        into[4..8].copy_from_slice(&self.source.to_le_bytes());
        into[8..16].copy_from_slice(&self.tag.to_le_bytes());
        let length = self.length();
        for (word, place) in words.iter().zip(into[HEADER..length].chunks_exact_mut(8)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// The header and the message; `None` for anything malformed.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<(Header, &[u8])> {
        if bytes.len() < HEADER || bytes[1] != 0 {
            return None;
        }
        let word = |at: usize| u64_at(bytes, HEADER + 8 * at);
        let exactly = |words: usize| (bytes.len() == HEADER + 8 * words).then_some(());
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
            tag: u64_at(bytes, 8),
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
        fn headers_read_back_as_written(kind in 0..5, credits: u16, source: u32, tag: u64, a: u64, b: u64, c: u64, d: u64) {
            let kind = match kind {
                0 => Kind::Eager,
                1 => Kind::RequestToSend { length: a, sender: b },
                2 => Kind::ClearToSend { sender: a, receiver: b, key: c, length: d },
                3 => Kind::Finished { receiver: a },
                _ => Kind::Credit,
            };
            let header = Header { kind, credits, source, tag };
            let mut bytes = vec![0xAA; header.length()];
            header.write(&mut bytes);
            prop_assert!(bytes.len() <= LONGEST);
            prop_assert_eq!(Header::parse(&bytes), Some((header, &[][..])));
        }
    }
}
