//! The port: sends by the kernel's UDP socket, and receives from its lane and, for packets left to the kernel, from the socket.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use machine::port::Shared;
use machine::{Bytes, Capabilities, Fault, Notice, PeerIndex, Port, Result, Sent, XdpMode};

use super::hook::Hook;
use super::lane::{Lane, LaneCounters};
use super::layout::{self, header};
use super::membership::{self, Membership};
use crate::network::NetworkPort;
use crate::udp::{UdpCounters, UdpPort};
use linux::addresses;
use linux::xdp::{Attached, Interface};

/// Receives between two polls of the socket without a hint from the lane: packets also come by other interfaces, and in
/// fragments.
const RECEIVES_PER_LOOK: u32 = 256;
/// Receives that poll the socket once the program has left a packet to it, which may still be on its way.
const POLLS_PER_PACKET: u32 = 64;

/// Polls of a lane whose program has gone.
const POLLS_OF_GONE_LANE: u32 = 16;
/// Most times that a port joins another lane.
const JOINS_MOST: u32 = 16;

/// A [`Port`] whose packets a program at the driver hook receives: unordered, unreliable, never blocks.
pub struct XdpPort {
    udp: UdpPort,
    interface: Interface,
    membership: Membership,
    note: Option<String>,
    lane: Lane,
    /// The lane of a program that has gone, whose last packets may have come while another was joined.
    former: Option<Former>,
    joined_again: u32,
    unsequenced: u64,
    /// Counters of the lanes before this one.
    earlier: LaneCounters,
    peers: Vec<Peer>,
    /// Peers by place in the lane's table of sessions.
    places: Vec<Option<PeerIndex>>,
    passed: u64,
    looks: u32,
    idle: u32,
}

struct Former {
    lane: Lane,
    places: Vec<Option<PeerIndex>>,
    looks: u32,
}

struct Peer {
    address: SocketAddr,
    session: Option<Session>,
}

/// A conversation that the program sequences.
#[derive(Clone, Copy)]
struct Session {
    place: usize,
    number: u32,
    /// The first missing packet, as the peer was last told by us.
    told: u32,
}

impl XdpPort {
    /// Opens a socket at `local`, an address of `interface` (port number 0 takes any free one), and gets a lane:
    /// of a program that it attaches, or of the one that another process of this user has attached.
    pub fn open(local: SocketAddr, interface: &str) -> Result<XdpPort> {
        let interface = Interface::named(interface)?;
        let udp = UdpPort::open(local)?;
        belongs(local, &interface)?;
        let (membership, lane, joined) = membership::join(interface.name(), udp.as_fd())?;
        Ok(XdpPort { note: joined.note, ..XdpPort::over(udp, interface, membership, lane) })
    }

    /// A port on a hook of this process, in the hook's mode.
    pub fn at(udp: UdpPort, hook: &Arc<Hook>) -> Result<XdpPort> {
        let (lent, lane) = membership::admitted(hook, udp.as_fd())?;
        let interface = hook.interface().inside(|| Interface::named(hook.interface().name()))??;
        Ok(XdpPort::over(udp, interface, Membership::Own { lent, _service: None }, lane))
    }

    fn over(udp: UdpPort, interface: Interface, membership: Membership, lane: Lane) -> XdpPort {
        XdpPort {
            udp,
            interface,
            membership,
            note: None,
            lane,
            former: None,
            joined_again: 0,
            unsequenced: 0,
            earlier: LaneCounters::default(),
            peers: Vec::new(),
            places: vec![None; layout::SESSIONS],
            passed: 0,
            looks: 0,
            idle: 0,
        }
    }

    /// Keeps packets of unknown senders, as [`UdpPort::keep_unknown_senders`] does.
    pub fn keep_unknown_senders(&mut self) {
        self.udp.keep_unknown_senders();
    }

    /// The attachment by the kernel's account. A fault where it is not the program that serves this port.
    pub fn prove(&self) -> Result<Attached> {
        self.membership.prove(&self.interface)
    }

    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Conversations for which the program's table had no room.
    pub fn unsequenced(&self) -> u64 {
        self.unsequenced
    }

    /// The mode in which the program runs.
    pub fn mode(&self) -> XdpMode {
        self.membership.mode()
    }

    /// Whether another process has attached the program.
    pub fn is_guest(&self) -> bool {
        matches!(self.membership, Membership::Guest(_))
    }

    /// Why the program does not run in native mode, where it does not.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Number of times that the attaching process ended and this port joined another lane.
    pub fn joined_again(&self) -> u32 {
        self.joined_again
    }

    /// Counters of the program's work for this port.
    pub fn lane_counters(&self) -> LaneCounters {
        self.earlier + self.lane.counters()
    }

    /// Counters of the socket: everything sent, and packets that the program left to the kernel.
    pub fn counters(&self) -> UdpCounters {
        self.udp.counters()
    }

    /// Packets that can wait to be received: a limit of the peers' windows together. With more than a quarter of the
    /// slots waiting the program lets no peer advance, so that the others are for packets in flight.
    pub fn receive_window(&self) -> u64 {
        let socket = self.udp.buffers().receive_window(self.udp.capabilities().mtu);
        socket.min(layout::SLOTS as u64 / 4 * 3)
    }

    /// Joins another lane once the present program is gone. Where there is none, packets come by the socket.
    #[cold]
    fn join_again(&mut self) {
        // While the program runs it acknowledges packets, which must be taken from its lane.
        if self.membership.prove(&self.interface).is_ok() {
            return;
        }
        self.joined_again += 1;
        let (interface, socket) = (&self.interface, self.udp.as_fd());
        let Ok(Ok((membership, lane, joined))) = interface.inside(|| membership::join(interface.name(), socket)) else {
            return;
        };
        self.membership = membership;
        self.note = joined.note;
        self.earlier = self.lane_counters();
        let lane = std::mem::replace(&mut self.lane, lane);
        let places = std::mem::replace(&mut self.places, vec![None; layout::SESSIONS]);
        self.former = Some(Former { lane, places, looks: POLLS_OF_GONE_LANE });
        self.passed = 0;
        for (index, peer) in self.peers.iter_mut().enumerate() {
            if let Some(Session { number, told, .. }) = peer.session.take() {
                peer.session = self.lane.register(peer.address, number, told).map(|place| {
                    self.places[place] = Some(PeerIndex(index as u32));
                    Session { place, number, told }
                });
            }
        }
    }

    fn look_back(&mut self, budget: usize, deliver: &mut impl FnMut(PeerIndex, &[u8])) -> usize {
        let Some(former) = &mut self.former else { return 0 };
        let taken = take(&mut former.lane, &former.places, budget, deliver);
        if taken == 0 {
            former.looks -= 1;
            if former.looks == 0 {
                self.former = None;
            }
        }
        taken
    }
}

/// A fault where `local` is an address of other interfaces only: all packets to it would come by the kernel.
fn belongs(local: SocketAddr, interface: &Interface) -> Result<()> {
    let mut known = addresses::list()?;
    known.retain(|known| known.address == local.ip());
    match &known[..] {
        [other, ..] if known.iter().all(|known| known.interface != interface.name()) => Err(Fault::new(
            format!("port at {local} of interface {}", interface.name()),
            format!("that is an address of {}: its packets do not come to this interface", other.interface),
            "leave the address out, or choose one of the interface's: `ip address`",
        )),
        _ => Ok(()),
    }
}

/// Delivers at most `budget` packets of a lane, and gives their slots back.
#[inline]
fn take(
    lane: &mut Lane,
    places: &[Option<PeerIndex>],
    budget: usize,
    deliver: &mut impl FnMut(PeerIndex, &[u8]),
) -> usize {
    let (mut taken, mut delivered) = (0, 0);
    while taken < budget
        && let Some((place, packet)) = lane.next()
    {
        taken += 1;
        // A session that was given up may leave its last packets here.
        if let Some(&Some(peer)) = places.get(place) {
            deliver(peer, packet);
            delivered += 1;
        }
    }
    if taken > 0 {
        lane.release();
    }
    delivered
}

/// Tells the program what the engine acknowledges in the header that `fill` writes, which covers packets that came by the socket.
fn telling<'a>(
    lane: &'a mut Lane,
    peer: Option<&'a mut Peer>,
    fill: impl FnOnce(&mut [u8]) + 'a,
) -> impl FnOnce(&mut [u8]) + 'a {
    move |into| {
        fill(into);
        if let Some(session) = peer.and_then(|peer| peer.session.as_mut())
            && let Some((number, expected)) = header::session_and_expected(into)
            && number == session.number
            && expected != session.told
        {
            session.told = expected;
            lane.told(session.place, number, expected);
        }
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
        udp.send(peer, length, telling(lane, peers.get_mut(peer.0 as usize), fill))
    }

    fn send_apart(
        &mut self,
        peer: PeerIndex,
        head: usize,
        fill: impl FnOnce(&mut [u8]),
        body: &Shared,
    ) -> Result<Sent> {
        let XdpPort { udp, lane, peers, .. } = self;
        udp.send_apart(peer, head, telling(lane, peers.get_mut(peer.0 as usize), fill), body)
    }

    fn flush(&mut self) -> Result<()> {
        self.udp.flush()
    }

    fn receive(&mut self, budget: usize, mut deliver: impl FnMut(PeerIndex, &[u8])) -> Result<usize> {
        let mut taken = take(&mut self.lane, &self.places, budget, &mut deliver);
        let passed = self.lane.passed();
        if passed != self.passed {
            self.passed = passed;
            self.looks = POLLS_PER_PACKET;
        }
        self.idle += 1;
        if self.looks > 0 || self.idle >= RECEIVES_PER_LOOK {
            self.looks = self.looks.saturating_sub(1);
            self.idle = 0;
            taken += self.look_back(budget - taken, &mut deliver);
            let came = self.udp.receive(budget - taken, deliver)?;
            // A datagram may have held many packets.
            self.looks = if came > 0 { POLLS_PER_PACKET } else { self.looks };
            taken += came;
        }
        Ok(taken)
    }

    fn notices(&mut self, report: impl FnMut(Notice)) -> Result<()> {
        if self.joined_again < JOINS_MOST && self.membership.has_ended() {
            self.join_again();
        }
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
            self.peers.push(Peer { address, session: None });
        }
        Ok(index)
    }

    fn unknown_senders(&mut self, each: impl FnMut(SocketAddr, &[u8])) {
        self.udp.unknown_senders(each);
    }

    /// Lets the program sequence the engine's packets of `session` with `peer`, of which `expected` comes next. An earlier
    /// session with the peer is left to the socket from now on. False where its table has no room: this session is left to the
    /// socket, too. then this one is, too.
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
        self.unsequenced += u64::from(entry.session.is_none());
        entry.session.is_some()
    }
}
