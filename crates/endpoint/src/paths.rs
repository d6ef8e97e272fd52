//! The port of an endpoint that finds its peers by name: shared memory to those on this host, a network port to others.
//!
//! A peer is reached when something is first sent to it, without its help: over shared memory by an invitation that it
//! takes when it next looks ([`ports::shm::Invitation`]), over the network by an introduction that goes before the first
//! packets until something comes back.

use std::collections::{HashMap, VecDeque};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use engine::LinkConfig;
use linux::addresses;
use linux::credentials::has_hung_up;
use linux::rendezvous::{self, Meeting};
use linux::shortage;
use machine::bounds::{INTRODUCED, SHM_CALLERS};
use machine::port::{Shared, joined};
use machine::{Bytes, Capabilities, Fault, Notice, PeerIndex, Port, Result, Sent};
use ports::network::as_sent;
use ports::shm::{Geometry, Invitation, Memory, ShmPort};

use crate::introduction::{self, Introduction};
use crate::name::{Host, Name};
use crate::network::NetworkPath;
use crate::poll_schedule::{PollSchedule, Rest};
use crate::report::Carried;
use crate::semantics::Semantics;
use crate::setbacks::{Setbacks, Tries};
use crate::settings::Settings;

/// Time between two introductions to a peer that has not been heard of.
const INTRODUCE_EVERY: Duration = Duration::from_millis(2);
/// Most connections from this host that have not said anything yet.
const MOST_CALLERS: usize = SHM_CALLERS.total.count();
/// Most connections taken in one look: more than the kernel queues, so that a look ends however many call.
const MOST_ACCEPTED: usize = 256;

/// The way to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    /// Not written to yet, or a resource of the kernel was short at the try.
    Untried,
    Shm(PeerIndex),
    Network(PeerIndex),
    /// Could not be reached, or has gone.
    Gone,
}

struct Peer {
    name: Name,
    way: Route,
    /// Whether [`Name::shares_memory_with`] holds for it.
    local: bool,
    /// Its index in the shared-memory port.
    shm: Option<PeerIndex>,
    /// Whether something came from it over the network, so that it knows us.
    introduced: bool,
    introduced_at: Option<Instant>,
    /// The tries to reach it, after the first has failed.
    tries: Option<Box<Tries>>,
}

pub struct Paths {
    name: Name,
    meeting: Meeting,
    callers: Vec<UnixStream>,
    shm: ShmPort,
    network: NetworkPath,
    peers: Vec<Peer>,
    /// Peers by the whole name: one with only a part of a peer's name is another peer.
    known: HashMap<Name, PeerIndex>,
    /// Number of other endpoints on this host.
    neighbours: usize,
    /// Number of peers that introduced themselves.
    introduced: usize,
    /// Index here of each peer of either port.
    from_shm: Vec<PeerIndex>,
    from_network: Vec<PeerIndex>,
    /// Number of peers that the engine knows.
    admitted: usize,
    /// Packets that came right behind an introduction over the network.
    early: VecDeque<(PeerIndex, Vec<u8>)>,
    incoming_shm: usize,
    schedule: PollSchedule,
    network_rest: Rest,
    over_shm: Carried,
    over_network: Carried,
    unreadable: u64,
    unseen: u64,
    setbacks: Setbacks,
}

impl Paths {
    /// The paths of an endpoint of this process. Opens the network port and the socket that takes invitations.
    pub fn open(settings: &Settings) -> Result<Paths> {
        Paths::of(settings, ShmPort::default())
    }

    /// The same for an endpoint whose messages lie in the memory of another process, which this one serves.
    pub fn on_behalf(settings: &Settings, memory: Memory) -> Result<Paths> {
        Paths::of(settings, ShmPort::on_behalf(Geometry::default(), memory))
    }

    fn of(settings: &Settings, shm: ShmPort) -> Result<Paths> {
        let ip = match settings.address {
            Some(address) => address,
            None => addresses::preferred(settings.network.interface())?,
        };
        let local = addresses::bindable(ip, settings.network.interface())?;
        let network = NetworkPath::open(&settings.network, local, settings.faults)?;
        let user = linux::user::word();
        let (token, secret) = (introduction::random()?, introduction::random()?);
        let name = Name::new(Host::here()?, user, shm.memory().pid, token, secret, network.local_address())
            .with(settings.shm, settings.semantics);
        Ok(Paths {
            meeting: Meeting::open(&name.meeting())?,
            name,
            callers: Vec::new(),
            shm,
            network,
            peers: Vec::new(),
            known: HashMap::new(),
            neighbours: 0,
            introduced: 0,
            from_shm: Vec::new(),
            from_network: Vec::new(),
            admitted: 0,
            early: VecDeque::new(),
            incoming_shm: 0,
            schedule: PollSchedule::new(),
            network_rest: Rest::default(),
            over_shm: Carried::default(),
            over_network: Carried::default(),
            unreadable: 0,
            unseen: 0,
            setbacks: Setbacks::default(),
        })
    }

    /// The name by which other endpoints reach this one.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Makes the endpoint of that name a peer; the same name again gives the same index. Nothing is sent.
    pub fn insert(&mut self, name: &Name) -> PeerIndex {
        if let Some(&peer) = self.known.get(name) {
            return peer;
        }
        let peer = PeerIndex(self.peers.len() as u32);
        // Programs insert their own names too.
        self.neighbours += usize::from(name.host() == self.name.host() && *name != self.name);
        self.peers.push(Peer {
            name: *name,
            way: Route::Untried,
            local: self.name.shares_memory_with(name),
            shm: None,
            introduced: false,
            introduced_at: None,
            tries: None,
        });
        self.known.insert(*name, peer);
        peer
    }

    /// The peer that introduces itself as `name`; `None` where too many have.
    fn meet(&mut self, name: &Name) -> Option<PeerIndex> {
        if !self.known.contains_key(name) {
            if self.introduced == INTRODUCED.total.count() {
                return None;
            }
            self.introduced += 1;
        }
        Some(self.insert(name))
    }

    /// Number of known endpoints on this host, this one included.
    pub(crate) fn on_this_host(&self) -> usize {
        self.neighbours + 1
    }

    /// The settings of the next peer that the engine does not know.
    pub(crate) fn admit(&mut self) -> Option<LinkConfig> {
        let peer = self.peers.get(self.admitted)?;
        self.admitted += 1;
        Some(if peer.local { self.local_link() } else { self.network_link(&peer.name) })
    }

    fn local_link(&self) -> LinkConfig {
        let capabilities = Capabilities { remote_read: true, ..self.shm.capabilities() };
        let link = LinkConfig::for_shared_memory(&capabilities);
        // Copying from another process's memory costs as much as the peer's own read of it.
        if self.shm.is_on_behalf() { LinkConfig { eager_near: None, ..link } } else { link }
    }

    fn network_link(&self, peer: &Name) -> LinkConfig {
        self.network.link(self.name.session_with(peer))
    }

    pub fn over_shm(&self) -> Carried {
        Carried { peers: self.from_shm.len() as u64, ..self.over_shm }
    }

    pub fn over_network(&self) -> Carried {
        Carried { peers: self.from_network.len() as u64, ..self.over_network }
    }

    pub fn network(&self) -> &NetworkPath {
        &self.network
    }

    /// Peers on this host whose memory this process may not read: their large messages come in packets.
    pub fn unreadable_peers(&self) -> u64 {
        self.unreadable
    }

    /// Such peers in PID namespaces that are not visible from here.
    pub fn unseen_peers(&self) -> u64 {
        self.unseen
    }

    /// The next peer that could not be reached, and why; each is told once.
    pub fn next_lost(&mut self) -> Option<(PeerIndex, Fault)> {
        self.setbacks.next_lost()
    }

    /// Setbacks in reaching peers, a sentence each.
    pub fn setbacks(&self) -> Vec<String> {
        self.setbacks.notes()
    }

    /// The way to a peer, which is opened where it is first written to.
    #[inline(never)]
    fn way(&mut self, peer: PeerIndex) -> Route {
        let way = self.peers[peer.0 as usize].way;
        if way == Route::Untried { self.reach(peer) } else { way }
    }

    /// Opens the way to a peer that is first written to. Where a resource of the kernel is short, a later call tries again.
    #[cold]
    fn reach(&mut self, peer: PeerIndex) -> Route {
        let Peer { name, local, ref tries, .. } = self.peers[peer.0 as usize];
        if tries.as_ref().is_some_and(|tries| !tries.are_due()) {
            return Route::Untried;
        }
        let way = self.understands(&name).and_then(|()| match local {
            true => self.reach_over_shm(peer, &name),
            false => self.reach_over_network(peer, &name),
        });
        self.settle(peer, way)
    }

    /// A fault where the endpoint of that name uses other packets on the wire.
    fn understands(&self, name: &Name) -> Result<()> {
        let [ours, theirs] = [&self.name, name].map(Name::semantics);
        if ours == theirs {
            return Ok(());
        }
        let [ours, theirs] = [ours, theirs].map(|one| one.map_or("unknown", Semantics::name));
        let cause = format!("this end has semantics {ours}");
        Err(Fault::new(format!("semantics {theirs}"), cause, "choose the same semantics for all ranks"))
    }

    fn settle(&mut self, peer: PeerIndex, way: Result<Route>) -> Route {
        let to = &mut self.peers[peer.0 as usize];
        to.way = way.unwrap_or_else(|fault| {
            to.tries = self.setbacks.failed(peer, to.tries.take(), fault);
            if to.tries.is_some() { Route::Untried } else { Route::Gone }
        });
        to.way
    }

    fn reach_over_shm(&mut self, peer: PeerIndex, name: &Name) -> Result<Route> {
        let stream = rendezvous::call_at_once(&name.meeting())?;
        let index = self.shm_index(peer);
        self.shm.invite(index, stream, self.name.as_bytes())?;
        if !self.shm.has_incoming(index) {
            self.schedule.expect_an_answer();
        }
        Ok(Route::Shm(index))
    }

    /// Index of the peer in the shared-memory port, which gets it as a new peer if necessary.
    fn shm_index(&mut self, peer: PeerIndex) -> PeerIndex {
        let known = &mut self.peers[peer.0 as usize].shm;
        *known.get_or_insert_with(|| {
            self.from_shm.push(peer);
            self.shm.add_peer()
        })
    }

    fn reach_over_network(&mut self, peer: PeerIndex, name: &Name) -> Result<Route> {
        let index = self.network.add_peer(name.address(), self.name.session_with(name))?;
        if self.from_network.len() <= index.0 as usize {
            self.from_network.push(peer);
        }
        Ok(Route::Network(index))
    }

    /// Sends an introduction before the packets, unless one has just left.
    #[cold]
    fn introduce(&mut self, peer: PeerIndex, way: PeerIndex) -> Result<()> {
        let to = &mut self.peers[peer.0 as usize];
        let now = Instant::now();
        if to.introduced_at.is_some_and(|last| now - last < INTRODUCE_EVERY) {
            return Ok(());
        }
        to.introduced_at = Some(now);
        let introduction = Introduction::write(&self.name, &to.name);
        // A full port drops it; later sends introduce again.
        self.network.send(way, introduction.len(), |into| into.copy_from_slice(&introduction))?;
        Ok(())
    }

    /// Takes in invitations and introductions.
    #[cold]
    fn accept_callers(&mut self) -> Result<()> {
        for _ in 0..MOST_ACCEPTED {
            match self.meeting.try_accept() {
                Ok(Some(stream)) => self.callers.push(stream),
                Ok(None) => break,
                // Callers wait in the kernel until the next look.
                Err(fault) if shortage::may_pass(&fault) => {
                    self.setbacks.note_passing(&fault);
                    break;
                }
                Err(fault) => return Err(fault),
            }
        }
        for at in (0..self.callers.len()).rev() {
            // Asked before the read: a caller that writes and hangs up between the two is still heard.
            let over = has_hung_up(&self.callers[at]);
            match Invitation::take(&self.callers[at]) {
                Ok(None) if !over => {}
                Ok(None) => drop(self.callers.remove(at)),
                Ok(Some(invitation)) => {
                    let stream = self.callers.remove(at);
                    // A refused caller learns it from the end of the connection.
                    let _ = self.accept(invitation, stream);
                }
                Err(fault) if shortage::may_pass(&fault) => self.setbacks.note_passing(&fault),
                Err(_) => drop(self.callers.remove(at)),
            }
        }
        // Silent early callers must not keep out those who have something to say.
        let silent = self.callers.len().saturating_sub(MOST_CALLERS);
        self.callers.drain(..silent);
        // At once: calls to others would take the resources that were just freed. If it fails, the next look tries again.
        let _ = shortage::keep_reserve();
        self.hear_unknown_senders()
    }

    fn accept(&mut self, invitation: Invitation, stream: UnixStream) -> Result<()> {
        let refuse = |cause: &str, next: &str| Fault::new("peer over shared memory", cause, next);
        let name = Name::from_bytes(&invitation.introduction)?;
        if !self.name.shares_memory_with(&name) {
            return Err(refuse("by its name it is reached over the network", "drop its invitation"));
        }
        let full = || refuse("too many have introduced themselves", "start fewer processes");
        let peer = self.meet(&name).ok_or_else(full)?;
        let index = self.shm_index(peer);
        let (seen, readable) = (invitation.is_seen(), invitation.is_readable());
        self.shm.accept(index, invitation, stream)?;
        self.unreadable += u64::from(seen && !readable);
        self.unseen += u64::from(!seen);
        self.incoming_shm += 1;
        Ok(())
    }

    fn hear_unknown_senders(&mut self) -> Result<()> {
        let mut heard = Vec::new();
        self.network.unknown_senders(|from, packet| heard.push((as_sent(from), packet.to_vec())));
        for (from, packet) in heard {
            if let Some(introduction) = Introduction::read(&packet, &self.name) {
                let name = introduction.name;
                // A peer that shares memory never comes this way, whoever claims its name.
                if name.address() == from
                    && !self.name.shares_memory_with(&name)
                    && let Some(peer) = self.meet(&name)
                    && self.peers[peer.0 as usize].way == Route::Untried
                {
                    let way = self.reach_over_network(peer, &name);
                    self.settle(peer, way);
                }
                continue;
            }
            // A packet right behind the introduction of the same sender.
            let sender = self.from_network.iter().find(|peer| self.peers[peer.0 as usize].name.address() == from);
            if let Some(&peer) = sender {
                self.early.push_back((peer, packet));
            }
        }
        Ok(())
    }

    /// Sends to a peer over the network, where it is number `index`.
    // Not inlined: sends over shared memory take half the instructions without it.
    #[inline(never)]
    fn send_afar(
        &mut self,
        peer: PeerIndex,
        index: PeerIndex,
        length: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Sent> {
        if !self.peers[peer.0 as usize].introduced {
            self.introduce(peer, index)?;
        }
        let sent = self.network.send(index, length, fill)?;
        self.over_network.count_sent(sent, length);
        Ok(sent)
    }

    /// Receives packets from the network.
    // Not inlined for the same reason as `send_afar`.
    #[inline(never)]
    fn receive_from_afar(&mut self, budget: usize, deliver: &mut dyn FnMut(PeerIndex, &[u8])) -> Result<usize> {
        let Paths { network, from_network, over_network, peers, .. } = self;
        let early = self.early.len();
        self.early.drain(..).for_each(|(peer, packet)| deliver(peer, &packet));
        let got = early
            + network.receive(budget, |index, packet| {
                // A peer introduces itself until it hears from us.
                if introduction::is_one(packet) {
                    return;
                }
                let peer = from_network[index.0 as usize];
                peers[peer.0 as usize].introduced = true;
                over_network.count_received(packet.len());
                deliver(peer, packet);
            })?;
        self.network_rest.begin(got == 0 && self.incoming_shm > 0 && !self.network.wire().looks_at_memory());
        Ok(got)
    }

    #[cold]
    #[inline(never)]
    fn look_for_callers(&mut self, budget: usize) -> Result<()> {
        if self.from_network.is_empty() {
            // No peer is known there, so nothing is delivered, and every packet is from an unknown sender.
            self.network.receive(budget, |_, _| ())?;
        }
        self.accept_callers()
    }

    /// Whether nobody is there to receive from.
    #[inline]
    fn is_alone(&self) -> bool {
        self.incoming_shm == 0 && self.from_network.is_empty()
    }
}

#[cold]
fn no_such_peer(peer: PeerIndex) -> Fault {
    Fault::new(format!("peer {}", peer.0), "there is no such peer", "insert its name first")
}

impl Port for Paths {
    /// The network port's, mostly; what differs by peer is in the settings of its link.
    fn capabilities(&self) -> Capabilities {
        let shm = self.shm.capabilities();
        let network = self.network.capabilities();
        Capabilities { mtu: Bytes(shm.mtu.0.max(network.mtu.0)), remote_read: true, ..network }
    }

    #[inline(always)]
    fn send(&mut self, peer: PeerIndex, length: usize, fill: impl FnOnce(&mut [u8])) -> Result<Sent> {
        let Some(to) = self.peers.get(peer.0 as usize) else { return Err(no_such_peer(peer)) };
        let way = if matches!(to.way, Route::Shm(_)) { to.way } else { self.way(peer) };
        if let Route::Shm(index) = way {
            let sent = self.shm.send(index, length, fill)?;
            self.over_shm.count_sent(sent, length);
            return Ok(sent);
        }
        match way {
            Route::Network(index) => self.send_afar(peer, index, length, fill),
            Route::Untried | Route::Shm(_) => Ok(Sent::Full),
            Route::Gone => Ok(Sent::Gone),
        }
    }

    fn send_apart(
        &mut self,
        peer: PeerIndex,
        head: usize,
        fill: impl FnOnce(&mut [u8]),
        body: &Shared,
    ) -> Result<Sent> {
        let length = head + body.len();
        let Some(&Peer { way: Route::Network(index), introduced: true, .. }) = self.peers.get(peer.0 as usize) else {
            return self.send(peer, length, joined(head, fill, body));
        };
        let sent = self.network.send_apart(index, head, fill, body)?;
        self.over_network.count_sent(sent, length);
        Ok(sent)
    }

    #[inline]
    fn flush(&mut self) -> Result<()> {
        if self.from_network.is_empty() { Ok(()) } else { self.network.flush() }
    }

    #[inline]
    fn receive(&mut self, budget: usize, mut deliver: impl FnMut(PeerIndex, &[u8])) -> Result<usize> {
        let mut came = 0;
        if self.incoming_shm > 0 {
            let Paths { shm, from_shm, over_shm, .. } = self;
            came = shm.receive(budget, |index, packet| {
                over_shm.count_received(packet.len());
                deliver(from_shm[index.0 as usize], packet);
            })?;
        }
        if !self.from_network.is_empty() && self.network_rest.is_over() {
            came += self.receive_from_afar(budget, &mut deliver)?;
        }
        if self.schedule.are_due(self.is_alone()) {
            self.look_for_callers(budget)?;
        }
        Ok(came)
    }

    fn notices(&mut self, mut report: impl FnMut(Notice)) -> Result<()> {
        // A peer that has gone may have called before.
        self.accept_callers()?;
        let Paths { shm, network, from_shm, from_network, peers, .. } = self;
        let mut gone = |peer: PeerIndex| peers[peer.0 as usize].way = Route::Gone;
        shm.notices(|notice| {
            let at = |index: PeerIndex| from_shm[index.0 as usize];
            report(match notice {
                Notice::Dead(index) => {
                    gone(at(index));
                    Notice::Dead(at(index))
                }
                Notice::Closed(index) => {
                    gone(at(index));
                    Notice::Closed(at(index))
                }
                Notice::Refused(index) => Notice::Refused(at(index)),
            });
        })?;
        if from_network.is_empty() {
            return Ok(());
        }
        network.notices(|notice| {
            let at = |index: PeerIndex| from_network[index.0 as usize];
            report(match notice {
                Notice::Dead(index) => Notice::Dead(at(index)),
                Notice::Closed(index) => Notice::Closed(at(index)),
                Notice::Refused(index) => Notice::Refused(at(index)),
            });
        })
    }

    #[inline]
    fn is_idle(&mut self) -> bool {
        let looks = self.schedule.count() || self.incoming_shm == 0 || !self.from_network.is_empty();
        !looks && self.early.is_empty() && self.shm.is_idle()
    }

    fn waited(&mut self) {
        self.schedule.waited();
    }

    #[inline]
    fn arrivals(&self) -> usize {
        self.peers.len()
    }

    fn read_remote(&mut self, peer: PeerIndex, address: u64, into: &mut [u8]) -> Result<()> {
        let Some(index) = self.peers.get(peer.0 as usize).and_then(|peer| peer.shm) else {
            return Err(Fault::new(format!("memory of peer {}", peer.0), "it is not on this host", "send in packets"));
        };
        self.shm.read_remote(index, address, into)?;
        self.over_shm.bytes_fetched += into.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
