//! Messages of a rank and its node's engine: little-endian packets over a pair of shared-memory rings. Neither trusts what it
//! reads: anything malformed is `None`.

use engine::{Claim, Direction, Envelope, Label, Source, Space, Status, TagSelector};
use machine::{Fault, PeerIndex};

use crate::name::Name;

/// The only peer of either end of the rings.
pub(super) const OTHER: PeerIndex = PeerIndex(0);
/// Most events that a rank takes per poll.
pub(super) const EVENTS: usize = 32;
/// Payload that travels inside a command or an event; longer messages are read and written where they lie.
pub(super) const INLINE: usize = 8 << 10;
/// Largest packet: an inline payload with its header, or text.
pub(super) const LARGEST: usize = INLINE + 64;

const DATA: u8 = 1;
const CONFIRMED: u8 = 2;
const INLINED: u8 = 4;
const ANY_SOURCE: u8 = 8;
const SENT: u8 = 16;

/// Where a message lies: in the packet, or in the rank's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place<'a> {
    Here(&'a [u8]),
    There { address: u64, length: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command<'a> {
    Send {
        peer: PeerIndex,
        label: Label,
        confirmed: bool,
        ticket: u64,
        place: Place<'a>,
    },
    Receive {
        source: Source,
        selector: Wanted,
        ticket: u64,
        address: u64,
        length: u64,
    },
    Cancel {
        ticket: u64,
    },
    Probe {
        source: Source,
        selector: Wanted,
    },
    Claim {
        source: Source,
        selector: Wanted,
    },
    ReceiveClaimed {
        claim: Claim,
        ticket: u64,
        address: u64,
        length: u64,
    },
    Discard {
        claim: Claim,
    },
    Insert {
        name: Name,
    },
    Report,
    IsQuiet,
    IsFlushed,
    /// Asks that the memory of this request be touched no more.
    TakeBack {
        ticket: u64,
    },
    /// Asks that no memory of the leaving rank be touched any more. The answer is the end of the rings.
    Leave,
}

/// The parts of a [`TagSelector`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    pub space: Space,
    pub tag: u64,
    pub mask: u64,
}

impl From<TagSelector> for Wanted {
    fn from(selector: TagSelector) -> Self {
        Wanted { space: selector.space(), tag: selector.tag(), mask: selector.mask() }
    }
}

impl From<Wanted> for TagSelector {
    fn from(wanted: Wanted) -> Self {
        TagSelector::masked(wanted.tag, wanted.mask).within(wanted.space)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event<'a> {
    Completed {
        ticket: u64,
        direction: Direction,
        envelope: Envelope,
        status: Status,
        payload: Option<&'a [u8]>,
    },
    /// The answer to a cancellation or a taken-back buffer.
    Cancelled(bool),
    /// The answer to a probe, and with `claim` to a claim.
    Found(Option<(Envelope, Option<Claim>)>),
    Inserted(PeerIndex),
    /// A report as JSON.
    Report(&'a [u8]),
    IsQuiet(bool),
    /// The engine has given this rank up; the cause as [`fault_parts`].
    Failed(&'a [u8]),
    /// A peer could not be reached; the cause as [`fault_parts`].
    Lost {
        peer: PeerIndex,
        fault: &'a [u8],
    },
}

/// A fault on its way to the rank: its parts as a JSON list.
pub(super) fn fault_parts(fault: &Fault) -> Vec<u8> {
    serde_json::to_vec(&[fault.subject(), fault.cause(), fault.next()]).unwrap_or_default()
}

pub(super) fn fault_of(parts: &[u8]) -> Fault {
    match serde_json::from_slice::<[String; 3]>(parts) {
        Ok([subject, cause, next]) => Fault::new(subject, cause, next),
        Err(_) => no_event(),
    }
}

#[cold]
pub(super) fn no_event() -> Fault {
    Fault::new("node's engine", "it said what is no event", "start both from the same build")
}

fn space(byte: u8) -> Option<Space> {
    [Space::Tagged, Space::Message, Space::Remote, Space::RemoteData].into_iter().find(|&space| space as u8 == byte)
}

/// Reads words from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

/// A packet in the rings.
pub(super) trait Record {
    fn put(&self, out: &mut Writer);

    #[inline]
    fn length(&self) -> usize {
        let mut count = Writer { into: None, at: 0 };
        self.put(&mut count);
        count.at
    }

    /// Writes the record into the whole of `into`, whose length is [`Record::length`].
    #[inline]
    fn write(&self, into: &mut [u8]) {
        self.put(&mut Writer { into: Some(into), at: 0 });
    }
}

/// Writes words at the front of a packet's memory, or only counts them.
pub(super) struct Writer<'a> {
    into: Option<&'a mut [u8]>,
    at: usize,
}

impl Writer<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        if let Some(into) = &mut self.into {
            into[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        }
        self.at += bytes.len();
    }

    fn head(&mut self, kind: u8, space: Space, flags: u8, last: u8, word: u32) {
        self.bytes(&[kind, space as u8, flags, last]);
        self.u32(word);
    }

    fn u32(&mut self, word: u32) {
        self.bytes(&word.to_le_bytes());
    }

    fn u64(&mut self, word: u64) {
        self.bytes(&word.to_le_bytes());
    }
}

fn source_of(flags: u8, peer: u32) -> Source {
    if flags & ANY_SOURCE != 0 { Source::Any } else { Source::Peer(PeerIndex(peer)) }
}

fn source_parts(source: Source) -> (u8, u32) {
    match source {
        Source::Any => (ANY_SOURCE, 0),
        Source::Peer(peer) => (0, peer.0),
    }
}

impl Record for Command<'_> {
    fn put(&self, out: &mut Writer) {
        match *self {
            Command::Send { peer, label, confirmed, ticket, place } => {
                let flags = if label.data.is_some() { DATA } else { 0 }
                    | if confirmed { CONFIRMED } else { 0 }
                    | if matches!(place, Place::Here(_)) { INLINED } else { 0 };
                out.head(1, label.space, flags, 0, peer.0);
                out.u64(ticket);
                out.u64(label.tag);
                if let Some(data) = label.data {
                    out.u64(data);
                }
                match place {
                    Place::Here(bytes) => out.bytes(bytes),
                    Place::There { address, length } => {
                        out.u64(address);
                        out.u64(length);
                    }
                }
            }
            Command::Receive { source, selector, ticket, address, length } => {
                let (flags, peer) = source_parts(source);
                out.head(2, selector.space, flags, 0, peer);
                for word in [ticket, selector.tag, selector.mask, address, length] {
                    out.u64(word);
                }
            }
            Command::Cancel { ticket } => {
                out.head(3, Space::Tagged, 0, 0, 0);
                out.u64(ticket);
            }
            Command::Probe { source, selector } | Command::Claim { source, selector } => {
                let (flags, peer) = source_parts(source);
                let kind = if matches!(self, Command::Probe { .. }) { 4 } else { 5 };
                out.head(kind, selector.space, flags, 0, peer);
                out.u64(selector.tag);
                out.u64(selector.mask);
            }
            Command::ReceiveClaimed { claim, ticket, address, length } => {
                out.head(6, Space::Tagged, 0, 0, 0);
                for word in [claim.to_bits(), ticket, address, length] {
                    out.u64(word);
                }
            }
            Command::Discard { claim } => {
                out.head(7, Space::Tagged, 0, 0, 0);
                out.u64(claim.to_bits());
            }
            Command::Insert { name } => {
                out.head(8, Space::Tagged, 0, 0, 0);
                out.bytes(name.as_bytes());
            }
            Command::Report => out.head(9, Space::Tagged, 0, 0, 0),
            Command::IsQuiet => out.head(10, Space::Tagged, 0, 0, 0),
            Command::IsFlushed => out.head(11, Space::Tagged, 0, 0, 0),
            Command::TakeBack { ticket } => {
                out.head(12, Space::Tagged, 0, 0, 0);
                out.u64(ticket);
            }
            Command::Leave => out.head(13, Space::Tagged, 0, 0, 0),
        }
    }
}

impl<'a> Command<'a> {
    pub fn parse(bytes: &'a [u8]) -> Option<Command<'a>> {
        let mut from = Reader(bytes);
        let [kind, in_space, flags, _] = from.take()?;
        let word = from.u32()?;
        let in_space = space(in_space)?;
        match kind {
            1 => {
                let (ticket, tag) = (from.u64()?, from.u64()?);
                let data = if flags & DATA != 0 { Some(from.u64()?) } else { None };
                let label = Label::new(in_space, tag, data);
                let (peer, confirmed) = (PeerIndex(word), flags & CONFIRMED != 0);
                if flags & INLINED != 0 {
                    return Some(Command::Send { peer, label, confirmed, ticket, place: Place::Here(from.0) });
                }
                let place = Place::There { address: from.u64()?, length: from.u64()? };
                from.end(Command::Send { peer, label, confirmed, ticket, place })
            }
            2 => {
                let ticket = from.u64()?;
                let selector = Wanted { space: in_space, tag: from.u64()?, mask: from.u64()? };
                let (address, length) = (from.u64()?, from.u64()?);
                from.end(Command::Receive { source: source_of(flags, word), selector, ticket, address, length })
            }
            3 => {
                let ticket = from.u64()?;
                from.end(Command::Cancel { ticket })
            }
            4 | 5 => {
                let source = source_of(flags, word);
                let selector = Wanted { space: in_space, tag: from.u64()?, mask: from.u64()? };
                from.end(match kind {
                    4 => Command::Probe { source, selector },
                    _ => Command::Claim { source, selector },
                })
            }
            6 => {
                let claim = Claim::from_bits(from.u64()?);
                let (ticket, address, length) = (from.u64()?, from.u64()?, from.u64()?);
                from.end(Command::ReceiveClaimed { claim, ticket, address, length })
            }
            7 => {
                let claim = Claim::from_bits(from.u64()?);
                from.end(Command::Discard { claim })
            }
            8 => Some(Command::Insert { name: Name::from_bytes(from.0).ok()? }),
            9 => from.end(Command::Report),
            10 => from.end(Command::IsQuiet),
            11 => from.end(Command::IsFlushed),
            12 => {
                let ticket = from.u64()?;
                from.end(Command::TakeBack { ticket })
            }
            13 => from.end(Command::Leave),
            _ => None,
        }
    }
}

fn status_byte(status: Status) -> u8 {
    match status {
        Status::Done => 0,
        Status::Truncated => 1,
        Status::Cancelled => 2,
        Status::PeerDead => 3,
        Status::Withdrawn => 4,
    }
}

fn envelope_words(out: &mut Writer, envelope: &Envelope) {
    out.u64(envelope.tag);
    out.u64(envelope.length);
    if let Some(data) = envelope.data {
        out.u64(data);
    }
}

fn read_envelope(from: &mut Reader, flags: u8, space: Space, peer: u32) -> Option<Envelope> {
    let (tag, length) = (from.u64()?, from.u64()?);
    let data = if flags & DATA != 0 { Some(from.u64()?) } else { None };
    Some(Envelope::new(PeerIndex(peer), Label::new(space, tag, data), length))
}

impl Record for Event<'_> {
    fn put(&self, out: &mut Writer) {
        let plain = Space::Tagged;
        match *self {
            Event::Completed { ticket, direction, envelope, status, payload } => {
                let flags = if envelope.data.is_some() { DATA } else { 0 }
                    | if direction == Direction::Send { SENT } else { 0 }
                    | if payload.is_some() { INLINED } else { 0 };
                out.head(1, envelope.space, flags, status_byte(status), envelope.peer.0);
                out.u64(ticket);
                envelope_words(out, &envelope);
                out.bytes(payload.unwrap_or(&[]));
            }
            Event::Cancelled(done) => out.head(2, plain, 0, u8::from(done), 0),
            Event::Found(None) => out.head(3, plain, 0, 0, 0),
            Event::Found(Some((envelope, claim))) => {
                let flags = if envelope.data.is_some() { DATA } else { 0 };
                out.head(3, envelope.space, flags, 1 + u8::from(claim.is_some()), envelope.peer.0);
                envelope_words(out, &envelope);
                if let Some(claim) = claim {
                    out.u64(claim.to_bits());
                }
            }
            Event::Inserted(peer) => out.head(4, plain, 0, 0, peer.0),
            Event::Report(json) => {
                out.head(5, plain, 0, 0, 0);
                out.bytes(json);
            }
            Event::IsQuiet(quiet) => out.head(6, plain, 0, u8::from(quiet), 0),
            Event::Failed(text) => {
                out.head(7, plain, 0, 0, 0);
                out.bytes(text);
            }
            Event::Lost { peer, fault } => {
                out.head(8, plain, 0, 0, peer.0);
                out.bytes(fault);
            }
        }
    }
}

impl<'a> Event<'a> {
    pub fn parse(bytes: &'a [u8]) -> Option<Event<'a>> {
        let mut from = Reader(bytes);
        let [kind, in_space, flags, last] = from.take()?;
        let word = from.u32()?;
        let in_space = space(in_space)?;
        match kind {
            1 => {
                let status = match last {
                    0 => Status::Done,
                    1 => Status::Truncated,
                    2 => Status::Cancelled,
                    3 => Status::PeerDead,
                    4 => Status::Withdrawn,
                    _ => return None,
                };
                let ticket = from.u64()?;
                let envelope = read_envelope(&mut from, flags, in_space, word)?;
                let direction = if flags & SENT != 0 { Direction::Send } else { Direction::Receive };
                let payload = (flags & INLINED != 0).then_some(from.0);
                if payload.is_none() && !from.0.is_empty() {
                    return None;
                }
                Some(Event::Completed { ticket, direction, envelope, status, payload })
            }
            2 => from.end(Event::Cancelled(last != 0)),
            3 if last == 0 => from.end(Event::Found(None)),
            3 => {
                let envelope = read_envelope(&mut from, flags, in_space, word)?;
                let claim = if last == 2 { Some(Claim::from_bits(from.u64()?)) } else { None };
                from.end(Event::Found(Some((envelope, claim))))
            }
            4 => from.end(Event::Inserted(PeerIndex(word))),
            5 => Some(Event::Report(from.0)),
            6 => from.end(Event::IsQuiet(last != 0)),
            7 => Some(Event::Failed(from.0)),
            8 => Some(Event::Lost { peer: PeerIndex(word), fault: from.0 }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn label(seed: u64) -> Label {
        Label::new(space((seed % 4) as u8).unwrap(), seed, seed.is_multiple_of(3).then_some(seed))
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_readers_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = Command::parse(&bytes);
            let _ = Event::parse(&bytes);
        }

        #[test]
        fn commands_read_back_as_written(kind in 0..14, a: u64, b: u64, c: u64, payload in proptest::collection::vec(any::<u8>(), 0..100)) {
            let peer = PeerIndex(a as u32);
            let source = if b.is_multiple_of(2) { Source::Any } else { Source::Peer(peer) };
            let selector = Wanted { space: label(c).space, tag: a & b, mask: b };
            let place = if c.is_multiple_of(2) { Place::Here(&payload) } else { Place::There { address: b, length: c } };
            let command = match kind {
                0 | 1 => Command::Send { peer, label: label(c), confirmed: kind == 1, ticket: b, place },
                2 => Command::Receive { source, selector, ticket: c, address: a, length: b },
                3 => Command::Cancel { ticket: a },
                4 => Command::Probe { source, selector },
                5 => Command::Claim { source, selector },
                6 => Command::ReceiveClaimed { claim: Claim::from_bits(1 << 32 | 5), ticket: a, address: b, length: c },
                7 => Command::Discard { claim: Claim::from_bits(1 << 32 | 5) },
                8 => Command::Insert { name: Name::example() },
                9 => Command::Report,
                10 => Command::IsQuiet,
                11 => Command::TakeBack { ticket: a },
                12 => Command::Leave,
                _ => Command::IsFlushed,
            };
            let mut bytes = vec![0xAA; command.length()];
            command.write(&mut bytes);
            prop_assert_eq!(Command::parse(&bytes), Some(command));
        }

        #[test]
        fn events_read_back_as_written(kind in 0..9, a: u64, b: u64, payload in proptest::collection::vec(any::<u8>(), 0..100)) {
            let peer = PeerIndex(a as u32);
            let envelope = Envelope::new(peer, label(b), a);
            let statuses = [Status::Done, Status::Truncated, Status::Cancelled, Status::PeerDead, Status::Withdrawn];
            let status = statuses[(a % 5) as usize];
            let event = match kind {
                0 => Event::Completed { ticket: b, direction: Direction::Send, envelope, status, payload: None },
                1 => Event::Completed { ticket: b, direction: Direction::Receive, envelope, status, payload: Some(&payload) },
                2 => Event::Cancelled(true),
                3 => Event::Found(None),
                4 => Event::Found(Some((envelope, b.is_multiple_of(2).then_some(Claim::from_bits(1 << 32 | 5))))),
                5 => Event::Inserted(PeerIndex(3)),
                6 => Event::Report(&payload),
                7 => Event::Lost { peer, fault: &payload },
                _ => Event::Failed(&payload),
            };
            let mut bytes = vec![0xAA; event.length()];
            event.write(&mut bytes);
            prop_assert_eq!(Event::parse(&bytes), Some(event));
        }
    }
}
