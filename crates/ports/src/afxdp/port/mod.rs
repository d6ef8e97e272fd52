//! The `afxdp:IFACE` port: UDP datagrams to other hosts, written into and read from frames past the kernel's stack.
//!
//! On the wire it is UDP, so a peer may as well use a [`UdpPort`]. A kernel socket at the same address reserves it and
//! is the second path in and out, counted apart in [`AfxdpCounters`]. It carries:
//! - the first packets to a peer, which make the kernel resolve the hardware address of the next hop, and one whenever
//!   the kernel has had no confirmation of that address for a while;
//! - packets longer than a frame or than the peer's route takes in one piece;
//! - bursts in copy mode, where the kernel takes a frame of ours one by one and its own segmentation takes 64 packets in
//!   one pass ([`AfxdpPort::set_burst`]);
//! - packets that the program leaves to the kernel: fragments, IPv4 options, IPv6 extensions, frames of other queues.
//!
//! Refusals come by it as well: the kernel delivers an ICMP message to the socket at the address that it names, whoever
//! sent the datagram.

mod burst;
mod frame;
mod holder;
mod neighbours;
mod nic;
#[cfg(test)]
mod process_tests;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use machine::bounds::UNKNOWN_SENDERS;
use machine::{Bytes, Capabilities, Fault, Notice, PeerIndex, Port, Result, Sent};

use burst::{BURST, Burst};
pub use frame::{Datagram, Malformed, read as read_datagram};
use frame::{ETHERNET, Template};
use nic::Arrived;
pub use nic::{Dropped, Nic, NicCounters, NicInForce, NicOptions};

use super::receiver::Held;
use super::sender::Blank;
use super::socket::Memory;
use crate::network::{NetworkPort, as_sent};
use crate::udp::{UdpCounters, UdpPort};
use linux::netlink::Neighbour;

/// Offset of a payload in a frame that is sent: aligned to a cache line, with room for headers before it.
const PAYLOAD_AT: usize = 64;
/// Frames taken from the shared ones at a time, and most frames that wait for a kick.
const BATCH: usize = 64;
/// Receives without polling the kernel socket while nothing indicates a packet there.
const CALLS_PER_KERNEL_POLL: u32 = 512;
/// Polls after the program has left a datagram to the kernel, which takes a moment to reach the socket.
const KERNEL_POLLS: u32 = 1024;
/// Time between two attempts to resolve the hardware address of a next hop, at first and at last.
const ASK_FIRST: Duration = Duration::from_micros(20);
const ASK_LAST: Duration = Duration::from_millis(50);
/// Time between two packets that make the kernel confirm an address.
const CONFIRM: Duration = Duration::from_secs(5);
/// Most packets of unknown senders kept between two calls of [`NetworkPort::unknown_senders`].
const MOST_UNKNOWN: usize = UNKNOWN_SENDERS.total.count();

const _: () = assert!(PAYLOAD_AT >= frame::headers(false));

/// Counters since the port was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AfxdpCounters {
    /// Packets sent in frames of ours.
    pub frames_sent: u64,
    pub frames_received: u64,
    /// Packets sent by the kernel socket; [`AfxdpPort::kernel_counters`] says more.
    pub kernel_sent: u64,
    pub kernel_received: u64,
    /// Packets sent by the kernel as part of a burst.
    pub burst_sent: u64,
    /// Packets sent by the kernel to confirm an address.
    pub confirmations: u64,
    /// System calls that polled the kernel socket.
    pub kernel_looks: u64,
    /// Sends answered with [`Sent::Full`].
    pub full: u64,
    /// Packets from addresses that are no peers.
    pub unknown_senders: u64,
    /// Packets of unknown senders dropped because too many waited.
    pub unknown_senders_dropped: u64,
}

/// The present path of packets to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// Frames of ours.
    Frames,
    /// The kernel's path, while the kernel resolves the hardware address of the next hop.
    Asking,
    /// The kernel's path, since resolution of the next hop failed.
    Unanswered,
    /// The kernel's path: the address is this host's own, so no frame is sent.
    Local,
}

struct Peer {
    address: SocketAddr,
    next_hop: IpAddr,
    /// Present while the hardware address of the next hop is known.
    template: Option<Template>,
    unanswered: bool,
    local: bool,
    /// Whether the next packet goes by the kernel.
    confirm: bool,
    confirmed: Instant,
    /// The longest packet that a frame and the route take in one piece.
    payload: usize,
    burst: Burst,
    ask_at: Instant,
    patience: Duration,
}

impl Peer {
    fn way(&self) -> Path {
        match self {
            Peer { local: true, .. } => Path::Local,
            Peer { template: Some(_), .. } => Path::Frames,
            Peer { unanswered: true, .. } => Path::Unanswered,
            _ => Path::Asking,
        }
    }
}

/// A port at one address of an interface: unordered, unreliable, never blocks.
pub struct AfxdpPort {
    nic: Arc<Nic>,
    memory: Memory,
    /// The local address as frames have it, like all addresses here.
    local: SocketAddr,
    /// The kernel socket, which numbers peers as this port does.
    kernel: UdpPort,
    mtu: usize,
    /// The longest payload that fits into a frame.
    longest: usize,
    in_use: bool,
    peers: Vec<Peer>,
    known: HashMap<SocketAddr, PeerIndex>,
    /// The sender of the last packet, likely that of the next.
    last: Option<(SocketAddr, PeerIndex)>,
    blanks: Vec<Blank>,
    /// Frames written and not yet kicked, each with offset and length of its content.
    staged: Vec<(Blank, usize, usize)>,
    /// Whether the kernel left frames at the last kick.
    left: bool,
    arrived: Vec<Arrived>,
    /// Delivered frames, to be given back at the next receive.
    done: Vec<Held>,
    generation: u64,
    /// When stale addresses are checked again.
    recheck: Instant,
    passed: u64,
    looks: u32,
    always_look: bool,
    receives: u32,
    unknown_senders: Vec<(SocketAddr, Vec<u8>)>,
    /// Most packets to one peer between two flushes that are no burst; `None`: bursts are not told apart.
    burst: Option<u32>,
    /// Number of flushes with something to send.
    round: u64,
    anything: bool,
    counters: AfxdpCounters,
}

impl AfxdpPort {
    /// Opens a port at `local`, an address of `interface`; port number 0 takes any free one. Both are of the network
    /// namespace of the calling thread. All ports of a process share one [`Nic`] of the interface.
    pub fn open(interface: &str, local: SocketAddr) -> Result<AfxdpPort> {
        AfxdpPort::on(Nic::shared(interface, &NicOptions::default())?, local)
    }

    /// Opens a port as [`AfxdpPort::open`] does, on an interface that the caller opened with options.
    pub fn on(nic: Arc<Nic>, local: SocketAddr) -> Result<AfxdpPort> {
        if local.ip().is_unspecified() {
            let next = format!("give one of its addresses; `ip address show {}` lists them", nic.interface().name());
            return Err(Fault::new(format!("port afxdp:{} at {local}", nic.interface().name()), "no address", next));
        }
        let mut kernel = UdpPort::open(local)?;
        // The socket also stays unconnected, since packets that the program passes may be of any sender.
        kernel.keep_unknown_senders();
        let local = as_sent(kernel.local_address());
        nic.register(local)?;
        let memory = nic.memory();
        let headers = frame::headers(local.is_ipv4());
        let mtu = nic.mtu() + ETHERNET - headers;
        let longest = (nic.longest() - headers).min(nic.in_force().frame_size.0 as usize - PAYLOAD_AT);
        Ok(AfxdpPort {
            memory,
            local,
            kernel,
            mtu,
            longest,
            in_use: false,
            peers: Vec::new(),
            known: HashMap::new(),
            last: None,
            blanks: Vec::with_capacity(BATCH),
            staged: Vec::with_capacity(BATCH),
            left: false,
            arrived: Vec::new(),
            done: Vec::new(),
            generation: nic.generation(),
            recheck: Instant::now() + CONFIRM,
            passed: nic.passed_of_ours(),
            looks: 0,
            always_look: false,
            receives: 0,
            unknown_senders: Vec::new(),
            burst: (nic.in_force().mode == super::Mode::Copy).then_some(BURST),
            round: 0,
            anything: false,
            counters: AfxdpCounters::default(),
            nic,
        })
    }

    pub fn nic(&self) -> &Arc<Nic> {
        &self.nic
    }

    pub fn counters(&self) -> AfxdpCounters {
        self.counters
    }

    /// Counters of the kernel socket at the same address.
    pub fn kernel_counters(&self) -> UdpCounters {
        self.kernel.counters()
    }

    pub fn peer_address(&self, peer: PeerIndex) -> Option<SocketAddr> {
        self.peers.get(peer.0 as usize).map(|peer| peer.address)
    }

    pub fn way(&self, peer: PeerIndex) -> Option<Path> {
        self.peers.get(peer.0 as usize).map(Peer::way)
    }

    /// The present path of packets to each peer, in the peers' order.
    pub fn ways(&self) -> impl Iterator<Item = Path> {
        self.peers.iter().map(Peer::way)
    }

    /// Packets that can wait here to be received; the peers' windows together must fit in.
    pub fn receive_window(&self) -> u64 {
        self.nic.receive_frames().min(self.kernel.buffers().receive_window(Bytes(self.mtu as u64)))
    }

    /// Lets the kernel socket send bursts of more than `limit` packets to a peer between two flushes; `None`: no
    /// bursts. The default is 3 in copy mode and `None` in zero copy.
    pub fn set_burst(&mut self, limit: Option<u32>) {
        self.burst = limit;
    }

    /// Looks the next hop of a peer up.
    fn resolve(&mut self, index: usize, now: Instant) {
        let found = self.nic.neighbours().look_up(self.peers[index].next_hop);
        self.take_in(index, found, now);
    }

    fn take_in(&mut self, index: usize, found: Option<Neighbour>, now: Instant) {
        let from = (self.nic.hardware(), self.local);
        let peer = &mut self.peers[index];
        if peer.local {
            return;
        }
        peer.unanswered = found.is_some_and(|neighbour| neighbour.failed);
        match found.and_then(|neighbour| neighbour.hardware) {
            Some(hardware) => {
                peer.template = Some(Template::new(from, (hardware, peer.address)));
                peer.patience = ASK_FIRST;
                if found.is_some_and(|neighbour| neighbour.stale)
                    && now.saturating_duration_since(peer.confirmed) >= CONFIRM
                {
                    peer.confirm = true;
                    peer.confirmed = now;
                }
            }
            None => {
                peer.template = None;
                peer.ask_at = now + peer.patience;
                peer.patience = (peer.patience * 2).min(ASK_LAST);
            }
        }
    }

    /// Whether this packet goes in a frame of ours.
    #[inline]
    fn by_frame(&mut self, index: usize, length: usize) -> bool {
        if self.peers[index].template.is_none() && !self.peers[index].local {
            let now = Instant::now();
            if now >= self.peers[index].ask_at {
                self.resolve(index, now);
            }
        }
        let peer = &mut self.peers[index];
        if peer.template.is_none() || length > peer.payload {
            return false;
        }
        if peer.confirm {
            peer.confirm = false;
            self.counters.confirmations += 1;
            return false;
        }
        if let Some(limit) = self.burst
            && peer.burst.with_another(limit, self.round)
        {
            self.counters.burst_sent += 1;
            return false;
        }
        true
    }

    /// Gets free frames to write to; says whether there are any.
    #[cold]
    fn refill(&mut self) -> Result<bool> {
        if self.nic.rings().sender.lend(BATCH, &mut self.blanks) == 0 {
            self.kick()?;
            self.nic.rings().sender.lend(BATCH, &mut self.blanks);
        }
        Ok(!self.blanks.is_empty())
    }

    /// Hands the staged frames to the kernel, and again those that it left before.
    #[inline]
    fn kick(&mut self) -> Result<()> {
        let mut rings = self.nic.rings();
        for (blank, at, length) in self.staged.drain(..) {
            assert!(rings.sender.push(blank, at, length).is_ok(), "the ring holds every frame");
        }
        self.left = rings.sender.flush_if_up()? > 0;
        Ok(())
    }

    /// Whether the kernel socket is due for a poll.
    #[inline]
    fn look_due(&mut self) -> bool {
        let passed = self.nic.passed_of_ours();
        if passed != self.passed {
            self.passed = passed;
            self.looks = KERNEL_POLLS;
        }
        self.receives = self.receives.wrapping_add(1);
        if self.looks > 0 {
            self.looks -= 1;
            return true;
        }
        self.always_look || self.receives.is_multiple_of(CALLS_PER_KERNEL_POLL)
    }

    fn by_kernel(&mut self, budget: usize, deliver: &mut impl FnMut(PeerIndex, &[u8])) -> Result<usize> {
        self.counters.kernel_looks += 1;
        let came = self.kernel.receive(budget, deliver)?;
        if came > 0 {
            self.looks = KERNEL_POLLS;
            self.counters.kernel_received += came as u64;
        }
        Ok(came)
    }

    fn peer_of(&mut self, from: SocketAddr) -> Option<PeerIndex> {
        match self.last {
            Some((address, index)) if address == from => Some(index),
            _ => {
                let index = *self.known.get(&from)?;
                self.last = Some((from, index));
                Some(index)
            }
        }
    }

    #[cold]
    fn keep_unknown(&mut self, from: SocketAddr, at: usize) {
        self.counters.unknown_senders += 1;
        if self.unknown_senders.len() == MOST_UNKNOWN {
            self.counters.unknown_senders_dropped += 1;
            return;
        }
        let Arrived { held, at, length, .. } = &self.arrived[at];
        self.unknown_senders.push((from, self.memory.held(held)[*at..*at + *length].to_vec()));
    }
}

impl Port for AfxdpPort {
    fn capabilities(&self) -> Capabilities {
        Capabilities { ordered: false, reliable: false, mtu: Bytes(self.mtu as u64), remote_read: false }
    }

    fn send(&mut self, peer: PeerIndex, length: usize, fill: impl FnOnce(&mut [u8])) -> Result<Sent> {
        if length > self.mtu {
            return Err(Fault::new(
                format!("packet of {length} bytes"),
                format!("the largest on this port is {} bytes", self.mtu),
                "send it in several packets",
            ));
        }
        let index = peer.0 as usize;
        if index >= self.peers.len() {
            return Err(Fault::new(
                format!("peer {index}"),
                format!("this port has {} peers", self.peers.len()),
                "add the peer first",
            ));
        }
        if !self.in_use {
            self.in_use = true;
            self.kernel.settle_mtu();
        }
        self.anything = true;
        if !self.by_frame(index, length) {
            let sent = self.kernel.send(peer, length, fill)?;
            self.counters.kernel_sent += u64::from(sent == Sent::Taken);
            self.counters.full += u64::from(sent == Sent::Full);
            return Ok(sent);
        }
        if self.blanks.is_empty() && !self.refill()? {
            self.counters.full += 1;
            return Ok(Sent::Full);
        }
        let (Some(template), Some(mut blank)) = (&self.peers[index].template, self.blanks.pop()) else {
            unreachable!("both were just looked at");
        };
        let headers = template.headers();
        let at = PAYLOAD_AT - headers;
        let bytes = self.memory.blank(&mut blank, at, frame::length_of(headers, length));
        fill(&mut bytes[headers..headers + length]);
        let end = template.write(bytes, length);
        self.staged.push((blank, at, end));
        self.counters.frames_sent += 1;
        if self.staged.len() >= BATCH {
            self.kick()?;
        }
        Ok(Sent::Taken)
    }

    fn flush(&mut self) -> Result<()> {
        self.round += u64::from(std::mem::take(&mut self.anything));
        if !self.staged.is_empty() || self.left {
            self.kick()?;
        }
        self.kernel.flush()
    }

    fn receive(&mut self, budget: usize, mut deliver: impl FnMut(PeerIndex, &[u8])) -> Result<usize> {
        if budget == 0 {
            return Ok(0);
        }
        let look = self.look_due();
        // A flood of frames does not starve the kernel socket, nor the reverse.
        let frames = match (look, self.receives.is_multiple_of(2)) {
            (false, _) => budget,
            (true, true) => budget.div_ceil(2),
            (true, false) => budget / 2,
        };
        let mut delivered = 0;
        let AfxdpPort { nic, memory, local, arrived, done, .. } = self;
        nic.rings().receive(memory, *local, frames, done.drain(..), arrived);
        for at in 0..self.arrived.len() {
            let from = self.arrived[at].from;
            match self.peer_of(from) {
                Some(peer) => {
                    let Arrived { held, at, length, .. } = &self.arrived[at];
                    deliver(peer, &self.memory.held(held)[*at..*at + *length]);
                    delivered += 1;
                    self.counters.frames_received += 1;
                }
                None => self.keep_unknown(from, at),
            }
        }
        self.done.extend(self.arrived.drain(..).map(|arrived| arrived.held));
        if look && delivered < budget {
            delivered += self.by_kernel(budget - delivered, &mut deliver)?;
        }
        Ok(delivered)
    }

    fn notices(&mut self, report: impl FnMut(Notice)) -> Result<()> {
        let now = Instant::now();
        self.nic.tend(now)?;
        let generation = self.nic.generation();
        if generation != self.generation || now >= self.recheck {
            self.generation = generation;
            self.recheck = now + CONFIRM;
            for index in 0..self.peers.len() {
                let found = self.nic.neighbours().known(self.peers[index].next_hop);
                // A next hop that was never looked up waits for its first packet.
                if found.is_some() || self.peers[index].template.is_some() {
                    self.take_in(index, found, now);
                }
            }
        }
        self.kernel.notices(report)
    }

    fn read_remote(&mut self, peer: PeerIndex, _address: u64, _into: &mut [u8]) -> Result<()> {
        Err(Fault::new(
            format!("memory of peer {}", peer.0),
            "an AF_XDP port does not read remote memory",
            "move the bytes in packets",
        ))
    }
}

impl NetworkPort for AfxdpPort {
    fn local_address(&self) -> SocketAddr {
        self.kernel.local_address()
    }

    /// A fault where the kernel sends to `address` by another interface. The port's mtu becomes the smallest of
    /// its peers' routes, up to the first packet; see [`UdpPort::add_peer`].
    fn add_peer(&mut self, address: SocketAddr) -> Result<PeerIndex> {
        let (given, address) = (address, as_sent(address));
        if let Some(&index) = self.known.get(&address) {
            return Ok(index);
        }
        let interface = self.nic.interface().name();
        let fault = |cause: String, next: &str| {
            Fault::new(format!("port afxdp:{interface} at {}: peer {address}", self.local), cause, next)
        };
        if address.is_ipv4() != self.local.is_ipv4() {
            return Err(fault("an address of the other family".into(), "give the peer's address of the port's family"));
        }
        let route = self.nic.neighbours().route(self.local.ip(), address.ip())?;
        if !route.local && route.interface != self.nic.interface().index() {
            let cause = format!("the kernel sends to it by another interface, of index {}", route.interface);
            return Err(fault(cause, "name that interface, set a route (`ip route`), or use udp"));
        }
        let payload = self.kernel.payload_to(given)?.min(self.longest);
        let index = self.kernel.add_peer(given)?;
        assert_eq!(index.0 as usize, self.peers.len(), "both number alike");
        if !self.in_use {
            self.mtu = self.mtu.min(self.kernel.capabilities().mtu.0 as usize);
        }
        let now = Instant::now();
        self.peers.push(Peer {
            address,
            next_hop: route.gateway.unwrap_or(address.ip()),
            template: None,
            unanswered: false,
            local: route.local,
            confirm: false,
            confirmed: now,
            payload,
            burst: Burst::default(),
            ask_at: now,
            patience: ASK_FIRST,
        });
        self.known.insert(address, index);
        // The program does not see packets that a host sends to itself.
        self.always_look |= route.local;
        Ok(index)
    }

    fn unknown_senders(&mut self, mut each: impl FnMut(SocketAddr, &[u8])) {
        for (from, packet) in self.unknown_senders.drain(..) {
            each(from, &packet);
        }
        self.kernel.unknown_senders(each);
    }
}

impl Drop for AfxdpPort {
    fn drop(&mut self) {
        let _ = self.kick();
        self.nic.unregister(self.local);
        let arrived = std::mem::take(&mut self.arrived);
        let mut rings = self.nic.rings();
        rings.release(self.done.drain(..).chain(arrived.into_iter().map(|arrived| arrived.held)));
        for blank in self.blanks.drain(..).chain(self.staged.drain(..).map(|(blank, ..)| blank)) {
            rings.sender.restore(blank);
        }
    }
}
