//! What crosses the border of a sandbox: records in the guest's memory, events on the way in, actions on the way out.
//!
//! `docs/wasm-abi.md` specifies it for authors in any language. Here is the one codec that both sides use: the host to
//! write events and to read actions, [`crate::guest`] for the opposite. Every number is little endian.

use std::fmt;

/// The version that a guest states in its descriptor. Since version 4 a guest may refuse an attribute.
pub const VERSION: u32 = 4;
/// The oldest version that hosts take.
pub const OLDEST: u32 = 1;
/// The first version with [`Event::Save`] and [`Event::Restore`].
pub const WITH_STATE: u32 = 2;
/// The first version with timers and shared words ([`crate::service`]).
pub const WITH_SERVICES: u32 = 3;
/// The first version with keyed maps ([`crate::map`]).
pub const WITH_MAPS: u32 = 4;

/// Bound of channel numbers: those that stand for a peer ([`crate::ChannelId::peer`]) are above.
pub const CHANNELS: usize = 64;

/// Entry of the room table for a channel that does not exist or has lost its other end.
pub const GONE: u32 = u32::MAX;

/// The index into the room table for a channel number: the number itself, or, where it stands for a peer
/// ([`crate::ChannelId::peer`]), that of the out-of-band channel.
#[inline]
pub const fn line(channel: u32) -> u32 {
    if channel >> 31 == 1 { 0 } else { channel }
}

/// Bytes before the first record of the input area: `now` (u64, ns), the number of valid entries of the room table
/// (u32), 4 unused bytes, and the table itself, u32 each.
pub const HEAD: usize = 16 + 4 * CHANNELS;

/// Export that the host calls first; it returns the address of the [`Descriptor`] in the guest's `memory`.
pub const DESCRIBE: &str = "offcode_describe";
/// Export that the host calls with the length of its events; it returns that of the actions.
pub const HANDLE: &str = "offcode_handle";

/// The header of a record: 16 bytes. Its payload follows, padded to 8 bytes.
///
/// ```text
///  0      2        4        8         12   16
///  | kind | detail | length | channel | id | payload ...
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Record {
    /// [`Event`] or [`Action`], by the area it is in.
    pub kind: u16,
    /// Meaning depends on the kind.
    pub detail: u16,
    /// Bytes of the payload, without padding.
    pub length: u32,
    /// Channel that the record is about, as [`crate::ChannelId`] numbers it.
    pub channel: u32,
    /// Number of the call that the record is about.
    pub id: u32,
}

/// Kinds of records in the input area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Event {
    /// [`crate::Offcode::initialize`].
    Initialize = 1,
    /// [`crate::Offcode::start`].
    Start = 2,
    /// Detail: the method. Payload: the interface ([`crate::Guid::short`], u64), then the arguments.
    Call = 3,
    /// The answer to the call with this channel and id. Detail: 1 where the payload is the result, 0 where it is a
    /// sentence that says why there is none.
    Answered = 4,
    /// Payload: the channel's name. Detail: 1 where the offcode is to be told that it was attached, 0 to take note only.
    Channel = 5,
    /// Payload: a message that arrived on `channel`.
    Message = 6,
    /// [`crate::Offcode::turn`].
    Turn = 7,
    /// Payload: length of the name (u32), name, value. Detail: as for `Channel`. One that is told may be refused.
    Attribute = 8,
    /// [`crate::Offcode::stop`].
    Stop = 9,
    /// [`crate::Offcode::save`], in parts. Id: from which byte of the [`crate::State`] on; 0 is the first.
    Save = 10,
    /// [`crate::Offcode::restore`], in parts. Payload: the next bytes of the [`crate::State`]. Detail: 1 with the last.
    Restore = 11,
    /// [`crate::Offcode::timer`]. Id: the timer's number.
    Timer = 12,
    /// Words as they are now, from the first on. Payload: length of the name (u32), name, zeros up to a multiple of 8
    /// bytes, words. Comes before all other events but those of kind `Channel` and `Attribute`, as often as it is needed.
    Words = 13,
}

impl Event {
    /// The event that a record's kind stands for, if there is one.
    #[inline]
    pub fn from_kind(kind: u16) -> Option<Event> {
        Some(match kind {
            1 => Event::Initialize,
            2 => Event::Start,
            3 => Event::Call,
            4 => Event::Answered,
            5 => Event::Channel,
            6 => Event::Message,
            7 => Event::Turn,
            8 => Event::Attribute,
            9 => Event::Stop,
            10 => Event::Save,
            11 => Event::Restore,
            12 => Event::Timer,
            13 => Event::Words,
            _ => return None,
        })
    }
}

/// Kinds of records in the output area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Action {
    /// Payload: a message for `channel`.
    Write = 1,
    /// Payload: a line of UTF-8.
    Log = 2,
    /// Payload: the result of the call.
    Reply = 3,
    /// Payload: a sentence. Answers a call, refuses an attribute, or fails `initialize`, `start`, `save` or `restore`.
    Refuse = 4,
    /// The turn found work.
    Worked = 5,
    /// Payload: the next bytes of the state; empty once all have been sent.
    State = 6,
    /// Sets the timer of number id. Payload: at (u64), every (u64), as [`crate::Wake`] has them.
    Timer = 7,
    /// Shares words. Id: how many. Payload: their name.
    Share = 8,
    /// Stores into shared words. Id: the number of the first. Channel: which, in the order in which they were shared. Payload: the values.
    Store = 9,
    /// Wants a copy of words from the next entry on. Id: how many, from the first on. Payload: their name.
    Load = 10,
    /// Says where a map lies in the guest's memory, as long as the guest lives ([`crate::map`] says how). Id: how many entries it
    /// takes. Payload: bytes of a key, bytes of a value, address (u32 each), its name.
    Map = 11,
}

impl Action {
    /// The action that a record's kind stands for, if there is one.
    #[inline]
    pub fn from_kind(kind: u16) -> Option<Action> {
        Some(match kind {
            1 => Action::Write,
            2 => Action::Log,
            3 => Action::Reply,
            4 => Action::Refuse,
            5 => Action::Worked,
            6 => Action::State,
            7 => Action::Timer,
            8 => Action::Share,
            9 => Action::Store,
            10 => Action::Load,
            11 => Action::Map,
            _ => return None,
        })
    }
}

/// Where the words begin in the payload of [`Event::Words`], whose name has so many bytes.
#[inline]
pub const fn words_at(name: usize) -> usize {
    (4 + name).next_multiple_of(8)
}

impl Record {
    /// Bytes before the payload.
    pub const LENGTH: usize = 16;

    /// Bytes that a record with a payload of `length` bytes takes.
    #[inline]
    pub const fn span(length: usize) -> usize {
        Self::LENGTH + length.next_multiple_of(8)
    }

    /// Writes the record with a payload made of `parts` at `at`; the position after it, or `None` where it does not fit.
    /// `length` is set here.
    #[inline]
    pub fn put(mut self, area: &mut [u8], at: usize, parts: &[&[u8]]) -> Option<usize> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.length = u32::try_from(length).ok()?;
        let end = at.checked_add(Self::span(length))?;
        let (head, mut payload) = area.get_mut(at..end)?.split_first_chunk_mut::<{ Self::LENGTH }>()?;
        head[0..2].copy_from_slice(&self.kind.to_le_bytes());
        head[2..4].copy_from_slice(&self.detail.to_le_bytes());
        head[4..8].copy_from_slice(&self.length.to_le_bytes());
        head[8..12].copy_from_slice(&self.channel.to_le_bytes());
        head[12..16].copy_from_slice(&self.id.to_le_bytes());
        for part in parts {
            let (here, rest) = payload.split_at_mut(part.len());
            here.copy_from_slice(part);
            payload = rest;
        }
        Some(end)
    }
}

/// Iterates over the records of an area, in order; the first that is malformed is the last.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    area: &'a [u8],
    at: usize,
}

impl<'a> Records<'a> {
    /// The records from the area's first byte on.
    pub fn of(area: &'a [u8]) -> Self {
        Records { area, at: 0 }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<(Record, &'a [u8]), Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.area[self.at..];
        if rest.is_empty() {
            return None;
        }
        let at = std::mem::replace(&mut self.at, self.area.len());
        let Some((head, body)) = rest.split_first_chunk::<{ Record::LENGTH }>() else {
            return Some(Err(Malformed { at, why: Why::Truncated { left: rest.len() } }));
        };
        let word = |i: usize| u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
        let record = Record {
            kind: u16::from_le_bytes([head[0], head[1]]),
            detail: u16::from_le_bytes([head[2], head[3]]),
            length: word(4),
            channel: word(8),
            id: word(12),
        };
        let length = record.length as usize;
        if length.checked_next_multiple_of(8).is_none_or(|padded| padded > body.len()) {
            return Some(Err(Malformed { at, why: Why::TooLong { length: record.length, left: body.len() } }));
        }
        self.at = at + Record::span(length);
        Some(Ok((record, &body[..length])))
    }
}

/// Why an area does not decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed {
    /// Position of the record in the area.
    pub at: usize,
    /// What is wrong with it.
    pub why: Why,
}

/// What is wrong with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The area ends inside the record's header.
    Truncated {
        /// Bytes that are there.
        left: usize,
    },
    /// The area ends inside the payload that the header states.
    TooLong {
        /// Length of the payload, as stated.
        length: u32,
        /// Bytes that are there after the header.
        left: usize,
    },
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at;
        match self.why {
            Why::Truncated { left } => write!(f, "the record at byte {at} has {left} of {} bytes", Record::LENGTH),
            Why::TooLong { length, left } => {
                write!(f, "the record at byte {at} states a payload of {length} bytes where {left} are left")
            }
        }
    }
}

/// Where a guest keeps what the host reads and writes. [`DESCRIBE`] returns its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Descriptor {
    /// [`VERSION`] of the guest.
    pub version: u32,
    /// The input area, 8 bytes aligned: address and size.
    pub input: [u32; 2],
    /// The output area, 8 bytes aligned.
    pub output: [u32; 2],
    /// Where the guest leaves a sentence before it traps: a length (u32), then UTF-8. Size 0: nowhere.
    pub last_words: [u32; 2],
    /// GUIDs of the interfaces that it serves, 16 bytes each: address and number of them.
    pub interfaces: [u32; 2],
}

impl Descriptor {
    /// Bytes of a descriptor in the guest's memory.
    pub const LENGTH: usize = 36;

    /// The descriptor as the words that lie in the guest's memory.
    pub fn to_words(self) -> [u32; Self::LENGTH / 4] {
        let Descriptor { version, input, output, last_words, interfaces } = self;
        [version, input[0], input[1], output[0], output[1], last_words[0], last_words[1], interfaces[0], interfaces[1]]
    }

    /// The descriptor that these bytes of the guest's memory hold.
    pub fn read(bytes: &[u8; Self::LENGTH]) -> Self {
        let word = |i: usize| u32::from_le_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]]);
        Descriptor {
            version: word(0),
            input: [word(1), word(2)],
            output: [word(3), word(4)],
            last_words: [word(5), word(6)],
            interfaces: [word(7), word(8)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_put_is_read(payloads in prop::collection::vec(
            (any::<(u16, u16, u32, u32)>(), prop::collection::vec(any::<u8>(), 0..100)), 0..20)
        ) {
            let mut area = vec![0xAA; 4096];
            let mut end = 0;
            for ((kind, detail, channel, id), payload) in &payloads {
                let record = Record { kind: *kind, detail: *detail, length: 0, channel: *channel, id: *id };
                let (front, back) = payload.split_at(payload.len() / 2);
                end = record.put(&mut area, end, &[front, back]).unwrap();
            }
            let read: Vec<_> = Records::of(&area[..end]).map(Result::unwrap).collect();
            prop_assert_eq!(read.len(), payloads.len());
            for ((record, body), ((kind, detail, channel, id), payload)) in read.iter().zip(&payloads) {
                prop_assert_eq!((record.kind, record.detail, record.channel, record.id), (*kind, *detail, *channel, *id));
                prop_assert_eq!(*body, payload.as_slice());
            }
        }

        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut payloads = 0;
            for (i, record) in Records::of(&bytes).enumerate() {
                prop_assert!(i * Record::LENGTH <= bytes.len());
                payloads += record.map_or(0, |(_, payload)| payload.len());
            }
            prop_assert!(payloads <= bytes.len());
        }
    }

    #[test]
    fn a_record_that_does_not_fit_leaves_the_area_alone() {
        let mut area = [7; 24];
        assert_eq!(Record::default().put(&mut area, 0, &[&[1; 9]]), None);
        assert_eq!(area, [7; 24]);
        assert_eq!(Record::default().put(&mut area, 0, &[&[1; 8]]), Some(24));
        assert_eq!(Record::default().put(&mut area, usize::MAX, &[]), None);
    }
}
