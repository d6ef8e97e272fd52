//! The lane as `lanes.h` lays it out, as 64-bit words.

use std::net::SocketAddrV4;

pub(super) const LANES: u32 = machine::bounds::LANES.total.count() as u32;
pub(super) const SESSIONS: usize = 4096;
pub(super) const PROBES: usize = 16;
pub(super) const SLOTS: usize = 2048;
pub(super) const SLOT_BYTES: usize = 2032;

const LINE: usize = 8;
pub(super) const READ: usize = 0;
pub(super) const PASSED: usize = LINE;
pub(super) const COUNT: usize = 2 * LINE;
const COUNTS: usize = 16;
const SESSIONS_AT: usize = COUNT + COUNTS;
const SESSION: usize = 4;
const SLOTS_AT: usize = SESSIONS_AT + SESSIONS * SESSION;
const SLOT: usize = 2 + SLOT_BYTES / 8;
pub(super) const WORDS: usize = SLOTS_AT + SLOTS * SLOT;

const _: () = assert!(SESSIONS.is_power_of_two() && SLOTS.is_power_of_two() && SLOT_BYTES.is_multiple_of(8));
// `place_of` takes so many bits of its product.
const _: () = assert!(SESSIONS == 1 << 12);

/// Words of a session: who, then its number below and `taken` above.
pub(super) fn session_at(place: usize) -> usize {
    SESSIONS_AT + (place & (SESSIONS - 1)) * SESSION
}

/// Words of the slot of packet `number`, counted from 0: published, session below and length above, the bytes.
pub(super) fn slot_at(number: u64) -> usize {
    SLOTS_AT + (number as usize & (SLOTS - 1)) * SLOT
}

/// How the program knows a peer; never 0.
pub(super) fn peer_word(peer: SocketAddrV4) -> u64 {
    u64::from(address(peer)) << 32 | u64::from(port(peer)) << 16 | 1
}

/// Where the search for a session starts; `place_of` of `lanes.c`.
pub(super) fn place_of(peer: SocketAddrV4, session: u32) -> usize {
    let mixed = address(peer).wrapping_mul(0x9E37_79B1) ^ u32::from(port(peer)).wrapping_mul(0x85EB_CA6B) ^ session;
    (mixed.wrapping_mul(0xC2B2_AE35) >> 20) as usize
}

/// As the program loads them from a packet: network order, read as a native number.
fn address(peer: SocketAddrV4) -> u32 {
    u32::from_ne_bytes(peer.ip().octets())
}

fn port(peer: SocketAddrV4) -> u16 {
    peer.port().to_be()
}

/// `struct endpoint`
pub(super) fn endpoint_key(endpoint: SocketAddrV4) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&endpoint.ip().octets());
    key[4..6].copy_from_slice(&endpoint.port().to_be_bytes());
    key
}

/// The engine's sequencing header: `engine::wire::Sequencing`.
pub(super) mod header {
    pub const BYTES: usize = 24;

    /// The session that a packet is of and what its sender has not yet; `None` where it is too short.
    #[inline]
    pub fn session_and_expected(packet: &[u8]) -> Option<(u32, u32)> {
        let word = |at: usize| Some(u32::from_le_bytes(packet.get(at..at + 4)?.try_into().ok()?));
        (packet.len() >= BYTES).then_some(())?;
        Some((word(0)?, word(8)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value that `lanes.h` gives a name, and the order of the fields of its structures.
    #[test]
    fn the_programs_header_says_the_same() {
        let header = include_str!("../../../bpf/src/programs/lanes.h");
        let value = |name: &str| -> usize {
            let line = header.lines().find(|line| line.trim_start().starts_with(&format!("{name} =")));
            let value = line.unwrap_or_else(|| panic!("lanes.h has no {name}")).split('=').nth(1).unwrap();
            value.split([',', ' ', '}']).find(|word| !word.is_empty()).unwrap().parse().unwrap()
        };
        let ours = [
            ("LANES", LANES as usize),
            ("SESSIONS", SESSIONS),
            ("PROBES", PROBES),
            ("SLOTS", SLOTS),
            ("SLOT_BYTES", SLOT_BYTES),
            ("COUNTS", COUNTS),
            ("HEADER_BYTES", header::BYTES),
            ("HEADER_SESSION", 0),
            ("HEADER_EXPECTED", 8),
        ];
        for (name, ours) in ours {
            assert_eq!(value(name), ours, "{name}");
        }
        let fields = |name: &str| -> Vec<&str> {
            let body = header.split(&format!("struct {name} {{")).nth(1).unwrap().split("};").next().unwrap();
            body.lines().filter_map(|line| line.split(';').next()?.split_whitespace().last()).collect()
        };
        assert_eq!(fields("session"), ["peer", "session", "taken", "unused[2]"]);
        assert_eq!(fields("slot"), ["published", "session", "length", "bytes[SLOT_BYTES]"]);
        let lane = ["read", "unused[7]", "passed", "unused2[7]", "count[COUNTS]", "sessions[SESSIONS]", "slots[SLOTS]"];
        assert_eq!(fields("lane"), lane);
    }

    #[test]
    fn a_peer_is_written_in_network_order() {
        let peer: SocketAddrV4 = "1.2.3.4:258".parse().unwrap();
        assert_eq!(endpoint_key(peer), [1, 2, 3, 4, 1, 2, 0, 0]);
        assert_eq!(peer_word(peer).to_le_bytes(), [1, 0, 1, 2, 1, 2, 3, 4]);
        assert!(place_of(peer, 9) < SESSIONS);
    }
}
