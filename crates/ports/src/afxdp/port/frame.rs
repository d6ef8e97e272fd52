//! UDP datagrams in Ethernet frames, written and parsed here.
//!
//! The UDP checksum is always written, though IPv4 could do without: messages of the engine have none of their own, and memory of
//! switches on the way may err. It costs about a tenth of the kernel's time for a frame. Frames of a peer's kernel are accepted
//! as well: without a checksum over IPv4, and, over links without a wire (veth), with one left for a device to complete.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub(super) const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
/// The shortest frame without its check sequence; not every driver pads frames from here.
const SHORTEST: usize = 60;
const PROTOCOL_UDP: u8 = 17;
const HOPS: u8 = 64;

pub(super) type HardwareAddress = [u8; 6];

/// Bytes before the payload.
pub(super) const fn headers(ipv4: bool) -> usize {
    ETHERNET + if ipv4 { IPV4 } else { IPV6 } + UDP
}

/// The common part of all frames from one address to another.
#[derive(Debug, Clone)]
pub(super) struct Template {
    bytes: [u8; headers(false)],
    length: usize,
    /// Sum of the addresses, the ports and the protocol: the constant part of the UDP checksum.
    fixed: u64,
    /// Sum of the IPv4 header without length and checksum.
    header: u64,
}

impl Template {
    /// A template; both addresses must be of one family.
    pub fn new(from: (HardwareAddress, SocketAddr), to: (HardwareAddress, SocketAddr)) -> Template {
        let mut bytes = [0; headers(false)];
        bytes[..6].copy_from_slice(&to.0);
        bytes[6..12].copy_from_slice(&from.0);
        let udp = match (from.1.ip(), to.1.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                bytes[12..14].copy_from_slice(&[0x08, 0x00]);
                let ip = &mut bytes[ETHERNET..ETHERNET + IPV4];
                ip[0] = 0x45;
                // Never fragmented, so that it needs no identification (RFC 6864).
                ip[6] = 0x40;
                ip[8] = HOPS;
                ip[9] = PROTOCOL_UDP;
                ip[12..16].copy_from_slice(&source.octets());
                ip[16..20].copy_from_slice(&destination.octets());
                ETHERNET + IPV4
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
                let ip = &mut bytes[ETHERNET..ETHERNET + IPV6];
                ip[0] = 0x60;
                ip[6] = PROTOCOL_UDP;
                ip[7] = HOPS;
                ip[8..24].copy_from_slice(&source.octets());
                ip[24..40].copy_from_slice(&destination.octets());
                ETHERNET + IPV6
            }
            _ => panic!("addresses of two families"),
        };
        bytes[udp..udp + 2].copy_from_slice(&from.1.port().to_be_bytes());
        bytes[udp + 2..udp + 4].copy_from_slice(&to.1.port().to_be_bytes());
        let length = udp + UDP;
        let addresses = if from.1.is_ipv4() { &bytes[26..34] } else { &bytes[22..54] };
        let fixed = sum(addresses) + sum(&bytes[udp..udp + 4]) + word(PROTOCOL_UDP.into());
        let header = if from.1.is_ipv4() { sum(&bytes[ETHERNET..ETHERNET + IPV4]) } else { 0 };
        Template { bytes, length, fixed, header }
    }

    #[cfg(test)]
    pub fn to(&self) -> HardwareAddress {
        *self.bytes.first_chunk().expect("as many bytes")
    }

    pub fn headers(&self) -> usize {
        self.length
    }

    /// Writes the headers of a frame whose `payload` bytes are in place already; returns the frame's length. `frame`
    /// must have room for [`length_of`] that payload, which fits into 16 bits with its headers.
    #[inline]
    pub fn write(&self, frame: &mut [u8], payload: usize) -> usize {
        let end = self.length + payload;
        let udp = (UDP + payload) as u16;
        frame[..self.length].copy_from_slice(&self.bytes[..self.length]);
        if self.length == headers(true) {
            let total = (IPV4 + UDP + payload) as u16;
            frame[16..18].copy_from_slice(&total.to_be_bytes());
            frame[24..26].copy_from_slice(&(!fold(self.header + word(total))).to_ne_bytes());
        } else {
            frame[18..20].copy_from_slice(&udp.to_be_bytes());
        }
        let at = self.length - UDP;
        frame[at + 4..at + 6].copy_from_slice(&udp.to_be_bytes());
        // The length counts twice: in the header and in the pseudo header.
        let all = self.fixed + 2 * word(udp) + sum(&frame[self.length..end]);
        let check = !fold(all);
        // 0 would mean no checksum; all ones is the same number in one's complement.
        frame[at + 6..at + 8].copy_from_slice(&(if check == 0 { 0xffff } else { check }).to_ne_bytes());
        if end < SHORTEST {
            frame[end..SHORTEST].fill(0);
        }
        end.max(SHORTEST)
    }
}

/// Length of the frame that carries `payload` bytes.
#[inline]
pub(super) fn length_of(headers: usize, payload: usize) -> usize {
    (headers + payload).max(SHORTEST)
}

/// A UDP datagram inside of an Ethernet frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram {
    pub from: SocketAddr,
    pub to: SocketAddr,
    /// Offset of its payload in the frame, and its length.
    pub at: usize,
    pub length: usize,
}

/// Why a frame is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// The frame is shorter than its headers, or not a whole IP packet with a UDP datagram.
    Truncated,
    /// The packet is neither IPv4 without options nor IPv6, not UDP, or a fragment.
    Foreign,
    /// The lengths of frame, packet and datagram contradict each other.
    Lengths,
    /// The checksum of the IPv4 header or of the datagram is wrong.
    Checksum,
}

/// Finds the datagram in a frame of any bytes.
#[inline]
pub fn read(frame: &[u8]) -> Result<Datagram, Malformed> {
    let kind = frame.get(12..14).ok_or(Malformed::Truncated)?;
    let (udp, end, source, destination, addresses): (usize, usize, IpAddr, IpAddr, u64) = match kind {
        [0x08, 0x00] => {
            let ip: &[u8; IPV4] = frame[ETHERNET..].first_chunk().ok_or(Malformed::Truncated)?;
            if ip[0] != 0x45 || ip[9] != PROTOCOL_UDP || big_endian(&ip[6..8]) & 0x3fff != 0 {
                return Err(Malformed::Foreign);
            }
            if fold(sum(ip)) != 0xffff {
                return Err(Malformed::Checksum);
            }
            let address = |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&ip[at..at + 4]).expect("four bytes"));
            let total = usize::from(big_endian(&ip[2..4]));
            if total < IPV4 {
                return Err(Malformed::Lengths);
            }
            (ETHERNET + IPV4, ETHERNET + total, address(12).into(), address(16).into(), sum(&ip[12..20]))
        }
        [0x86, 0xdd] => {
            let ip: &[u8; IPV6] = frame[ETHERNET..].first_chunk().ok_or(Malformed::Truncated)?;
            if ip[0] >> 4 != 6 || ip[6] != PROTOCOL_UDP {
                return Err(Malformed::Foreign);
            }
            let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&ip[at..at + 16]).expect("sixteen bytes"));
            let end = ETHERNET + IPV6 + usize::from(big_endian(&ip[4..6]));
            (ETHERNET + IPV6, end, address(8).into(), address(24).into(), sum(&ip[8..40]))
        }
        _ => return Err(Malformed::Foreign),
    };
    if end > frame.len() {
        return Err(Malformed::Truncated);
    }
    // Bytes behind `end` pad a short frame.
    let datagram = frame.get(udp..end).ok_or(Malformed::Lengths)?;
    let header: &[u8; UDP] = datagram.first_chunk().ok_or(Malformed::Truncated)?;
    if usize::from(big_endian(&header[4..6])) != datagram.len() {
        return Err(Malformed::Lengths);
    }
    let pseudo = addresses + word(PROTOCOL_UDP.into()) + word(datagram.len() as u16);
    let check = u16::from_ne_bytes([header[6], header[7]]);
    let good = match check {
        0 => source.is_ipv4(),
        // The checksum is left for a device to complete, which a link without a wire does not have.
        unfinished if unfinished == fold(pseudo) => true,
        _ => fold(pseudo + sum(datagram)) == 0xffff,
    };
    if !good {
        return Err(Malformed::Checksum);
    }
    Ok(Datagram {
        from: SocketAddr::new(source, big_endian(&header[..2])),
        to: SocketAddr::new(destination, big_endian(&header[2..4])),
        at: udp + UDP,
        length: datagram.len() - UDP,
    })
}

#[inline]
fn big_endian(two: &[u8]) -> u16 {
    u16::from_be_bytes([two[0], two[1]])
}

/// A number as a summand: in the byte order of the packet.
#[inline]
fn word(number: u16) -> u64 {
    u64::from(number.to_be())
}

/// The one's complement sum of RFC 1071, unfolded. Words are summed in native byte order, which only swaps the bytes of
/// the result. The bytes must start at an even offset in their packet.
#[inline]
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum += u64::from(u32::from_ne_bytes(last));
    sum
}

#[inline]
fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HERE: HardwareAddress = [2, 0, 0, 0, 0, 1];
    const THERE: HardwareAddress = [2, 0, 0, 0, 0, 2];

    fn addresses(v6: bool, seed: [u8; 16]) -> (SocketAddr, SocketAddr) {
        let ip = |salt: u8| -> IpAddr {
            let octets = seed.map(|byte| byte.wrapping_add(salt));
            if v6 { octets.into() } else { [octets[0], octets[1], octets[2], octets[3]].into() }
        };
        let port = |at: usize| u16::from_be_bytes([seed[at], seed[at + 1]]).max(1);
        (SocketAddr::new(ip(0), port(4)), SocketAddr::new(ip(101), port(6)))
    }

    fn written(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
        let template = Template::new((HERE, from), (THERE, to));
        let mut frame = vec![0xaa; length_of(template.headers(), payload.len())];
        frame[template.headers()..][..payload.len()].copy_from_slice(payload);
        assert_eq!(template.write(&mut frame, payload.len()), frame.len());
        frame
    }

    /// The checksum as RFC 1071 defines it: two bytes at a time, big-endian.
    fn checksum(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    /// The pseudo header of RFC 768 or RFC 8200, and the datagram.
    fn summed(frame: &[u8], v6: bool) -> Vec<u8> {
        let (addresses, udp) = if v6 { (22..54, 54) } else { (26..34, 34) };
        let length = u16::from_be_bytes([frame[udp + 4], frame[udp + 5]]);
        let mut bytes = frame[addresses].to_vec();
        bytes.extend([0, PROTOCOL_UDP]);
        bytes.extend(length.to_be_bytes());
        bytes.extend(&frame[udp..udp + usize::from(length)]);
        bytes
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_its_checksums_are_right(
            v6: bool, seed: [u8; 16], payload in proptest::collection::vec(any::<u8>(), 0..1500),
        ) {
            let (from, to) = addresses(v6, seed);
            let frame = written(from, to, &payload);
            let datagram = read(&frame).unwrap();
            prop_assert_eq!((datagram.from, datagram.to), (from, to));
            prop_assert_eq!(&frame[datagram.at..datagram.at + datagram.length], &payload[..]);
            prop_assert!(frame.len() >= SHORTEST && frame[..6] == THERE && frame[6..12] == HERE);
            prop_assert_eq!(checksum(&summed(&frame, v6)), 0);
            if !v6 {
                prop_assert_eq!(checksum(&frame[14..34]), 0);
            }
        }

        #[test]
        fn any_bytes_are_read_without_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u8..4) {
            // Most frames look like ours at first.
            let start: &[u8] = match kind {
                0 => &[0x08, 0x00, 0x45],
                1 => &[0x86, 0xdd, 0x60],
                _ => &[],
            };
            if let Some(place) = bytes.get_mut(12..12 + start.len()) {
                place.copy_from_slice(start);
            }
            if let Ok(datagram) = read(&bytes) {
                prop_assert!(datagram.at + datagram.length <= bytes.len());
            }
        }

        /// One changed byte, one cut, one false length: payloads never exceed the frame, and changed content is never accepted,
        /// except where the change makes the checksum 'none' or 'left for a device' (one change in some 65,000).
        #[test]
        fn changed_frames_are_dropped_or_tell_the_truth(
            v6: bool, seed: [u8; 16], payload in proptest::collection::vec(any::<u8>(), 0..300),
            at: prop::sample::Index, to_byte: u8, cut in 0usize..400,
        ) {
            let (from, to) = addresses(v6, seed);
            let frame = written(from, to, &payload);
            let mut changed = frame.clone();
            let at = at.index(changed.len());
            changed[at] = to_byte;
            let check = headers(!v6) - 2;
            let unchecked = changed[check..check + 2] == [0, 0];
            let left = || {
                let summed = summed(&changed, v6);
                let pseudo = summed.len() - usize::from(u16::from_be_bytes([changed[check - 2], changed[check - 1]]));
                changed[check..check + 2] == (!checksum(&summed[..pseudo])).to_be_bytes()
            };
            if let Ok(datagram) = read(&changed) {
                prop_assert!(datagram.at + datagram.length <= changed.len());
                let same = changed[datagram.at..][..datagram.length] == payload[..] && (datagram.from, datagram.to) == (from, to);
                prop_assert!(same || unchecked || left(), "byte {} changed to {:#x}", at, to_byte);
            }
            let end = headers(!v6) + payload.len();
            let cut = cut.min(frame.len());
            prop_assert_eq!(read(&frame[..cut]).is_ok(), cut >= end);
        }
    }

    #[test]
    fn reasons_are_told_apart() {
        let (from, to) = addresses(false, [9; 16]);
        let good = written(from, to, &[7; 100]);
        let with = |change: fn(&mut Vec<u8>)| {
            let mut frame = good.clone();
            change(&mut frame);
            // The header's checksum is corrected, so that other checks are reached.
            if frame.len() >= 34 {
                frame[24..26].fill(0);
                let sum = checksum(&frame[14..34]);
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            read(&frame).unwrap_err()
        };
        assert_eq!(with(|frame| frame.truncate(20)), Malformed::Truncated);
        assert_eq!(with(|frame| frame.truncate(100)), Malformed::Truncated);
        assert_eq!(with(|frame| frame[14] = 0x46), Malformed::Foreign);
        assert_eq!(with(|frame| frame[20] = 0x20), Malformed::Foreign);
        assert_eq!(with(|frame| frame[23] = 6), Malformed::Foreign);
        assert_eq!(with(|frame| frame[12] = 0x81), Malformed::Foreign);
        assert_eq!(with(|frame| frame[16..18].fill(0)), Malformed::Lengths);
        assert_eq!(with(|frame| frame[38..40].fill(0xff)), Malformed::Lengths);
        assert_eq!(with(|frame| frame[39] -= 1), Malformed::Lengths);
        assert_eq!(with(|frame| frame[50] ^= 1), Malformed::Checksum);
        let mut frame = good;
        frame[24] ^= 1;
        assert_eq!(read(&frame).unwrap_err(), Malformed::Checksum);
    }

    #[test]
    fn what_kernels_send_is_read() {
        for v6 in [false, true] {
            let (from, to) = addresses(v6, [3; 16]);
            let mut frame = written(from, to, b"message");
            let at = headers(!v6) - 2;
            // The state in which a kernel leaves it for a device: the sum of the pseudo header.
            frame[at..at + 2].fill(0);
            let before = summed(&frame, v6)[..if v6 { 36 } else { 12 }].to_vec();
            frame[at..at + 2].copy_from_slice(&(!checksum(&before)).to_be_bytes());
            assert_eq!(read(&frame).unwrap().length, 7);
            // No checksum, which only IPv4 allows.
            frame[at..at + 2].fill(0);
            assert_eq!(read(&frame).is_ok(), !v6);
        }
    }
}
