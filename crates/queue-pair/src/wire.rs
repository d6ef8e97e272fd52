//! Packets of the reliable connected transport: base transport header (BTH), extended headers for acknowledgements
//! (AETH) and for RDMA (RETH). Fields and operation codes as in InfiniBand 1.3, chapter 9; little-endian, and the
//! destination has 32 bits.

/// Packet sequence numbers have 24 bits.
pub(crate) const PSN_MASK: u32 = (1 << 24) - 1;
/// Most packets between the oldest unacknowledged one and the next.
pub(crate) const PSN_SPAN: u32 = 1 << 22;

pub(crate) const BTH: usize = 12;
const AETH: usize = 4;
pub(crate) const RETH: usize = 20;

/// `a - b` of sequence numbers that are less than half their range apart.
#[inline]
pub(crate) fn distance(a: u32, b: u32) -> i32 {
    ((a.wrapping_sub(b) << 8) as i32) >> 8
}

#[inline]
pub(crate) fn advanced(psn: u32, by: u32) -> u32 {
    psn.wrapping_add(by) & PSN_MASK
}

/// The place of a packet in its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub first: bool,
    pub last: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nak {
    /// A packet before this one is missing.
    Sequence,
    InvalidRequest,
    RemoteAccess,
}

/// The syndrome of an AETH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Acknowledged,
    NotReady,
    Refused(Nak),
}

/// RETH: where an RDMA write goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    pub offset: u64,
    pub key: u64,
    pub length: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Send(Place),
    /// An RDMA write; the target travels in its first packet.
    Write(Place, Option<Target>),
    Acknowledge(Verdict),
    /// An unreliable datagram to queue pair 1.
    Management,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub destination: u32,
    pub psn: u32,
    /// Whether the responder should acknowledge at once.
    pub ask: bool,
    pub kind: Kind,
}

// Reliable connected: FIRST, MIDDLE, LAST, ONLY of SEND and of RDMA WRITE, ACKNOWLEDGE.
const SENDS: [u8; 4] = [0x00, 0x01, 0x02, 0x04];
const WRITES: [u8; 4] = [0x06, 0x07, 0x08, 0x0a];
const ACKNOWLEDGE: u8 = 0x11;
// Unreliable datagram, SEND ONLY; its extended header (DETH) is left out.
const DATAGRAM: u8 = 0x64;
const ASK: u8 = 0x80;

const PLACES: [Place; 4] = [
    Place { first: true, last: false },
    Place { first: false, last: false },
    Place { first: false, last: true },
    Place { first: true, last: true },
];

#[inline]
fn code(codes: [u8; 4], place: Place) -> u8 {
    match (place.first, place.last) {
        (true, true) => codes[3],
        (true, false) => codes[0],
        (false, false) => codes[1],
        (false, true) => codes[2],
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Header {
    #[inline]
    pub fn length(&self) -> usize {
        BTH + match self.kind {
            Kind::Send(_) | Kind::Write(_, None) | Kind::Management => 0,
            Kind::Write(_, Some(_)) => RETH,
            Kind::Acknowledge(_) => AETH,
        }
    }

    /// Writes the header over the start of `into`.
    #[inline]
    pub fn write(&self, into: &mut [u8]) {
        let opcode = match self.kind {
            Kind::Send(place) => code(SENDS, place),
            Kind::Write(place, _) => code(WRITES, place),
            Kind::Acknowledge(_) => ACKNOWLEDGE,
            Kind::Management => DATAGRAM,
        };
        into[..4].copy_from_slice(&[opcode, if self.ask { ASK } else { 0 }, 0, 0]);
        into[4..8].copy_from_slice(&self.destination.to_le_bytes());
        into[8..12].copy_from_slice(&self.psn.to_le_bytes());
        match self.kind {
            Kind::Acknowledge(verdict) => {
                let syndrome = match verdict {
                    // 31: no credit count, since the MPI layer has the credits.
                    Verdict::Acknowledged => 0x1f,
                    Verdict::NotReady => 0x20,
                    Verdict::Refused(Nak::Sequence) => 0x60,
                    Verdict::Refused(Nak::InvalidRequest) => 0x61,
                    Verdict::Refused(Nak::RemoteAccess) => 0x62,
                };
                into[12..16].copy_from_slice(&[syndrome, 0, 0, 0]);
            }
            Kind::Write(_, Some(target)) => {
                into[12..20].copy_from_slice(&target.offset.to_le_bytes());
                into[20..28].copy_from_slice(&target.key.to_le_bytes());
                into[28..32].copy_from_slice(&target.length.to_le_bytes());
            }
            _ => {}
        }
    }

    /// The header and the payload; `None` for anything malformed.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<(Header, &[u8])> {
        if bytes.len() < BTH || bytes[1] & !ASK != 0 || bytes[2..4] != [0, 0] {
            return None;
        }
        let place = |codes: [u8; 4]| codes.iter().position(|&code| code == bytes[0]).map(|at| PLACES[at]);
        let kind = if let Some(place) = place(SENDS) {
            Kind::Send(place)
        } else if let Some(place) = place(WRITES) {
            let target = || Target { offset: u64_at(bytes, 12), key: u64_at(bytes, 20), length: u32_at(bytes, 28) };
            if place.first && bytes.len() < BTH + RETH {
                return None;
            }
            Kind::Write(place, place.first.then(target))
        } else if bytes[0] == DATAGRAM {
            Kind::Management
        } else if bytes[0] == ACKNOWLEDGE && bytes.len() == BTH + AETH {
            Kind::Acknowledge(match bytes[12] {
                0x00..=0x1f => Verdict::Acknowledged,
                0x20..=0x3f => Verdict::NotReady,
                0x60 => Verdict::Refused(Nak::Sequence),
                0x61 => Verdict::Refused(Nak::InvalidRequest),
                0x62 => Verdict::Refused(Nak::RemoteAccess),
                _ => return None,
            })
        } else {
            return None;
        };
        let psn = u32_at(bytes, 8);
        if psn > PSN_MASK {
            return None;
        }
        let header = Header { destination: u32_at(bytes, 4), psn, ask: bytes[1] & ASK != 0, kind };
        Some((header, &bytes[header.length()..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sequence_numbers_wrap() {
        assert_eq!(distance(3, PSN_MASK), 4);
        assert_eq!(distance(PSN_MASK, 3), -4);
        assert_eq!(advanced(PSN_MASK, 2), 1);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Header::parse(&bytes);
        }

        #[test]
        fn headers_read_back_as_written(kind in 0..6, place in 0usize..4, destination: u32, psn in 0..=PSN_MASK,
                ask: bool, offset: u64, key: u64, length: u32, payload in 0usize..9) {
            let place = PLACES[place];
            let target = place.first.then_some(Target { offset, key, length });
            let kind = match kind {
                0 => Kind::Send(place),
                1 => Kind::Write(place, target),
                2 => Kind::Acknowledge(Verdict::Acknowledged),
                3 => Kind::Acknowledge(Verdict::NotReady),
                4 => Kind::Management,
                _ => Kind::Acknowledge(Verdict::Refused(Nak::RemoteAccess)),
            };
            let header = Header { destination, psn, ask, kind };
            let payload = if matches!(kind, Kind::Acknowledge(_)) { 0 } else { payload };
            let mut bytes = vec![0xAA; header.length() + payload];
            header.write(&mut bytes);
            prop_assert_eq!(Header::parse(&bytes), Some((header, &vec![0xAA; payload][..])));
        }
    }
}
