//! The layout of a lane, as in `lanes.h`, in 64-bit words.

use std::net::{IpAddr, SocketAddr};

pub(super) const LANES: u32 = machine::bounds::LANES.total.count() as u32;
pub(super) const SESSIONS: usize = 4096;
pub(super) const PROBES: usize = 16;
pub(super) const SLOTS: usize = 2048;
pub(super) const SLOT_BYTES: usize = 2032;

const PEER_V4: u64 = 1;
const PEER_V6: u64 = 2;

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
// `place_of` takes this many bits of its product.
const _: () = assert!(SESSIONS == 1 << 12);

/// Index of the words of a session: peer, session number (low half) and `taken` (high half), two words of an IPv6 address.
pub(super) fn session_at(place: usize) -> usize {
    SESSIONS_AT + (place & (SESSIONS - 1)) * SESSION
}

/// Index of the words of packet `number`'s slot: sequence, session place (low half) and length (high half), then the bytes.
pub(super) fn slot_at(number: u64) -> usize {
    SLOTS_AT + (number as usize & (SLOTS - 1)) * SLOT
}

/// The program's key for a peer: a word that is never 0, and the whole address of IPv6.
pub(super) fn peer_words(peer: SocketAddr) -> (u64, [u64; 2]) {
    let word = u64::from(address(peer)) << 32 | u64::from(port(peer)) << 16;
    match peer.ip() {
        IpAddr::V4(_) => (word | PEER_V4, [0; 2]),
        IpAddr::V6(v6) => {
            let octets = v6.octets();
            let (halves, _) = octets.as_chunks::<8>();
            (word | PEER_V6, [halves[0], halves[1]].map(u64::from_ne_bytes))
        }
    }
}

/// Index at which the search for a session starts; `place_of` of `lanes.c`.
pub(super) fn place_of(peer: SocketAddr, session: u32) -> usize {
    let mixed = address(peer).wrapping_mul(0x9E37_79B1) ^ u32::from(port(peer)).wrapping_mul(0x85EB_CA6B) ^ session;
    (mixed.wrapping_mul(0xC2B2_AE35) >> 20) as usize
}

/// An address as the program loads it from a packet: network order, read as native numbers. The words of IPv6 are xored.
fn address(peer: SocketAddr) -> u32 {
    match peer.ip() {
        IpAddr::V4(v4) => u32::from_ne_bytes(v4.octets()),
        IpAddr::V6(v6) => v6.octets().as_chunks::<4>().0.iter().fold(0, |all, word| all ^ u32::from_ne_bytes(*word)),
    }
}

fn port(peer: SocketAddr) -> u16 {
    peer.port().to_be()
}

/// The program's map of the endpoints of a family, and the key in it: `struct endpoint` or `endpoint_v6`.
pub(super) fn endpoint_key(endpoint: SocketAddr) -> (&'static str, Vec<u8>) {
    let port = endpoint.port().to_be_bytes();
    match endpoint.ip() {
        IpAddr::V4(v4) => ("ENDPOINTS", [&v4.octets()[..], &port, &[0; 2]].concat()),
        IpAddr::V6(v6) => ("ENDPOINTS_V6", [&v6.octets()[..], &port, &[0; 6]].concat()),
    }
}

/// The engine's sequencing header: `engine::wire::Sequencing`.
pub(super) mod header {
    pub const BYTES: usize = 24;

    /// The session of a packet and the first packet that its sender lacks; `None` where it is too short.
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

    /// The value of a name in `lanes.h`, and the order of the fields of its structures.
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
            ("PEER_V4", PEER_V4 as usize),
            ("PEER_V6", PEER_V6 as usize),
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
        assert_eq!(fields("session"), ["peer", "session", "taken", "address[2]"]);
        assert_eq!(fields("slot"), ["published", "session", "length", "bytes[SLOT_BYTES]"]);
        let lane = ["read", "unused[7]", "passed", "unused2[7]", "count[COUNTS]", "sessions[SESSIONS]", "slots[SLOTS]"];
        assert_eq!(fields("lane"), lane);
    }

    #[test]
    fn a_peer_is_written_in_network_order() {
        let peer: SocketAddr = "1.2.3.4:258".parse().unwrap();
        assert_eq!(endpoint_key(peer), ("ENDPOINTS", vec![1, 2, 3, 4, 1, 2, 0, 0]));
        let (word, none) = peer_words(peer);
        assert_eq!((word.to_le_bytes(), none), ([1, 0, 1, 2, 1, 2, 3, 4], [0; 2]));
        assert!(place_of(peer, 9) < SESSIONS);

        let peer: SocketAddr = "[102:304::5:607]:258".parse().unwrap();
        let octets = [1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 6, 7];
        let key = [&octets[..], &[1, 2, 0, 0, 0, 0, 0, 0]].concat();
        assert_eq!(endpoint_key(peer), ("ENDPOINTS_V6", key));
        let (word, address) = peer_words(peer);
        assert_eq!(word.to_le_bytes(), [2, 0, 1, 2, 1, 2 ^ 5, 3 ^ 6, 4 ^ 7]);
        assert_eq!(address.map(u64::to_ne_bytes).concat(), octets);
        assert!(place_of(peer, 9) < SESSIONS);
    }
}
