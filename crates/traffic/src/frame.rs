//! Frames of a stream: Ethernet, IPv4 or IPv6, UDP, with right lengths and checksums.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use machine::{Fault, Nanoseconds, Result};

use crate::stamp::Stamp;

/// An Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for MacAddress {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let read = |part: &&str| {
            (part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()))
                .then(|| u8::from_str_radix(part, 16).ok())
                .flatten()
        };
        let octets: Option<Vec<u8>> = parts.iter().map(read).collect();
        match octets.and_then(|octets| octets.try_into().ok()) {
            Some(octets) => Ok(MacAddress(octets)),
            None => Err(Fault::new(
                format!("Ethernet address '{text}'"),
                "it is not six two-digit hexadecimal numbers",
                "write it like 02:00:00:00:00:01",
            )),
        }
    }
}

/// Source and destination of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    pub source_mac: MacAddress,
    pub destination_mac: MacAddress,
    pub source: IpAddr,
    pub destination: IpAddr,
    pub source_port: u16,
    pub destination_port: u16,
}

impl Flow {
    pub fn is_ipv6(&self) -> bool {
        self.destination.is_ipv6()
    }

    /// Bytes of all headers.
    pub fn headers(&self) -> usize {
        14 + if self.is_ipv6() { 40 } else { 20 } + 8
    }

    /// The frame of `length` bytes, frame check sequence not counted, with sequence number and time 0.
    ///
    /// # Errors
    /// Addresses of two families; a port of 0; a length without room for headers, sequence number and timestamp.
    pub fn template(&self, length: usize) -> Result<Vec<u8>> {
        self.check()?;
        let shortest = self.headers() + crate::stamp::PAYLOAD_BYTES;
        if length < shortest {
            return Err(Fault::new(
                "frame",
                format!("{length} bytes have no room for headers, sequence number and timestamp"),
                format!("send frames of {shortest} bytes or more"),
            ));
        }
        let mut frame = Vec::with_capacity(length);
        frame.extend(self.destination_mac.0);
        frame.extend(self.source_mac.0);
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                // Version and header length, service, total length, identification, flags (do not fragment).
                frame.extend([0x08, 0x00, 0x45, 0, 0, 0, 0, 0, 0x40, 0]);
                frame.extend([64, 17, 0, 0]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 17, 64]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
            }
            _ => return Err(self.two_families()),
        }
        frame.extend(self.source_port.to_be_bytes());
        frame.extend(self.destination_port.to_be_bytes());
        frame.resize(length, 0);
        Stamp::new(&frame, 0, true)?.write(&mut frame, 0, Nanoseconds(0));
        Ok(frame)
    }

    /// # Errors
    /// As [`Flow::template`] but for the length.
    pub fn check(&self) -> Result<()> {
        if self.source.is_ipv4() != self.destination.is_ipv4() {
            return Err(self.two_families());
        }
        if self.source_port == 0 || self.destination_port == 0 {
            return Err(Fault::new("flow", "UDP port 0 cannot be sent to or from", "use ports from 1 to 65535"));
        }
        Ok(())
    }

    fn two_families(&self) -> Fault {
        Fault::new(
            "flow",
            format!("{} and {} are addresses of two families", self.source, self.destination),
            "use IPv4 or IPv6 at both ends",
        )
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn flow(ipv6: bool) -> Flow {
        let address = |v4: &str, v6: &str| if ipv6 { v6.parse().unwrap() } else { v4.parse().unwrap() };
        Flow {
            source_mac: "02:00:00:00:00:01".parse().unwrap(),
            destination_mac: "02:00:00:00:00:02".parse().unwrap(),
            source: address("198.18.0.1", "2001:2::1"),
            destination: address("198.18.0.2", "2001:2::2"),
            source_port: 12_345,
            destination_port: 54_321,
        }
    }

    /// One's complement sum of big-endian words, as RFC 1071 says it.
    fn folded(parts: &[&[u8]]) -> u16 {
        let mut sum = 0u32;
        for part in parts {
            for pair in part.chunks(2) {
                sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
                sum = (sum & 0xffff) + (sum >> 16);
            }
        }
        sum as u16
    }

    #[test]
    fn frames_are_valid_at_even_and_odd_lengths() {
        for length in [58, 60, 61, 590, 1514] {
            let frame = flow(false).template(length).unwrap();
            assert_eq!((frame.len(), &frame[12..15]), (length, &[8, 0, 0x45][..]));
            assert_eq!(u16::from_be_bytes([frame[16], frame[17]]) as usize, length - 14);
            assert_eq!(folded(&[&frame[14..34]]), 0xffff);
            let udp = &frame[34..];
            assert_eq!(u16::from_be_bytes([udp[4], udp[5]]) as usize, udp.len());
            let pseudo = [&frame[26..34], &[0, 17], &(udp.len() as u16).to_be_bytes()].concat();
            assert_eq!(folded(&[&pseudo, udp]), 0xffff, "{length}");
        }
        for length in [78, 79, 1514] {
            let frame = flow(true).template(length).unwrap();
            let udp = &frame[54..];
            assert_eq!(u16::from_be_bytes([frame[18], frame[19]]) as usize, udp.len());
            let pseudo = [&frame[22..54], &(udp.len() as u32).to_be_bytes(), &[0, 0, 0, 17]].concat();
            assert_eq!(folded(&[&pseudo, udp]), 0xffff, "{length}");
        }
    }

    #[test]
    fn impossible_flows_are_refused() {
        let refused = |flow: Flow, length| flow.template(length).unwrap_err().to_string();
        assert!(refused(flow(false), 57).contains("send frames of 58 bytes"));
        assert!(refused(flow(true), 77).contains("send frames of 78 bytes"));
        assert!(refused(Flow { destination_port: 0, ..flow(false) }, 60).contains("port 0"));
        assert!(refused(Flow { source: flow(true).source, ..flow(false) }, 60).contains("two families"));
    }

    #[test]
    fn ethernet_addresses_read_back_what_they_print() {
        let text = "02:ab:00:7f:ff:01";
        assert_eq!(text.parse::<MacAddress>().unwrap().to_string(), text);
        for bad in
            ["", "02:ab:00:7f:ff", "02:ab:00:7f:ff:01:02", "2:ab:00:7f:ff:01", "02:ab:00:7f:ff:zz", "+2:ab:00:7f:ff:01"]
        {
            assert!(bad.parse::<MacAddress>().is_err(), "{bad}");
        }
    }
}
