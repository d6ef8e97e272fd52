//! The `shm` port: rings in memory shared with each peer on this host.
//!
//! A packet of up to 56 bytes travels inside one cache line; a longer one in the bulk ring beside. A link takes two pages, and
//! more once longer packets or more of them are under way; it keeps no descriptor open but that of the peer's process. Large
//! messages can be read from the peer's memory by a single copy (`process_vm_readv`), where a test during the introduction
//! showed that the kernel permits it. Whose memory that is, the kernel says and never the peer.

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
use invitation::{Answer, Invited, Said};
pub use invitation::{INTRODUCTION, Invitation};
pub use link::Geometry;
use link::{Incoming, Outgoing};
pub use process::Memory;
use process::Process;

/// Packets taken from one peer before the next has its turn.
const TURN: usize = 32;
/// Processes that one call of `notices` asks the kernel for.
const LOOKS: usize = 64;
/// Peers that may have a way to this end when another makes one by invitation; it bounds what the rings of all of them take.
const MOST_HEARD: usize = SHM_LINKS.total.count();

/// One process's end of any number of shared-memory links.
pub struct ShmPort {
    geometry: Geometry,
    /// For the next link that this end creates.
    prepared: Option<Prepared>,
    peers: Vec<Peer>,
    /// The peer whose turn it is to be received from.
    turn: usize,
    /// The peer whose process is looked at next.
    watched: usize,
    /// What the outgoing rings have grown by.
    grown: usize,
    memory: Memory,
    /// The word of `memory`, where that is this process's; freed after the peers were told that this end closes.
    word: Option<Box<u64>>,
}

/// A peer's links out and in; links made by invitation are one-way and come one by one.
struct Peer {
    outgoing: Option<Outgoing>,
    incoming: Option<Incoming>,
    process: Option<Process>,
    /// Where the peer says that it has taken our invitation.
    invited: Option<Invited>,
    /// Held for a peer that does not see this process, and hears of its end by them.
    held: Vec<Arc<UnixStream>>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// Known to be gone, and to be reported once everything it sent was delivered.
    Ending(Ending),
    Reported,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Dead,
    Closed,
}

impl Peer {
    /// The end that the peer said that it made.
    fn has_closed(&self) -> bool {
        self.incoming.as_ref().is_some_and(Incoming::is_closed) || self.outgoing.as_ref().is_some_and(Outgoing::is_left)
    }

    /// It has taken our invitation.
    fn confirmed(&mut self, said: Said) {
        let Some(Invited { stream, held }) = self.invited.take() else { return };
        let stream = Arc::new(stream);
        if said.hold {
            self.held.push(stream.clone());
        }
        // Requests come with its own invitation, and point into the memory of who made that.
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
    /// with this mtu as the least that is taken.
    pub fn new(geometry: Geometry) -> Self {
        // Nobody need be unable to guess it; a later process shall not have the same at the same place.
        let word = Box::new(std::hash::RandomState::new().build_hasher().finish());
        let memory = Memory::here(&word);
        ShmPort { word: Some(word), ..ShmPort::on_behalf(geometry, memory) }
    }

    /// A port whose requests point into another process's memory, for which this one works.
    pub fn on_behalf(geometry: Geometry, memory: Memory) -> Self {
        let peers = Vec::new();
        ShmPort { geometry, prepared: None, peers, turn: 0, watched: 0, grown: 0, memory, word: None }
    }

    /// Whether requests point into another process's memory.
    pub fn is_on_behalf(&self) -> bool {
        self.word.is_none()
    }

    /// What addresses in this end's requests point into.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Makes the memory of the next [`ShmPort::connect`] as [`Role::Create`], which then takes no descriptor, so that a
    /// shortage shows before the peer is told to connect.
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

    /// Does the first part of [`ShmPort::connect`] as [`Role::Create`], which waits for nothing; [`ShmPort::conclude`] does the
    /// rest.
    pub fn offer(&mut self, stream: &UnixStream) -> Result<()> {
        let prepared = self.take_prepared()?;
        handshake::offer(stream, self.prepared.insert(prepared), self.geometry, &self.memory)
    }

    /// Meets the peer that [`ShmPort::offer`] was made to; `None` where it has not answered yet. Waits for nothing.
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

    /// Adds a peer without links to it or from it yet: [`ShmPort::invite`] and [`ShmPort::accept`] make them.
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

    /// Makes the way out to `peer`, who listens at the other end of `stream`, and waits for nothing. `introduction` is handed
    /// to the peer with the link.
    pub fn invite(&mut self, peer: PeerIndex, stream: UnixStream, introduction: &[u8; INTRODUCTION]) -> Result<()> {
        let to = self.peers.get_mut(peer.0 as usize).ok_or_else(|| no_such_peer(peer))?;
        let (outgoing, invited) = invitation::invite(stream, &self.geometry, &self.memory, introduction)?;
        (to.outgoing, to.invited) = (Some(outgoing), Some(invited));
        Ok(())
    }

    /// Takes the way in that a peer has made, and tells it so over `stream`, on which the invitation came. A fault where there
    /// is one already, its rings may become larger than ours, or there are too many.
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
        if heard >= MOST_HEARD {
            return refuse(
                format!("{MOST_HEARD} peers have made their way to us"),
                "start fewer processes on this host",
            );
        }
        from.incoming = Some(link::incoming(mapping, &geometry)?);
        invitation::confirm(&stream, &Said::of(&self.memory, process.is_none()));
        let stream = Arc::new(stream);
        if hold {
            from.held.push(stream.clone());
        }
        from.process = Some(process.unwrap_or_else(|| Process::unseen(stream)));
        Ok(())
    }

    /// Whether there is a way in from this peer.
    pub fn is_heard(&self, peer: PeerIndex) -> bool {
        self.peers.get(peer.0 as usize).is_some_and(|peer| peer.incoming.is_some())
    }

    /// The process behind a peer; `None` also where it is in a PID namespace that is not seen from here.
    pub fn process(&self, peer: PeerIndex) -> Option<u32> {
        self.peers.get(peer.0 as usize)?.process.as_ref()?.number()
    }

    /// Reports a peer whose end is known and who has nothing left to be delivered, and gives back its memory.
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
    /// `remote_read` holds once a peer has connected whose memory may be read.
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: true,
            reliable: true,
            mtu: Bytes(self.geometry.mtu as u64),
            remote_read: self.peers.iter().any(|peer| peer.process.as_ref().is_some_and(Process::is_readable)),
        }
    }

    #[inline]
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
        if let [Peer { incoming: Some(incoming), .. }] = &mut self.peers[..] {
            return Ok(incoming.receive(budget, |packet| deliver(PeerIndex(0), packet)));
        }
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

    /// At most [`LOOKS`] system calls, and one for each invitation that is not answered yet. A peer's end is reported once,
    /// after the last packet it sent was delivered.
    fn notices(&mut self, mut report: impl FnMut(Notice)) -> Result<()> {
        // A peer without a way in is reported a round later than it was found gone: its invitation may be on its way, made
        // before it went.
        for index in 0..self.peers.len() {
            self.report_end(index, &mut report);
        }
        for _ in 0..self.peers.len().min(LOOKS) {
            self.watched = if self.watched + 1 >= self.peers.len() { 0 } else { self.watched + 1 };
            let peer = &mut self.peers[self.watched];
            if peer.state == State::Open && peer.process.as_mut().is_some_and(Process::has_ended) {
                // What it said before it ended is there by now.
                peer.state = State::Ending(if peer.has_closed() { Ending::Closed } else { Ending::Dead });
            }
        }
        for peer in self.peers.iter_mut().filter(|peer| peer.state == State::Open) {
            let mut refused = false;
            match peer.invited.as_ref().map_or(Answer::None, Invited::answer) {
                Answer::None => {}
                Answer::Confirmed(said) => peer.confirmed(said),
                // Before it has answered, a peer is gone where its socket is.
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
