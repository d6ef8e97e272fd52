//! The fields that change from frame to frame: lengths, checksums, sequence number, timestamp.
//!
//! The payload starts with 16 bytes: `tag << 48 | sequence` and the time in ns, both little endian; zeros follow.

use machine::{Fault, Nanoseconds, Result};

/// Bytes of the sequence number and the timestamp.
pub const PAYLOAD_BYTES: usize = 16;

const ETHERNET: usize = 14;
const UDP: usize = 8;
const SEQUENCE_BITS: u32 = 48;

/// Offsets of a template's headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    pub ipv6: bool,
}

impl Layout {
    /// A fault unless this is an Ethernet frame with IPv4 (no options) or IPv6 and UDP.
    pub fn of(template: &[u8]) -> Result<Layout> {
        let refuse = |cause: String| Fault::new("traffic: frame template", cause, "build it with traffic::frame");
        let (ipv6, protocol) = match template.get(12..15) {
            Some([0x08, 0x00, 0x45]) => (false, 23),
            Some([0x86, 0xdd, version]) if version >> 4 == 6 => (true, 20),
            _ => return Err(refuse("it is neither IPv4 without options nor IPv6".into())),
        };
        let layout = Layout { ipv6 };
        match template.get(protocol) {
            Some(17) if template.len() >= layout.shortest() => Ok(layout),
            Some(17) => Err(refuse(format!("{} bytes are fewer than {}", template.len(), layout.shortest()))),
            _ => Err(refuse("it is not UDP".into())),
        }
    }

    fn udp(self) -> usize {
        ETHERNET + if self.ipv6 { 40 } else { 20 }
    }

    /// Offset of the payload.
    pub fn payload(self) -> usize {
        self.udp() + UDP
    }

    /// Bytes of the shortest frame that has room for the payload, frame check sequence not counted.
    pub fn shortest(self) -> usize {
        self.payload() + PAYLOAD_BYTES
    }

    /// Sum of the IPv4 header's words without total length and checksum; 0 for IPv6.
    pub(crate) fn ip_sum(self, frame: &[u8]) -> u64 {
        if self.ipv6 {
            return 0;
        }
        sum(&frame[ETHERNET..ETHERNET + 2])
            + sum(&frame[ETHERNET + 4..ETHERNET + 10])
            + sum(&frame[ETHERNET + 12..ETHERNET + 20])
    }

    /// Sum of addresses, protocol and ports: pseudo header and UDP header without lengths and checksum.
    pub(crate) fn udp_sum(self, frame: &[u8]) -> u64 {
        let addresses = if self.ipv6 { 22..54 } else { 26..34 };
        sum(&frame[addresses]) + sum(&[0, 17]) + sum(&frame[self.udp()..self.udp() + 4])
    }
}

/// Sum of 16-bit words as they lie in memory; of even length.
fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks_exact(2).map(|pair| u64::from(u16::from_ne_bytes([pair[0], pair[1]]))).sum()
}

fn sum_of_word(word: u64) -> u64 {
    (word & 0xffff) + (word >> 16 & 0xffff) + (word >> 32 & 0xffff) + (word >> 48)
}

/// The Internet checksum of a sum (RFC 1071).
fn checksum(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Writes the changing fields into copies of one template.
#[derive(Debug, Clone, Copy)]
pub struct Stamp {
    layout: Layout,
    tag: u64,
    ip_sum: u64,
    /// Sum for the UDP checksum; `None`: no UDP checksum.
    udp_sum: Option<u64>,
}

impl Stamp {
    /// A stamp for frames made of `template`. IPv6 always has a UDP checksum.
    pub fn new(template: &[u8], tag: u16, udp_checksum: bool) -> Result<Stamp> {
        let layout = Layout::of(template)?;
        let udp_sum = (udp_checksum || layout.ipv6).then(|| layout.udp_sum(template));
        Ok(Stamp { layout, tag: u64::from(tag) << SEQUENCE_BITS, ip_sum: layout.ip_sum(template), udp_sum })
    }

    /// Makes `frame`, whose headers and zeros are the template's, a frame of its own length.
    #[inline]
    pub fn write(&self, frame: &mut [u8], sequence: u64, now: Nanoseconds) {
        let (udp, payload) = (self.layout.udp(), self.layout.payload());
        let udp_length = ((frame.len() - udp) as u16).to_be_bytes();
        if self.layout.ipv6 {
            frame[ETHERNET + 4..ETHERNET + 6].copy_from_slice(&udp_length);
        } else {
            let total = ((frame.len() - ETHERNET) as u16).to_be_bytes();
            frame[ETHERNET + 2..ETHERNET + 4].copy_from_slice(&total);
            let check = checksum(self.ip_sum + u64::from(u16::from_ne_bytes(total)));
            frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&check.to_ne_bytes());
        }
        frame[udp + 4..udp + 6].copy_from_slice(&udp_length);
        let (first, second) = ((self.tag | sequence).to_le_bytes(), now.0.to_le_bytes());
        frame[payload..payload + 8].copy_from_slice(&first);
        frame[payload + 8..payload + 16].copy_from_slice(&second);
        let check = self.udp_sum.map_or(0, |sum| {
            let words = sum_of_word(u64::from_ne_bytes(first)) + sum_of_word(u64::from_ne_bytes(second));
            // 0 stands for 'none'; all ones is the same sum (RFC 768).
            match checksum(sum + 2 * u64::from(u16::from_ne_bytes(udp_length)) + words) {
                0 => 0xffff,
                check => check,
            }
        });
        frame[udp + 6..udp + 8].copy_from_slice(&check.to_ne_bytes());
    }
}

/// The start of a payload, for a body whose headers the kernel writes.
#[inline]
pub fn payload(tag: u16, sequence: u64, now: Nanoseconds) -> [u8; PAYLOAD_BYTES] {
    let mut bytes = [0; PAYLOAD_BYTES];
    bytes[..8].copy_from_slice(&(u64::from(tag) << SEQUENCE_BITS | sequence).to_le_bytes());
    bytes[8..].copy_from_slice(&now.0.to_le_bytes());
    bytes
}

/// Tag, sequence number and time of a payload; `None` if it is too short.
#[inline]
pub fn read(payload: &[u8]) -> Option<(u16, u64, Nanoseconds)> {
    let first = u64::from_le_bytes(payload.get(..8)?.try_into().ok()?);
    let time = u64::from_le_bytes(payload.get(8..16)?.try_into().ok()?);
    Some(((first >> SEQUENCE_BITS) as u16, first & ((1 << SEQUENCE_BITS) - 1), Nanoseconds(time)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn ipv4(length: usize) -> Vec<u8> {
        let mut frame = vec![0; length];
        frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
        frame[22..24].copy_from_slice(&[64, 17]);
        frame[26..34].copy_from_slice(&[198, 18, 0, 1, 198, 18, 0, 2]);
        frame[34..38].copy_from_slice(&[0x30, 0x39, 0xd4, 0x31]);
        frame
    }

    pub(crate) fn ipv6(length: usize) -> Vec<u8> {
        let mut frame = vec![0; length];
        frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
        frame[20..22].copy_from_slice(&[17, 64]);
        frame[22..54].copy_from_slice(&(0..32).map(|n| n * 7).collect::<Vec<u8>>());
        frame[54..58].copy_from_slice(&[0x30, 0x39, 0xd4, 0x31]);
        frame
    }

    /// The Internet checksum the slow way, over everything that it covers: 0 where it is right.
    fn left_over(frame: &[u8], layout: Layout) -> (u16, u16) {
        let even = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            bytes.resize(bytes.len().next_multiple_of(2), 0);
            sum(&bytes)
        };
        let udp = layout.udp();
        let length = (frame.len() - udp) as u16;
        let addresses = if layout.ipv6 { 22..54 } else { 26..34 };
        let pseudo = even(&frame[addresses]) + even(&[0, 17]) + even(&length.to_be_bytes());
        let ip = if layout.ipv6 { 0 } else { checksum(even(&frame[14..34])) };
        (ip, checksum(pseudo + even(&frame[udp..])))
    }

    #[test]
    fn checksums_and_lengths_are_right_at_every_length() {
        for (template, header) in [(ipv4(1514), 14), (ipv6(1514), 54)] {
            let layout = Layout::of(&template).unwrap();
            let stamp = Stamp::new(&template, 0xbeef, true).unwrap();
            for length in layout.shortest()..=1514 {
                let mut frame = template[..length].to_vec();
                let now = Nanoseconds(0x0123_4567_89ab_cdef ^ length as u64);
                stamp.write(&mut frame, length as u64 * 99, now);
                assert_eq!(left_over(&frame, layout), (0, 0), "{length} bytes");
                let total = u16::from_be_bytes(frame[if layout.ipv6 { 18..20 } else { 16..18 }].try_into().unwrap());
                assert_eq!(usize::from(total), length - header);
                assert_eq!(read(&frame[layout.payload()..]), Some((0xbeef, length as u64 * 99, now)));
            }
        }
    }

    #[test]
    fn ipv4_may_do_without_a_udp_checksum_and_ipv6_may_not() {
        let mut frame = ipv4(60);
        Stamp::new(&frame, 1, false).unwrap().write(&mut frame, 0, Nanoseconds(1));
        assert_eq!(frame[40..42], [0, 0]);
        let mut frame = ipv6(90);
        Stamp::new(&frame, 1, false).unwrap().write(&mut frame, 0, Nanoseconds(1));
        assert_ne!(frame[60..62], [0, 0]);
    }

    #[test]
    fn other_templates_are_refused() {
        let mut tcp = ipv4(60);
        tcp[23] = 6;
        let mut options = ipv4(60);
        options[14] = 0x46;
        for bad in [tcp, options, ipv4(57), ipv6(77), vec![], vec![0; 60]] {
            assert!(Layout::of(&bad).is_err());
        }
        assert_eq!(read(&[0; 15]), None);
    }
}
