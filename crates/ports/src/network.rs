//! Ports to other hosts: what they have beyond [`machine::Port`], so that an endpoint takes any of them.

use std::net::SocketAddr;

use machine::{PeerIndex, Port, Result};

/// An address as a packet has it: without the index of an interface, which each host numbers by itself, and flow label.
pub fn as_sent(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}

pub(crate) fn is_link_local(address: SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local())
}

/// A port whose peers have network addresses.
pub trait NetworkPort: Port {
    /// Where peers send to.
    fn local_address(&self) -> SocketAddr;

    /// Makes `address` a peer; the same address again gives the same index. Sends nothing. Where the port's own address is
    /// one of a link of IPv6, such an address of a peer is of the same link.
    fn add_peer(&mut self, address: SocketAddr) -> Result<PeerIndex>;

    /// Hands over the packets of addresses that are no peers, which [`Port::receive`] came across, and forgets them.
    /// Few are kept, so that a flood of them costs little: the newest are dropped.
    fn unknown_senders(&mut self, each: impl FnMut(SocketAddr, &[u8]));

    /// The engine's conversation `session` with `peer` begins, of which packet `expected` comes next: a port that checks
    /// sequences and acknowledges by itself may do so for it from now on. False where it leaves that to the engine.
    fn sequence(&mut self, _peer: PeerIndex, _session: u32, _expected: u32) -> bool {
        false
    }
}
