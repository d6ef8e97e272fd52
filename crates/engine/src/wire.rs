//! Packets as bytes, little-endian. No field of a packet is trusted before it was checked.

use crate::tag::{Label, Space};

/// Largest header of the message layer.
pub const LARGEST_HEADER: usize = 48;
/// Header that goes before the message layer's on unreliable ports.
pub const RELIABILITY_HEADER: usize = 24;

/// Length of an eager header without and with 64 bits of data.
pub(crate) const EAGER_HEADER: usize = 16;
pub(crate) const EAGER_DATA_HEADER: usize = 24;
pub(crate) const MORE_HEADER: usize = 8;
pub(crate) const REQUEST_HEADER: usize = 48;
pub(crate) const CLEAR_HEADER: usize = 24;
pub(crate) const DATA_HEADER: usize = 16;
pub(crate) const DONE_HEADER: usize = 16;
pub(crate) const CREDIT_HEADER: usize = 16;
pub(crate) const WITHDRAWN_HEADER: usize = 16;

const EAGER: u8 = 1;
const MORE: u8 = 2;
const REQUEST: u8 = 3;
const CLEAR: u8 = 4;
const DATA: u8 = 5;
const DONE: u8 = 6;
const CREDIT: u8 = 7;
const WITHDRAWN: u8 = 8;

/// Flag in the third byte of a packet with a label: 64 bits of data follow.
const HAS_DATA: u8 = 1;
/// Flag in the same byte of a request.
const FAST: u8 = 2;
/// Flag in the second byte of a credit packet.
const ANNOUNCE: u8 = 1;

#[inline]
pub(crate) fn eager_header(label: &Label) -> usize {
    EAGER_HEADER + usize::from(label.data.is_some()) * (EAGER_DATA_HEADER - EAGER_HEADER)
}

/// One packet of the message layer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Packet<'a> {
    /// A message sent at once; `payload` is its start, `More` packets bring the rest.
    Eager { label: Label, length: u32, payload: &'a [u8] },
    /// The next bytes of the eager message in progress.
    More { payload: &'a [u8] },
    /// A message waits at the sender (request to send); `address` is where, 0 if it cannot be read from outside.
    Request { label: Label, length: u64, sender: u64, address: u64, fast: bool },
    /// The receiver is ready (clear to send).
    Clear { sender: u64, receiver: u64 },
    /// The next bytes of a rendezvous message.
    Data { receiver: u64, payload: &'a [u8] },
    /// The receiver has read the message out of the sender's memory.
    Done { sender: u64 },
    /// Messages and bytes that have left the unexpected queue. `announce`: until the next credit packet the peer is to
    /// announce messages that it has no credit for the bytes of.
    Credit { messages: u32, bytes: u64, announce: bool },
    /// The sender has taken a rendezvous message back: no more of its bytes come.
    Withdrawn { receiver: u64 },
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[inline]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The flag in the first word of a header.
const HAS_DATA_BIT: u64 = (HAS_DATA as u64) << 16;

/// The first word of an eager message's header.
#[inline(always)]
fn eager_word(space: u64, has_data: bool, length: u32) -> u64 {
    u64::from(EAGER) | space << 8 | (u64::from(has_data) * HAS_DATA_BIT) | u64::from(length) << 32
}

/// Writes the header of an eager message of `length` bytes into the whole of `head`.
#[inline(always)]
pub(crate) fn write_eager(label: &Label, length: u32, head: &mut [u8]) {
    let word = eager_word(label.space as u64, label.data.is_some(), length);
    head[..8].copy_from_slice(&word.to_le_bytes());
    head[8..16].copy_from_slice(&label.tag.to_le_bytes());
    if let Some(data) = label.data {
        head[16..24].copy_from_slice(&data.to_le_bytes());
    }
}

/// The label and the bytes of an eager message that is whole in this packet; `None` for any other packet.
#[inline(always)]
pub(crate) fn short(bytes: &[u8]) -> Option<(Label, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<EAGER_HEADER>()?;
    let word = u64_at(head, 0);
    let (data, payload) = if word & HAS_DATA_BIT == 0 {
        (None, rest)
    } else {
        let (data, payload) = rest.split_first_chunk()?;
        (Some(u64::from_le_bytes(*data)), payload)
    };
    if word & !(3 << 8) != eager_word(0, data.is_some(), payload.len() as u32) {
        return None;
    }
    let space = Space::from_wire((word >> 8) as u8 & 3)?;
    Some((Label { space, tag: u64_at(head, 8), data }, payload))
}

impl<'a> Packet<'a> {
    /// `None` for anything malformed.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Option<Packet<'a>> {
        let at_least = |n: usize| (bytes.len() >= n).then_some(());
        let exactly = |n: usize| (bytes.len() == n).then_some(());
        Some(match *bytes.first()? {
            EAGER => {
                at_least(EAGER_HEADER)?;
                let (header, data) = match bytes[2] {
                    0 => (EAGER_HEADER, None),
                    HAS_DATA => {
                        at_least(EAGER_DATA_HEADER)?;
                        (EAGER_DATA_HEADER, Some(u64_at(bytes, 16)))
                    }
                    _ => return None,
                };
                let (length, payload) = (u32_at(bytes, 4), &bytes[header..]);
                (payload.len() <= length as usize).then_some(())?;
                let label = Label { space: Space::from_wire(bytes[1])?, tag: u64_at(bytes, 8), data };
                Packet::Eager { label, length, payload }
            }
            MORE => {
                at_least(MORE_HEADER + 1)?;
                Packet::More { payload: &bytes[MORE_HEADER..] }
            }
            REQUEST => {
                exactly(REQUEST_HEADER)?;
                let flags = bytes[2];
                if flags & !(HAS_DATA | FAST) != 0 {
                    return None;
                }
                let data = (flags & HAS_DATA != 0).then(|| u64_at(bytes, 40));
                Packet::Request {
                    label: Label { space: Space::from_wire(bytes[1])?, tag: u64_at(bytes, 8), data },
                    length: u64_at(bytes, 16),
                    sender: u64_at(bytes, 24),
                    address: u64_at(bytes, 32),
                    fast: flags & FAST != 0,
                }
            }
            CLEAR => {
                exactly(CLEAR_HEADER)?;
                Packet::Clear { sender: u64_at(bytes, 8), receiver: u64_at(bytes, 16) }
            }
            DATA => {
                at_least(DATA_HEADER + 1)?;
                Packet::Data { receiver: u64_at(bytes, 8), payload: &bytes[DATA_HEADER..] }
            }
            DONE => {
                exactly(DONE_HEADER)?;
                Packet::Done { sender: u64_at(bytes, 8) }
            }
            CREDIT => {
                exactly(CREDIT_HEADER)?;
                let announce = match bytes[1] {
                    0 => false,
                    ANNOUNCE => true,
                    _ => return None,
                };
                Packet::Credit { messages: u32_at(bytes, 4), bytes: u64_at(bytes, 8), announce }
            }
            WITHDRAWN => {
                exactly(WITHDRAWN_HEADER)?;
                Packet::Withdrawn { receiver: u64_at(bytes, 8) }
            }
            _ => return None,
        })
    }

    #[inline]
    pub fn length(&self) -> usize {
        match self {
            Packet::Eager { label, payload, .. } => eager_header(label) + payload.len(),
            Packet::More { payload } => MORE_HEADER + payload.len(),
            Packet::Request { .. } => REQUEST_HEADER,
            Packet::Clear { .. } => CLEAR_HEADER,
            Packet::Data { payload, .. } => DATA_HEADER + payload.len(),
            Packet::Done { .. } => DONE_HEADER,
            Packet::Credit { .. } => CREDIT_HEADER,
            Packet::Withdrawn { .. } => WITHDRAWN_HEADER,
        }
    }

    /// Writes the packet into the whole of `into`, whose length is [`Packet::length`].
    #[inline]
    pub fn write(&self, into: &mut [u8]) {
        let marks = |into: &mut [u8], label: &Label| {
            into[1] = label.space as u8;
            into[2] = if label.data.is_some() { HAS_DATA } else { 0 };
        };
        let head = |into: &mut [u8], kind: u8, word: u32| {
            into[..4].copy_from_slice(&[kind, 0, 0, 0]);
            into[4..8].copy_from_slice(&word.to_le_bytes());
        };
        let put = |into: &mut [u8], at: usize, value: u64| into[at..at + 8].copy_from_slice(&value.to_le_bytes());
        match *self {
            Packet::Eager { label, length, payload } => {
                write_eager(&label, length, into);
                into[eager_header(&label)..].copy_from_slice(payload);
            }
            Packet::More { payload } => {
                head(into, MORE, 0);
                into[MORE_HEADER..].copy_from_slice(payload);
            }
            Packet::Request { label, length, sender, address, fast } => {
                head(into, REQUEST, 0);
                marks(into, &label);
                into[2] |= if fast { FAST } else { 0 };
                put(into, 8, label.tag);
                put(into, 16, length);
                put(into, 24, sender);
                put(into, 32, address);
                put(into, 40, label.data.unwrap_or(0));
            }
            Packet::Clear { sender, receiver } => {
                head(into, CLEAR, 0);
                put(into, 8, sender);
                put(into, 16, receiver);
            }
            Packet::Data { receiver, payload } => {
                head(into, DATA, 0);
                put(into, 8, receiver);
                into[DATA_HEADER..].copy_from_slice(payload);
            }
            Packet::Done { sender } => {
                head(into, DONE, 0);
                put(into, 8, sender);
            }
            Packet::Credit { messages, bytes, announce } => {
                head(into, CREDIT, messages);
                into[1] = if announce { ANNOUNCE } else { 0 };
                put(into, 8, bytes);
            }
            Packet::Withdrawn { receiver } => {
                head(into, WITHDRAWN, 0);
                put(into, 8, receiver);
            }
        }
    }
}

/// The header before a packet on an unreliable port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sequencing {
    pub session: u32,
    /// Number of the packet that follows; of the next one if none does.
    pub sequence: u32,
    /// The first packet not yet received.
    pub expected: u32,
    /// Bit i: packet `expected + 1 + i` was received.
    pub beyond: u64,
    /// Whether a packet follows.
    pub carries: bool,
    /// Whether the receiver should acknowledge without waiting for more packets.
    pub ping: bool,
    /// Whether the port has already acknowledged this packet and all before it. The receiving port sets it; a peer that
    /// sets it hurts itself alone.
    pub acknowledged: bool,
}

const CARRIES: u16 = 1;
const PING: u16 = 2;
const ACKNOWLEDGED: u16 = 4;

impl Sequencing {
    /// The header and the packet that follows. The header says how long that is: a program at the driver hook may see
    /// several packets that the kernel will cut apart later, and takes them for one.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<(Sequencing, &[u8])> {
        if bytes.len() < RELIABILITY_HEADER {
            return None;
        }
        let (flags, length) = (u16_at(bytes, 12), u16_at(bytes, 14));
        let rest = &bytes[RELIABILITY_HEADER..];
        let carries = flags & CARRIES != 0;
        if flags & !(CARRIES | PING | ACKNOWLEDGED) != 0
            || carries == rest.is_empty()
            || rest.len() != usize::from(length)
        {
            return None;
        }
        let header = Sequencing {
            session: u32_at(bytes, 0),
            sequence: u32_at(bytes, 4),
            expected: u32_at(bytes, 8),
            beyond: u64_at(bytes, 16),
            carries,
            ping: flags & PING != 0,
            acknowledged: flags & ACKNOWLEDGED != 0,
        };
        Some((header, rest))
    }

    /// Writes the header; `length` is that of the packet that follows, 0 if none does.
    #[inline]
    pub fn write(&self, into: &mut [u8], length: usize) {
        debug_assert_eq!(self.carries, length > 0);
        let flag = |set: bool, flag: u16| if set { flag } else { 0 };
        let flags = flag(self.carries, CARRIES) | flag(self.ping, PING) | flag(self.acknowledged, ACKNOWLEDGED);
        into[0..4].copy_from_slice(&self.session.to_le_bytes());
        into[4..8].copy_from_slice(&self.sequence.to_le_bytes());
        into[8..12].copy_from_slice(&self.expected.to_le_bytes());
        into[12..14].copy_from_slice(&flags.to_le_bytes());
        into[14..16].copy_from_slice(&(length as u16).to_le_bytes());
        into[16..24].copy_from_slice(&self.beyond.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn label(tag: u64, data: u64) -> Label {
        let space = Space::from_wire((data % 4) as u8).expect("four spaces");
        Label { space, tag, data: data.is_multiple_of(3).then_some(data) }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Packet::parse(&bytes);
            let _ = Sequencing::parse(&bytes);
        }

        #[test]
        fn packets_read_back_as_written(kind in 0..8, a: u64, b: u64, c: u64, d: u64, payload in proptest::collection::vec(any::<u8>(), 1..64)) {
            let payload = &payload[..];
            let packet = match kind {
                0 => Packet::Eager { label: label(a, c), length: payload.len() as u32 + (b as u32 >> 8), payload },
                1 => Packet::More { payload },
                2 => Packet::Request { label: label(a, d), length: b, sender: c, address: d, fast: b % 2 == 0 },
                3 => Packet::Clear { sender: a, receiver: b },
                4 => Packet::Data { receiver: a, payload },
                5 => Packet::Done { sender: a },
                6 => Packet::Withdrawn { receiver: a },
                _ => Packet::Credit { messages: a as u32, bytes: b, announce: c.is_multiple_of(2) },
            };
            let mut bytes = vec![0xAA; packet.length()];
            packet.write(&mut bytes);
            prop_assert_eq!(Packet::parse(&bytes), Some(packet));
        }

        #[test]
        fn sequencing_reads_back_as_written(session: u32, sequence: u32, expected: u32, beyond: u64, carries: bool, ping: bool, acknowledged: bool) {
            let header = Sequencing { session, sequence, expected, beyond, carries, ping, acknowledged };
            let mut bytes = vec![0; RELIABILITY_HEADER + usize::from(carries)];
            header.write(&mut bytes, carries.into());
            prop_assert_eq!(Sequencing::parse(&bytes).map(|(header, _)| header), Some(header));
            // With bytes beyond the stated length.
            bytes.extend_from_within(..);
            prop_assert_eq!(Sequencing::parse(&bytes), None);
        }
    }
}
