//! Socket addresses in the kernel's layout: compared byte for byte, never copied.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// A `sockaddr_in` or `sockaddr_in6`. Bytes that do not distinguish hosts (padding, flow label) are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C, align(8))]
pub(super) struct RawAddress([u8; RawAddress::SIZE]);

const V4_LENGTH: usize = size_of::<libc::sockaddr_in>();
const V6_LENGTH: usize = size_of::<libc::sockaddr_in6>();

impl RawAddress {
    /// Room for either family, rounded up to the alignment.
    pub const SIZE: usize = 32;

    pub fn new(address: SocketAddr) -> Self {
        let mut bytes = [0; Self::SIZE];
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        match address {
            SocketAddr::V4(v4) => {
                bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
                bytes[4..8].copy_from_slice(&v4.ip().octets());
            }
            SocketAddr::V6(v6) => {
                bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
                bytes[8..24].copy_from_slice(&v6.ip().octets());
                // The kernel reports a scope for link-local senders only.
                let scope = if v6.ip().is_unicast_link_local() { v6.scope_id() } else { 0 };
                bytes[24..28].copy_from_slice(&scope.to_ne_bytes());
            }
        }
        RawAddress(bytes)
    }

    /// An address written by the kernel: `None` unless it is a whole IPv4 or IPv6 address.
    pub fn parse(written: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::SIZE];
        match i32::from(u16::from_ne_bytes(written.get(..2)?.try_into().ok()?)) {
            libc::AF_INET if written.len() >= V4_LENGTH => bytes[..8].copy_from_slice(&written[..8]),
            libc::AF_INET6 if written.len() >= V6_LENGTH => {
                bytes[..4].copy_from_slice(&written[..4]);
                bytes[8..28].copy_from_slice(&written[8..28]);
            }
            _ => return None,
        }
        Some(RawAddress(bytes))
    }

    /// The length that the kernel expects beside [`Self::as_ptr`].
    pub fn length(&self) -> usize {
        if self.is_v4() { V4_LENGTH } else { V6_LENGTH }
    }

    pub fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }

    fn is_v4(&self) -> bool {
        i32::from(u16::from_ne_bytes([self.0[0], self.0[1]])) == libc::AF_INET
    }

    #[cfg(test)]
    pub fn bytes(&self) -> &[u8] {
        &self.0[..self.length()]
    }
}

impl From<RawAddress> for SocketAddr {
    fn from(raw: RawAddress) -> Self {
        let port = u16::from_be_bytes([raw.0[2], raw.0[3]]);
        if raw.is_v4() {
            let octets: [u8; 4] = raw.0[4..8].try_into().expect("four bytes");
            SocketAddr::new(IpAddr::V4(Ipv4Addr::from(octets)), port)
        } else {
            let octets: [u8; 16] = raw.0[8..24].try_into().expect("sixteen bytes");
            let scope = u32::from_ne_bytes(raw.0[24..28].try_into().expect("four bytes"));
            SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(octets), port, 0, scope))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn addresses_survive_the_kernel_layout(v4: bool, octets: [u8; 16], port: u16, flow: u32, scope: u32) {
            let address = if v4 {
                SocketAddr::new(IpAddr::V4(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3])), port)
            } else {
                SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(octets), port, flow, scope))
            };
            let raw = RawAddress::new(address);
            prop_assert_eq!(RawAddress::parse(raw.bytes()), Some(raw));
            let back = SocketAddr::from(raw);
            prop_assert_eq!((back.ip(), back.port()), (address.ip(), address.port()));
        }

        #[test]
        fn garbage_is_no_address(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(raw) = RawAddress::parse(&bytes) {
                prop_assert!(raw.length() <= bytes.len());
                prop_assert_eq!(RawAddress::new(SocketAddr::from(raw)).length(), raw.length());
            }
        }
    }
}
