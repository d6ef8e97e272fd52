//! Ports to other hosts: their operations beyond [`machine::Port`], so that an endpoint takes any of them.

use std::net::SocketAddr;

use machine::{PeerIndex, Port, Result};

/// An address as packets carry it: without flow label and without interface index, which each host numbers by itself.
pub fn as_sent(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}

pub(crate) fn is_link_local(address: SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local())
}

/// A port whose peers have network addresses.
pub trait NetworkPort: Port {
    /// The address that peers send to.
    fn local_address(&self) -> SocketAddr;

    /// Makes `address` a peer; the same address again gives the same index. Sends nothing. Where the port's own address
    /// is link-local IPv6, a link-local peer is on the same link.
    fn add_peer(&mut self, address: SocketAddr) -> Result<PeerIndex>;

    /// Hands over packets of addresses that are no peers, found by [`Port::receive`], and forgets them. Few are kept,
    /// so that a flood of them costs little: the newest are dropped.
    fn unknown_senders(&mut self, each: impl FnMut(SocketAddr, &[u8]));

    /// Announces the engine's conversation `session` with `peer`, in which packet `expected` comes next: a port that
    /// can check sequences and acknowledge may do so from now on. False where it leaves that to the engine.
    fn sequence(&mut self, _peer: PeerIndex, _session: u32, _expected: u32) -> bool {
        false
    }
}
