//! The port: sends by the kernel's UDP socket, receives from its lane and, what the program left, from the socket.

use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::AsFd;
use std::sync::Arc;

use machine::{Bytes, Capabilities, Fault, Notice, PeerIndex, Port, Result, Sent};
use offcode::manifest::XdpMode;

use super::hook::{Hook, Seat};
use super::lane::{Lane, LaneCounters};
use super::layout::{self, header};
use crate::network::NetworkPort;
use crate::udp::{UdpBuffers, UdpCounters, UdpPort};

/// Receives between two looks at the socket that nothing in the lane calls for: packets also come by other interfaces,
/// and in fragments.
const RECEIVES_PER_LOOK: u32 = 256;
/// Receives that look at the socket once the program has left a packet to it: the packet may still be on its way.
const LOOKS_PER_PACKET: u32 = 64;

/// A [`Port`] whose packets a program at the driver hook receives: unordered, unreliable, never blocks.
pub struct XdpPort {
    udp: UdpPort,
    lane: Lane,
    seat: Seat,
    peers: Vec<Peer>,
    /// By place in the lane's table of sessions.
    places: Vec<Option<PeerIndex>>,
    passed: u64,
    looks: u32,
    idle: u32,
}

struct Peer {
    address: SocketAddrV4,
    session: Option<Session>,
}

/// A conversation that the program takes care of.
#[derive(Clone, Copy)]
struct Session {
    place: usize,
    number: u32,
    /// The first packet that we have not, as the peer was last told by us.
    told: u32,
}

impl XdpPort {
    /// Opens a socket at `local`, an IPv4 address of `interface` (port number 0 takes any free one), and attaches the
    /// program in `mode` and no other.
    pub fn open(local: SocketAddr, interface: &str, mode: XdpMode) -> Result<XdpPort> {
        XdpPort::at(UdpPort::open(local)?, &Arc::new(Hook::attach(interface, mode)?))
    }

    /// Over a hook of this process.
    pub fn at(udp: UdpPort, hook: &Arc<Hook>) -> Result<XdpPort> {
        let (seat, memory) = hook.admit(udp.as_fd())?;
        let words =
            memory.words().map_err(|e| Fault::because("memory of a lane", e, "run as root, or with CAP_BPF"))?;
        Ok(XdpPort {
            udp,
            lane: Lane::over(words),
            seat,
            peers: Vec::new(),
            places: vec![None; layout::SESSIONS],
            passed: 0,
            looks: 0,
            idle: 0,
        })
    }

    /// As [`UdpPort::welcome_strangers`].
    pub fn welcome_strangers(&mut self) {
        self.udp.welcome_strangers();
    }

    /// The program that receives; [`Hook::prove`] asks the kernel whether it is there.
    pub fn hook(&self) -> &Arc<Hook> {
        self.seat.hook()
    }

    /// What the program did for this port.
    pub fn lane_counters(&self) -> LaneCounters {
        self.lane.counters()
    }

    /// What the socket did: all that was sent, and what the program left to the kernel.
    pub fn counters(&self) -> UdpCounters {
        self.udp.counters()
    }

    pub fn buffers(&self) -> UdpBuffers {
        self.udp.buffers()
    }
}

impl Port for XdpPort {
    fn capabilities(&self) -> Capabilities {
        let socket = self.udp.capabilities();
        Capabilities { mtu: Bytes(socket.mtu.0.min(layout::SLOT_BYTES as u64)), ..socket }
    }

    fn send(&mut self, peer: PeerIndex, length: usize, fill: impl FnOnce(&mut [u8])) -> Result<Sent> {
        if length > layout::SLOT_BYTES {
            return Err(Fault::new(
                format!("packet of {length} bytes"),
                format!("the largest on this port is {}", self.capabilities().mtu),
                "send it in several packets",
            ));
        }
        let XdpPort { udp, lane, peers, .. } = self;
        let session = peers.get_mut(peer.0 as usize).and_then(|peer| peer.session.as_mut());
        udp.send(peer, length, |into| {
            fill(into);
            // What the engine tells the peer, the program must know: packets that came by the socket are in it.
            if let Some(session) = session
                && let Some((number, expected)) = header::session_and_expected(into)
                && number == session.number
                && expected != session.told
            {
                session.told = expected;
                lane.told(session.place, number, expected);
            }
        })
    }

    fn flush(&mut self) -> Result<()> {
        self.udp.flush()
    }

    fn receive(&mut self, budget: usize, mut deliver: impl FnMut(PeerIndex, &[u8])) -> Result<usize> {
        let (mut taken, mut delivered) = (0, 0);
        while taken < budget
            && let Some((place, packet)) = self.lane.next()
        {
            taken += 1;
            if let Some(&Some(peer)) = self.places.get(place) {
                deliver(peer, packet);
                delivered += 1;
            }
        }
        if taken > 0 {
            self.lane.release();
        }
        let passed = self.lane.passed();
        if passed != self.passed {
            self.passed = passed;
            self.looks = LOOKS_PER_PACKET;
        }
        self.idle += 1;
        if self.looks > 0 || self.idle >= RECEIVES_PER_LOOK {
            self.looks = self.looks.saturating_sub(1);
            self.idle = 0;
            let came = self.udp.receive(budget - taken, deliver)?;
            // What came in one piece may be many.
            self.looks = if came > 0 { LOOKS_PER_PACKET } else { self.looks };
            delivered += came;
        }
        Ok(delivered)
    }

    fn notices(&mut self, report: impl FnMut(Notice)) -> Result<()> {
        self.udp.notices(report)
    }

    fn read_remote(&mut self, peer: PeerIndex, address: u64, into: &mut [u8]) -> Result<()> {
        self.udp.read_remote(peer, address, into)
    }
}

impl NetworkPort for XdpPort {
    fn local_address(&self) -> SocketAddr {
        self.udp.local_address()
    }

    fn add_peer(&mut self, address: SocketAddr) -> Result<PeerIndex> {
        let index = self.udp.add_peer(address)?;
        if index.0 as usize == self.peers.len() {
            let SocketAddr::V4(address) = address else { unreachable!("a port of IPv4 takes no other peers") };
            self.peers.push(Peer { address, session: None });
        }
        Ok(index)
    }

    fn strangers(&mut self, each: impl FnMut(SocketAddr, &[u8])) {
        self.udp.strangers(each);
    }

    /// Has the program take care of the engine's packets of `session` with `peer`, of which `expected` comes next. A
    /// session that it had before with the peer is left to the socket from now on. False where its table has no room:
    /// then this one is, too.
    fn sequence(&mut self, peer: PeerIndex, session: u32, expected: u32) -> bool {
        let XdpPort { lane, peers, places, .. } = self;
        let Some(entry) = peers.get_mut(peer.0 as usize) else { return false };
        match entry.session {
            Some(same) if same.number == session => return true,
            Some(other) => {
                lane.forget(other.place);
                places[other.place] = None;
            }
            None => {}
        }
        entry.session = lane.register(entry.address, session, expected).map(|place| {
            places[place] = Some(peer);
            Session { place, number: session, told: expected }
        });
        entry.session.is_some()
    }
}
