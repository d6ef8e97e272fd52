//! Ports: what moves packets. The contract of every port, real or simulated.

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod memory;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::fault::Result;
use crate::quantity::Bytes;

crate::named! {
    /// The ports to other hosts.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum NetworkKind {
        /// The kernel's UDP.
        Udp = "udp",
        /// Frames past the kernel's network stack.
        Afxdp = "afxdp",
        /// Packets received by a program at the driver's hook.
        Xdp = "xdp",
    }
}

/// A peer as one port numbers it: dense, from 0, never reused while the port lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PeerIndex(pub u32);

/// The promises of a port; the engine adapts to them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// Packets of one peer arrive in the order sent.
    pub ordered: bool,
    /// Packets arrive once, unless the peer dies.
    pub reliable: bool,
    /// Largest packet.
    pub mtu: Bytes,
    /// Whether [`Port::read_remote`] works: large messages then move by a single copy.
    pub remote_read: bool,
}

/// Body of a packet, kept by its sender in case it must be sent again.
pub type Shared = Arc<Vec<u8>>;

/// Fills a packet: `fill` writes its head of `head` bytes, `body` follows.
pub fn joined(head: usize, fill: impl FnOnce(&mut [u8]), body: &[u8]) -> impl FnOnce(&mut [u8]) {
    move |into| {
        let (first, rest) = into.split_at_mut(head);
        fill(first);
        rest.copy_from_slice(body);
    }
}

/// The outcome of one [`Port::send`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The packet is the port's; it may still wait for [`Port::flush`].
    Taken,
    /// No room now; `fill` was not called. Try again after receiving.
    Full,
    /// The peer is gone; `fill` was not called.
    Gone,
}

/// News of a peer other than a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// The peer's process has certainly ended.
    Dead(PeerIndex),
    /// The peer closed its port in good order; its process may live on. Everything it sent was delivered.
    Closed(PeerIndex),
    /// The peer's host refused a packet: nobody listens there.
    Refused(PeerIndex),
}

/// One end of a packet path to any number of peers. Never blocks.
///
/// `fill` and `deliver` are called inline, so that a packet is written to and read from the port's own memory.
pub trait Port {
    /// The properties that the port promises.
    fn capabilities(&self) -> Capabilities;

    /// Sends `peer` one packet of exactly `length` bytes, 0 to `mtu`. `fill` gets a slice of that length in the port's
    /// own memory, holding whatever was there before, and must write all of it.
    ///
    /// A fault where `length` is over the mtu or `peer` was never given out; `fill` was not called then.
    fn send(&mut self, peer: PeerIndex, length: usize, fill: impl FnOnce(&mut [u8])) -> Result<Sent>;

    /// Sends a packet that consists of a head of `head` bytes, which `fill` writes, and of `body`; else as
    /// [`Port::send`]. A port may keep a reference to `body` until the packet has left, in place of a copy.
    fn send_apart(
        &mut self,
        peer: PeerIndex,
        head: usize,
        fill: impl FnOnce(&mut [u8]),
        body: &Shared,
    ) -> Result<Sent> {
        self.send(peer, head + body.len(), joined(head, fill, body))
    }

    /// Hands everything taken to the wire. A no-op where `send` already does.
    fn flush(&mut self) -> Result<()>;

    /// Delivers at most `budget` packets that have arrived; returns how many. A packet may lie in memory that the peer
    /// can still write: read a value that decides something once, and copy the rest.
    fn receive(&mut self, budget: usize, deliver: impl FnMut(PeerIndex, &[u8])) -> Result<usize>;

    /// Looks for news about peers; cheap enough to call every few thousand polls, not every poll. The end of a peer is
    /// reported once, after the last of its packets that arrived was delivered; [`Port::send`] says `Gone` from the
    /// moment it is known.
    fn notices(&mut self, report: impl FnMut(Notice)) -> Result<()>;

    /// Whether nothing has arrived and nothing waits to leave, where a read or two of memory tell that; false
    /// elsewhere. [`Port::receive`] is to be called now and then all the same, as it has other work too.
    #[inline]
    fn is_idle(&mut self) -> bool {
        false
    }

    /// Tells the port that the caller waits and has yielded: sources that cost more than a read of memory may be polled soon.
    fn waited(&mut self) {}

    /// Number of peers that came by themselves; 0 where the port has none such.
    #[inline]
    fn arrivals(&self) -> usize {
        0
    }

    /// Reads `into.len()` bytes at `address` of the peer's memory. Only where `remote_read` is promised; a fault
    /// means that this way is closed for this peer and the engine must move the bytes in packets.
    fn read_remote(&mut self, peer: PeerIndex, address: u64, into: &mut [u8]) -> Result<()>;
}
