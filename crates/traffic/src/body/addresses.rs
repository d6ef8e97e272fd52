//! Addresses of a template, for a socket whose headers the kernel writes.

use std::net::{IpAddr, SocketAddr};

use machine::Result;

use crate::stamp::Layout;

/// Source and destination of a template.
pub(super) fn of(template: &[u8]) -> Result<(SocketAddr, SocketAddr)> {
    let layout = Layout::of(template)?;
    let ip = |at: usize| -> IpAddr {
        match layout.ipv6 {
            true => <[u8; 16]>::try_from(&template[at..at + 16]).expect("16 bytes").into(),
            false => <[u8; 4]>::try_from(&template[at..at + 4]).expect("4 bytes").into(),
        }
    };
    let port = |at: usize| u16::from_be_bytes([template[at], template[at + 1]]);
    let (source, width, ports) = if layout.ipv6 { (22, 16, 54) } else { (26, 4, 34) };
    Ok((SocketAddr::new(ip(source), port(ports)), SocketAddr::new(ip(source + width), port(ports + 2))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_where_the_headers_have_them() {
        let (from, to) = of(&crate::stamp::tests::ipv4(64)).unwrap();
        assert_eq!((from.to_string(), to.to_string()), ("198.18.0.1:12345".into(), "198.18.0.2:54321".into()));
        let (from, to) = of(&crate::stamp::tests::ipv6(90)).unwrap();
        assert_eq!((from.port(), to.port(), from.is_ipv6()), (12345, 54321, true));
        assert_ne!(from.ip(), to.ip());
        assert!(of(&[]).is_err());
    }
}
