//! The `udp` port: one socket, any number of peers, packets batched and segmented where the kernel can.

mod address;
#[cfg(test)]
mod conformance_tests;
pub(crate) mod control;
#[cfg(test)]
mod lab_tests;
mod pages;
mod receive;
mod refusals;
mod send;
mod socket;
#[cfg(test)]
mod tests;
mod unknown_senders;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use machine::port::Shared;
use machine::{Bytes, Capabilities, Fault, Notice, PeerIndex, Port, Result, Sent};
use serde::{Deserialize, Serialize};

use crate::network::{NetworkPort, is_link_local};

use address::RawAddress;
use receive::ReceiveQueue;
use send::{Packet, SendQueue};
use socket::RouteProbe;
pub use socket::{UdpBuffers, UdpFeatures};
use unknown_senders::UnknownSenders;

/// Counters since the port was opened. A packet is the engine's; a datagram is what one entry of a system call carried,
/// one packet or many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpCounters {
    /// System calls that sent something.
    pub send_calls: u64,
    pub datagrams_sent: u64,
    pub packets_sent: u64,
    /// Packets that left in a datagram with others (UDP_SEGMENT).
    pub segmented_sent: u64,
    /// System calls that polled for packets, and those that found none.
    pub receive_calls: u64,
    pub empty_receives: u64,
    pub datagrams_received: u64,
    pub packets_received: u64,
    /// Packets that arrived in a datagram with others (UDP_GRO).
    pub joined_received: u64,
    /// Packets dropped because their sender is no peer of this port.
    pub unknown_sender: u64,
    /// Packets dropped because they are larger than any UDP datagram may be.
    pub truncated: u64,
    /// Sends answered with [`Sent::Full`].
    pub full: u64,
    /// Packets given up because the kernel had no route to their peer.
    pub unsendable: u64,
    /// Times that the kernel refused to segment for a peer; its packets are sent one by one from then on.
    pub segmentation_refused: u64,
    /// ICMP refusals of peers of this port, and other entries of the error queue.
    pub refusals: u64,
    pub other_errors: u64,
}

struct Peer {
    raw: RawAddress,
    /// Largest packet that may be segmented on the way to this peer; 0 for none.
    segment_limit: usize,
    refused: bool,
}

impl Peer {
    fn address(&self) -> SocketAddr {
        self.raw.into()
    }
}

/// A UDP socket as a [`Port`]: unordered, unreliable, never blocks.
///
/// Packets are kept until [`Port::flush`] or until 64 KiB wait. A packet that was taken is not dropped
/// while its peer can be reached: a full socket buffer keeps packets waiting and makes [`Port::send`] say `Full`.
pub struct UdpPort {
    socket: OwnedFd,
    routes: RouteProbe,
    local: SocketAddr,
    features: UdpFeatures,
    buffers: UdpBuffers,
    mtu: usize,
    /// Whether the engine relies on `mtu`: from the first packet on.
    in_use: bool,
    /// Whether it is decided if the socket is connected.
    settled: bool,
    connected: bool,
    peers: Vec<Peer>,
    known: HashMap<RawAddress, PeerIndex>,
    /// The sender of the last packet, likely that of the next.
    last: Option<(RawAddress, PeerIndex)>,
    sending: SendQueue,
    receiving: ReceiveQueue,
    any_refused: bool,
    unknown_senders: UnknownSenders,
    counters: UdpCounters,
}

impl UdpPort {
    /// Memory of a port without its peers.
    pub const MEMORY: Bytes = Bytes((receive::MEMORY + send::ARENA) as u64);

    /// Opens a socket at `local`; port number 0 takes any free one.
    pub fn open(local: SocketAddr) -> Result<Self> {
        let (socket, local) = socket::open(local)?;
        let features = socket::probe(&socket, local.is_ipv6());
        Self::assemble(socket, local, features)
    }

    fn assemble(socket: OwnedFd, local: SocketAddr, features: UdpFeatures) -> Result<Self> {
        Ok(UdpPort {
            routes: RouteProbe::open(local)?,
            buffers: socket::grow_buffers(&socket)?,
            sending: SendQueue::new(features.segmentation, socket::largest_datagram(local.ip()))?,
            receiving: ReceiveQueue::new()?,
            socket,
            local,
            features,
            mtu: socket::default_payload(local),
            in_use: false,
            settled: false,
            connected: false,
            peers: Vec::new(),
            known: HashMap::new(),
            last: None,
            any_refused: false,
            unknown_senders: UnknownSenders::default(),
            counters: UdpCounters::default(),
        })
    }

    /// The address that peers send to; its IP is unspecified where the port was opened so.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Makes `address` a peer; the same address again gives the same index.
    ///
    /// The port's mtu becomes the smallest of its peers' routes, up to the first packet; a peer added later over a
    /// narrower route is reached by IP fragments. So add peers before reading [`Port::capabilities`].
    ///
    /// A port that comes into use with a single peer is connected to it (see [`UdpPort::is_connected`]) until another
    /// is added.
    pub fn add_peer(&mut self, address: SocketAddr) -> Result<PeerIndex> {
        if address.is_ipv4() != self.local.is_ipv4() {
            let family = if self.local.is_ipv4() { "IPv4" } else { "IPv6" };
            return Err(Fault::new(
                format!("peer {address}"),
                format!("the port at {} speaks {family} only", self.local),
                format!("give the peer's {family} address, or open a port of its family"),
            ));
        }
        let address = self.on_link(address);
        let raw = RawAddress::new(address);
        if let Some(&index) = self.known.get(&raw) {
            return Ok(index);
        }
        let payload = self.routes.payload(address)?;
        if self.connected {
            socket::disconnect(&self.socket, self.local)?;
            self.connected = false;
            self.sending.set_connected(false);
        }
        if !self.in_use {
            self.mtu = if self.peers.is_empty() { payload } else { self.mtu.min(payload) };
        }
        let index = PeerIndex(self.peers.len() as u32);
        self.peers.push(Peer { raw, segment_limit: payload, refused: false });
        self.known.insert(raw, index);
        Ok(index)
    }

    pub fn peer_address(&self, peer: PeerIndex) -> Option<SocketAddr> {
        self.peers.get(peer.0 as usize).map(Peer::address)
    }

    pub fn features(&self) -> UdpFeatures {
        self.features
    }

    /// The socket's buffers as granted; the peers' windows together must fit in [`UdpBuffers::receive_window`].
    pub fn buffers(&self) -> UdpBuffers {
        self.buffers
    }

    pub fn counters(&self) -> UdpCounters {
        self.counters
    }

    /// Whether the socket is connected: the kernel then passes packets of the only peer and refuses others, which
    /// [`UdpCounters::unknown_sender`] does not count.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// Fixes the mtu from now on, as if a packet had been sent.
    pub(crate) fn settle_mtu(&mut self) {
        self.in_use = true;
    }

    /// The largest packet that the route to `address` takes in one piece now.
    pub(crate) fn payload_to(&self, address: SocketAddr) -> Result<usize> {
        self.routes.payload(self.on_link(address))
    }

    /// The address of a peer; a link-local one is on this port's link, where the port's own is link-local.
    fn on_link(&self, address: SocketAddr) -> SocketAddr {
        match (self.local, address) {
            (SocketAddr::V6(local), SocketAddr::V6(mut peer))
                if is_link_local(self.local) && is_link_local(address) =>
            {
                peer.set_scope_id(local.scope_id());
                peer.into()
            }
            _ => address,
        }
    }

    /// Keeps packets of addresses that are no peers, for [`NetworkPort::unknown_senders`], instead of dropping them.
    /// The socket then stays unconnected, since a connected one gets no packets of others.
    pub fn keep_unknown_senders(&mut self) {
        self.unknown_senders.open();
    }

    /// Connects a socket that is first used with one peer, unless its own address is a wildcard: the peer may send to
    /// any address of this host.
    fn settle(&mut self) {
        let [peer] = &self.peers[..] else {
            self.settled = !self.peers.is_empty();
            return;
        };
        self.settled = true;
        if !self.unknown_senders.is_open()
            && !self.local.ip().is_unspecified()
            && socket::connect_to(&self.socket, peer.address()).is_ok()
        {
            self.connected = true;
            self.sending.set_connected(true);
        }
    }

    /// Datagrams that the kernel dropped because this port's receive buffer was full. One system call.
    pub fn receive_drops(&self) -> Result<u64> {
        socket::receive_drops(&self.socket)
    }

    fn put(&mut self, peer: PeerIndex, packet: Packet, fill: impl FnOnce(&mut [u8])) -> Result<Sent> {
        let length = packet.length();
        if length > self.mtu {
            return Err(Fault::new(
                format!("packet of {length} bytes"),
                format!("the largest on this port is {} bytes", self.mtu),
                "send it in several packets",
            ));
        }
        if peer.0 as usize >= self.peers.len() {
            return Err(Fault::new(
                format!("peer {}", peer.0),
                format!("this port has {} peers", self.peers.len()),
                "add the peer first",
            ));
        }
        self.in_use = true;
        if !self.settled {
            self.settle();
        }
        if let Some(room) = self.sending.stage(peer, &self.peers[peer.0 as usize], &packet) {
            fill(room);
            return Ok(Sent::Taken);
        }
        self.transmit()?;
        match self.sending.stage(peer, &self.peers[peer.0 as usize], &packet) {
            Some(room) => {
                fill(room);
                Ok(Sent::Taken)
            }
            None => {
                self.counters.full += 1;
                Ok(Sent::Full)
            }
        }
    }

    fn transmit(&mut self) -> Result<()> {
        let outcome = self.sending.transmit(&self.socket, &mut self.peers, &mut self.counters)?;
        if outcome.errors {
            self.collect_refusals();
        }
        Ok(())
    }

    /// Empties the error queue, which shares the receive buffer with packets.
    fn collect_refusals(&mut self) {
        let UdpPort { socket, peers, known, counters, any_refused, .. } = self;
        let other = refusals::drain(socket, |to| {
            if let Some(index) = known.get(&to) {
                peers[index.0 as usize].refused = true;
                *any_refused = true;
                counters.refusals += 1;
            }
        });
        self.counters.other_errors += other;
    }
}

impl Port for UdpPort {
    fn capabilities(&self) -> Capabilities {
        Capabilities { ordered: false, reliable: false, mtu: Bytes(self.mtu as u64), remote_read: false }
    }

    fn send(&mut self, peer: PeerIndex, length: usize, fill: impl FnOnce(&mut [u8])) -> Result<Sent> {
        self.put(peer, Packet { head: length, body: None }, fill)
    }

    fn send_apart(
        &mut self,
        peer: PeerIndex,
        head: usize,
        fill: impl FnOnce(&mut [u8]),
        body: &Shared,
    ) -> Result<Sent> {
        self.put(peer, Packet { head, body: Some(body) }, fill)
    }

    fn flush(&mut self) -> Result<()> {
        if self.sending.is_empty() { Ok(()) } else { self.transmit() }
    }

    fn receive(&mut self, budget: usize, deliver: impl FnMut(PeerIndex, &[u8])) -> Result<usize> {
        if !self.settled {
            self.settle();
        }
        let UdpPort { socket, known, last, counters, receiving, unknown_senders, .. } = self;
        let who = |from: &RawAddress| match last {
            Some((address, index)) if address == from => Some(*index),
            _ => {
                let index = *known.get(from)?;
                *last = Some((*from, index));
                Some(index)
            }
        };
        let (delivered, errors) = receiving.receive(socket, budget, counters, unknown_senders, who, deliver)?;
        if errors {
            self.collect_refusals();
        }
        Ok(delivered)
    }

    fn notices(&mut self, mut report: impl FnMut(Notice)) -> Result<()> {
        self.collect_refusals();
        if std::mem::take(&mut self.any_refused) {
            for (i, peer) in self.peers.iter_mut().enumerate() {
                if std::mem::take(&mut peer.refused) {
                    report(Notice::Refused(PeerIndex(i as u32)));
                }
            }
        }
        Ok(())
    }

    fn read_remote(&mut self, peer: PeerIndex, _address: u64, _into: &mut [u8]) -> Result<()> {
        Err(Fault::new(
            format!("memory of peer {}", peer.0),
            "a UDP port does not read remote memory",
            "move the bytes in packets",
        ))
    }
}

impl NetworkPort for UdpPort {
    fn local_address(&self) -> SocketAddr {
        self.local
    }

    fn add_peer(&mut self, address: SocketAddr) -> Result<PeerIndex> {
        UdpPort::add_peer(self, address)
    }

    /// Hands over nothing before [`UdpPort::keep_unknown_senders`] is called.
    fn unknown_senders(&mut self, each: impl FnMut(SocketAddr, &[u8])) {
        self.unknown_senders.hand_over(each);
    }
}

/// The socket, to sleep on until a packet comes.
impl AsFd for UdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
