//! The `shm` port: rings in memory shared with each peer on this host.
//!
//! A packet of up to 56 bytes travels inside one cache line; a longer one in the bulk ring beside. A link takes two pages, and
//! more once longer or more packets are in flight; it keeps no descriptor open but that of the peer's process. Large messages can
//! be read from the peer's memory by a single copy (`process_vm_readv`), where a test during the introduction showed that the
//! kernel permits it. The owner of that memory is named by the kernel, never by the peer.

mod handshake;
mod invitation;
mod link;
mod process;

use std::hash::{BuildHasher, Hasher};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use machine::bounds::SHM_LINKS;
use machine::{Bytes, Capabilities, Fault, Notice, PeerIndex, Port, Result, Sent};

use handshake::{Part, Prepared};

pub use handshake::Role;
use invitation::{Announcement, Answer, Invited};
pub use invitation::{INTRODUCTION, Invitation};
pub use link::Geometry;
use link::{Incoming, Outgoing};
pub use process::Memory;
use process::Process;

/// Most packets taken from one peer before the next is served.
const TURN: usize = 32;
/// Most processes that one call of `notices` checks.
const PROCESSES_PER_CHECK: usize = 64;
/// Most peers with a link to this end when another makes one by invitation; it bounds the memory of all rings.
const MOST_INCOMING: usize = SHM_LINKS.total.count();

/// One process's end of any number of shared-memory links.
pub struct ShmPort {
    geometry: Geometry,
    /// Memory of the next link that this end creates.
    prepared: Option<Prepared>,
    peers: Vec<Peer>,
    /// The peer to receive from next.
    turn: usize,
    /// The peer whose process is checked next.
    watched: usize,
    /// Bytes by which the outgoing rings have grown.
    grown: usize,
    memory: Memory,
    /// The word of `memory`, where that is this process's; freed after the peers were told that this end closes.
    word: Option<Box<u64>>,
}

/// A peer, with its links in both directions; links made by invitation are one-way and come separately.
struct Peer {
    outgoing: Option<Outgoing>,
    incoming: Option<Incoming>,
    process: Option<Process>,
    /// Our invitation, until the peer answers.
    invited: Option<Invited>,
    /// Sockets held for a peer that does not see this process, and notices its end by them.
    held: Vec<Arc<UnixStream>>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// Gone, and to be reported once everything it sent was delivered.
    Ending(Ending),
    Reported,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Dead,
    Closed,
}

impl Peer {
    /// Whether the peer has announced its end.
    fn has_closed(&self) -> bool {
        self.incoming.as_ref().is_some_and(Incoming::is_closed) || self.outgoing.as_ref().is_some_and(Outgoing::is_left)
    }

    /// Handles the peer's acceptance of our invitation.
    fn confirmed(&mut self, said: Announcement) {
        let Some(Invited { stream, held }) = self.invited.take() else { return };
        let stream = Arc::new(stream);
        if said.hold {
            self.held.push(stream.clone());
        }
        // Requests come with the peer's own invitation, and point into the memory of its maker.
        if self.process.is_none() {
            self.process = Some(held.map_or_else(|| Process::unseen(stream), |held| said.process(held)));
        }
    }

    #[inline]
    fn is_drained(&self) -> bool {
        self.incoming.as_ref().is_none_or(Incoming::is_drained)
    }
}

impl Default for ShmPort {
    fn default() -> Self {
        ShmPort::new(Geometry::default())
    }
}

impl ShmPort {
    /// A port without peers. `geometry` holds for the links that this end creates; those it joins have their creator's,
    /// whose mtu must be at least this one's.
    pub fn new(geometry: Geometry) -> Self {
        // The word need not be secret; it only differs from that of a later process at the same address.
        let word = Box::new(std::hash::RandomState::new().build_hasher().finish());
        let memory = Memory::here(&word);
        ShmPort { word: Some(word), ..ShmPort::on_behalf(geometry, memory) }
    }

    /// A port whose requests point into the memory of another process, for which this one works.
    pub fn on_behalf(geometry: Geometry, memory: Memory) -> Self {
        let peers = Vec::new();
        ShmPort { geometry, prepared: None, peers, turn: 0, watched: 0, grown: 0, memory, word: None }
    }

    /// Whether requests point into the memory of another process.
    pub fn is_on_behalf(&self) -> bool {
        self.word.is_none()
    }

    /// The memory that addresses in this end's requests point into.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Creates the memory of the next [`ShmPort::connect`] as [`Role::Create`], which then takes no descriptor, so that
    /// a shortage shows before the peer is told to connect.
    pub fn prepare(&mut self) -> Result<()> {
        self.prepared = Some(Prepared::new(&self.geometry)?);
        Ok(())
    }

    /// Meets the peer at the other end of `stream`, which stays usable afterwards. Blocks up to 5 s a message; the peer
    /// must call this at the same time with the other role.
    ///
    /// A fault where the peer is another user's process, of another version, or does not answer.
    pub fn connect(&mut self, stream: &UnixStream, role: Role) -> Result<PeerIndex> {
        let part = match role {
            Role::Create => Part::Create(self.take_prepared()?),
            Role::Join => Part::Join,
        };
        self.meet(stream, part)
    }

    /// The first part of [`ShmPort::connect`] as [`Role::Create`], without waiting; [`ShmPort::conclude`] is the second.
    pub fn offer(&mut self, stream: &UnixStream) -> Result<()> {
        let prepared = self.take_prepared()?;
        handshake::offer(stream, self.prepared.insert(prepared), self.geometry, &self.memory)
    }

    /// Meets the peer that got [`ShmPort::offer`]; `None` where it has not answered yet. Does not wait.
    ///
    /// A fault as for [`ShmPort::connect`].
    pub fn conclude(&mut self, stream: &UnixStream) -> Result<Option<PeerIndex>> {
        if !handshake::is_answered(stream)? {
            return Ok(None);
        }
        let prepared = self.take_prepared()?;
        self.meet(stream, Part::Offered(prepared)).map(Some)
    }

    fn take_prepared(&mut self) -> Result<Prepared> {
        self.prepared.take().map_or_else(|| Prepared::new(&self.geometry), Ok)
    }

    fn meet(&mut self, stream: &UnixStream, part: Part) -> Result<PeerIndex> {
        let met = handshake::meet(stream, part, self.geometry, &self.memory)?;
        if met.mtu < self.geometry.mtu {
            return Err(Fault::new(
                "peer over shared memory",
                format!("its packets hold {}, this end's {}", Bytes(met.mtu as u64), Bytes(self.geometry.mtu as u64)),
                "start both ends from the same build",
            ));
        }
        let index = self.add_peer();
        let peer = &mut self.peers[index.0 as usize];
        (peer.outgoing, peer.incoming) = (Some(met.outgoing), Some(met.incoming));
        peer.process = Some(met.process);
        peer.held.extend(met.held);
        Ok(index)
    }

    /// Adds a peer without links; [`ShmPort::invite`] and [`ShmPort::accept`] make them.
    pub fn add_peer(&mut self) -> PeerIndex {
        self.peers.push(Peer {
            outgoing: None,
            incoming: None,
            process: None,
            invited: None,
            held: Vec::new(),
            state: State::Open,
        });
        PeerIndex(self.peers.len() as u32 - 1)
    }

    /// Makes the link to `peer`, which listens at the other end of `stream`, without waiting. `introduction` is handed
    /// to the peer with the link.
    pub fn invite(&mut self, peer: PeerIndex, stream: UnixStream, introduction: &[u8; INTRODUCTION]) -> Result<()> {
        let to = self.peers.get_mut(peer.0 as usize).ok_or_else(|| no_such_peer(peer))?;
        let (outgoing, invited) = invitation::invite(stream, &self.geometry, &self.memory, introduction)?;
        (to.outgoing, to.invited) = (Some(outgoing), Some(invited));
        Ok(())
    }

    /// Accepts the link that a peer has made, and confirms it over `stream`, on which the invitation came. A fault
    /// where there is one already, its rings may become larger than ours, or there are too many.
    pub fn accept(&mut self, peer: PeerIndex, invitation: Invitation, stream: UnixStream) -> Result<()> {
        let heard = self.peers.iter().filter(|peer| peer.incoming.is_some()).count();
        let from = self.peers.get_mut(peer.0 as usize).ok_or_else(|| no_such_peer(peer))?;
        let refuse = |cause: String, next: &str| Err(Fault::new("peer over shared memory", cause, next));
        if from.incoming.is_some() || from.state == State::Reported {
            return refuse("it has made its way to us before".into(), "drop its invitation");
        }
        let Invitation { mapping, geometry, process, hold, .. } = invitation;
        if !geometry.is_within(&self.geometry) {
            let cause = format!("its rings may become larger than ours: {geometry:?}");
            return refuse(cause, "start both ends from the same build");
        }
        if heard >= MOST_INCOMING {
            return refuse(
                format!("{MOST_INCOMING} peers have made their way to us"),
                "start fewer processes on this host",
            );
        }
        from.incoming = Some(link::incoming(mapping, &geometry)?);
        invitation::confirm(&stream, &Announcement::of(&self.memory, process.is_none()));
        let stream = Arc::new(stream);
        if hold {
            from.held.push(stream.clone());
        }
        from.process = Some(process.unwrap_or_else(|| Process::unseen(stream)));
        Ok(())
    }

    /// Whether there is a link from this peer.
    pub fn has_incoming(&self, peer: PeerIndex) -> bool {
        self.peers.get(peer.0 as usize).is_some_and(|peer| peer.incoming.is_some())
    }

    /// The process number of a peer; `None` also where its PID namespace is not visible here.
    pub fn process(&self, peer: PeerIndex) -> Option<u32> {
        self.peers.get(peer.0 as usize)?.process.as_ref()?.number()
    }

    /// Reports a peer that is gone once all of its packets are delivered, and frees its memory.
    fn report_end(&mut self, index: usize, report: &mut impl FnMut(Notice)) {
        let peer = &mut self.peers[index];
        let State::Ending(ending) = peer.state else { return };
        if !peer.is_drained() {
            return;
        }
        peer.state = State::Reported;
        self.grown -= peer.outgoing.take().map_or(0, |outgoing| outgoing.grown());
        (peer.incoming, peer.invited, peer.process) = (None, None, None);
        peer.held.clear();
        let index = PeerIndex(index as u32);
        report(match ending {
            Ending::Dead => Notice::Dead(index),
            Ending::Closed => Notice::Closed(index),
        });
    }
}

#[cold]
fn no_such_peer(peer: PeerIndex) -> Fault {
    Fault::new(format!("peer {}", peer.0), "this port has no such peer", "use an index that `connect` returned")
}

#[cold]
fn over_size(length: usize, mtu: usize) -> Fault {
    let cause = format!("the port's packets hold {}", Bytes(mtu as u64));
    Fault::new(format!("packet of {}", Bytes(length as u64)), cause, "send it in pieces of at most the mtu")
}

impl Port for ShmPort {
    /// `remote_read` holds once the memory of some connected peer may be read.
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: true,
            reliable: true,
            mtu: Bytes(self.geometry.mtu as u64),
            remote_read: self.peers.iter().any(|peer| peer.process.as_ref().is_some_and(Process::is_readable)),
        }
    }

    #[inline(always)]
    fn send(&mut self, peer: PeerIndex, length: usize, fill: impl FnOnce(&mut [u8])) -> Result<Sent> {
        let Some(to) = self.peers.get_mut(peer.0 as usize) else { return Err(no_such_peer(peer)) };
        if length > self.geometry.mtu {
            return Err(over_size(length, self.geometry.mtu));
        }
        if to.state != State::Open {
            return Ok(Sent::Gone);
        }
        let Some(outgoing) = &mut to.outgoing else { return Ok(Sent::Full) };
        let taken = outgoing.send(length, &mut self.grown, fill)?;
        Ok(if taken { Sent::Taken } else { Sent::Full })
    }

    #[inline]
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    #[inline]
    fn receive(&mut self, budget: usize, mut deliver: impl FnMut(PeerIndex, &[u8])) -> Result<usize> {
        let mut delivered = 0;
        let mut idle = 0;
        while delivered < budget && idle < self.peers.len() {
            let index = self.turn;
            self.turn = if index + 1 == self.peers.len() { 0 } else { index + 1 };
            let from = PeerIndex(index as u32);
            let most = TURN.min(budget - delivered);
            let n = match &mut self.peers[index].incoming {
                Some(incoming) => incoming.receive(most, |packet| deliver(from, packet)),
                None => 0,
            };
            delivered += n;
            idle = if n == 0 { idle + 1 } else { 0 };
        }
        Ok(delivered)
    }

    /// Makes at most [`PROCESSES_PER_CHECK`] system calls, and one for each unanswered invitation. A peer's end is reported once,
    /// after the last packet it sent was delivered.
    fn notices(&mut self, mut report: impl FnMut(Notice)) -> Result<()> {
        // A peer without a link to us is reported one call later than it was found gone, since its invitation may have
        // been sent before and still be on its way.
        for index in 0..self.peers.len() {
            self.report_end(index, &mut report);
        }
        for _ in 0..self.peers.len().min(PROCESSES_PER_CHECK) {
            self.watched = if self.watched + 1 >= self.peers.len() { 0 } else { self.watched + 1 };
            let peer = &mut self.peers[self.watched];
            if peer.state == State::Open && peer.process.as_mut().is_some_and(Process::has_ended) {
                // Whatever it announced before it ended is visible by now.
                peer.state = State::Ending(if peer.has_closed() { Ending::Closed } else { Ending::Dead });
            }
        }
        for peer in self.peers.iter_mut().filter(|peer| peer.state == State::Open) {
            let mut refused = false;
            match peer.invited.as_ref().map_or(Answer::None, Invited::answer) {
                Answer::None => {}
                Answer::Confirmed(said) => peer.confirmed(said),
                // A peer that has not answered is gone with its socket.
                Answer::Refused => refused = true,
            }
            if refused || peer.has_closed() {
                peer.state = State::Ending(Ending::Closed);
            }
        }
        for index in 0..self.peers.len() {
            if self.peers[index].incoming.is_some() {
                self.report_end(index, &mut report);
            }
        }
        Ok(())
    }

    #[inline]
    fn is_idle(&mut self) -> bool {
        self.peers.iter().all(Peer::is_drained)
    }

    fn read_remote(&mut self, peer: PeerIndex, address: u64, into: &mut [u8]) -> Result<()> {
        let Some(from) = self.peers.get_mut(peer.0 as usize) else { return Err(no_such_peer(peer)) };
        let subject = || format!("memory of peer {}", peer.0);
        let Some(process) = from.process.as_mut().filter(|process| process.is_readable()) else {
            let cause = "this process may not read it";
            return Err(Fault::new(subject(), cause, "send in packets, or relax kernel.yama.ptrace_scope"));
        };
        process.read(address, into).map_err(|error| match error {
            Some(error) => Fault::because(subject(), error, "send in packets"),
            None => Fault::new(subject(), "its process has ended, or closed this endpoint", "drop the message"),
        })
    }
}

#[cfg(test)]
mod tests;
