//! The `shm` port: rings in memory shared with each peer on this host.
//!
//! A packet of up to 56 bytes travels inside one cache line; a longer one in the bulk ring beside. Large messages can be
//! read from the peer's memory by a single copy (`process_vm_readv`), where a test during the handshake showed that the
//! kernel permits it.

mod bulk;
mod handshake;
mod invitation;
mod link;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use machine::{Bytes, Capabilities, Fault, Notice, PeerIndex, Port, Result, Sent};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::time::Timespec;

use crate::remote;

pub use handshake::Role;
use invitation::Answer;
pub use invitation::{INTRODUCTION, Invitation, Memory};
pub use link::Geometry;
use link::{Incoming, Outgoing};

/// Packets taken from one peer before the next has its turn.
const TURN: usize = 32;

/// One process's end of any number of shared-memory links.
pub struct ShmPort {
    geometry: Geometry,
    peers: Vec<Peer>,
    /// The peer whose turn it is to be received from.
    turn: usize,
}

/// A peer's ways out and in; links made by invitation are one-way and come one by one.
struct Peer {
    outgoing: Option<Outgoing>,
    incoming: Option<Incoming>,
    process: Option<Process>,
    /// Where the peer says that it has taken our invitation.
    invited: Option<UnixStream>,
    state: State,
}

struct Process {
    pid: Pid,
    pidfd: OwnedFd,
    /// Whose memory its requests point into.
    memory: Pid,
    readable: bool,
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

impl Default for ShmPort {
    fn default() -> Self {
        ShmPort::new(Geometry::default())
    }
}

impl ShmPort {
    /// A port without peers. `geometry` holds for the links that this end creates; those it joins have their creator's,
    /// with this mtu as the least that is taken.
    pub fn new(geometry: Geometry) -> Self {
        ShmPort { geometry, peers: Vec::new(), turn: 0 }
    }

    /// Meets the peer at the other end of `stream`, which stays usable afterwards. Blocks up to 5 s a message; the peer
    /// must call this at the same time with the other role.
    ///
    /// A fault where the peer is another user's process, of another version, or does not answer.
    pub fn connect(&mut self, stream: &UnixStream, role: Role) -> Result<PeerIndex> {
        let met = handshake::meet(stream, role, self.geometry)?;
        if met.mtu < self.geometry.mtu {
            return Err(Fault::new(
                "peer over shared memory",
                format!("its packets hold {}, this end's {}", Bytes(met.mtu as u64), Bytes(self.geometry.mtu as u64)),
                "start both ends from the same build",
            ));
        }
        let index = PeerIndex(self.peers.len() as u32);
        let process = Process { pid: met.pid, pidfd: met.pidfd, memory: met.pid, readable: met.readable };
        self.peers.push(Peer {
            outgoing: Some(met.outgoing),
            incoming: Some(met.incoming),
            process: Some(process),
            invited: None,
            state: State::Open,
        });
        Ok(index)
    }

    /// A peer without ways to it or from it yet: [`ShmPort::invite`] and [`ShmPort::accept`] make them.
    pub fn add_peer(&mut self) -> PeerIndex {
        self.peers.push(Peer { outgoing: None, incoming: None, process: None, invited: None, state: State::Open });
        PeerIndex(self.peers.len() as u32 - 1)
    }

    /// Makes the way out to `peer`, who listens at the other end of `stream`, and waits for nothing. `memory` is what
    /// addresses in our requests point into; `introduction` is handed to the peer with the link.
    pub fn invite(
        &mut self,
        peer: PeerIndex,
        stream: UnixStream,
        memory: &Memory,
        introduction: &[u8; INTRODUCTION],
    ) -> Result<()> {
        let to = self.peers.get_mut(peer.0 as usize).ok_or_else(|| no_such_peer(peer))?;
        let (outgoing, process) = invitation::invite(&stream, &self.geometry, memory, introduction)?;
        to.outgoing = Some(outgoing);
        to.invited = Some(stream);
        to.process.get_or_insert(process);
        Ok(())
    }

    /// Takes the way in that a peer has made, and tells it so over `stream`, on which the invitation came. A fault where there is one already, or its packets are longer than ours.
    pub fn accept(&mut self, peer: PeerIndex, invitation: Invitation, stream: &UnixStream) -> Result<()> {
        let from = self.peers.get_mut(peer.0 as usize).ok_or_else(|| no_such_peer(peer))?;
        if from.incoming.is_some() || from.state == State::Reported {
            return Err(Fault::new(
                "peer over shared memory",
                "it has made its way to us before",
                "drop its invitation",
            ));
        }
        if invitation.mtu > self.geometry.mtu {
            return Err(Fault::new(
                "peer over shared memory",
                format!("its packets hold {} bytes, ours {}", invitation.mtu, self.geometry.mtu),
                "start both ends from the same build",
            ));
        }
        // A peer that has gone meanwhile does not hear it; what it sent before is delivered all the same.
        invitation::confirm(stream);
        from.incoming = Some(invitation.incoming);
        match invitation.process {
            Some(process) => from.process = Some(process),
            None if from.state == State::Open => from.state = State::Ending(Ending::Dead),
            None => {}
        }
        Ok(())
    }

    /// Whether there is a way out to this peer.
    pub fn is_reached(&self, peer: PeerIndex) -> bool {
        self.peers.get(peer.0 as usize).is_some_and(|peer| peer.outgoing.is_some())
    }

    /// The process behind a peer.
    pub fn process(&self, peer: PeerIndex) -> Option<u32> {
        let process = self.peers.get(peer.0 as usize)?.process.as_ref()?;
        Some(process.pid.as_raw_nonzero().get() as u32)
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

impl Process {
    /// Asks the kernel.
    fn has_ended(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(rustix::event::poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&now)), Ok(1))
    }
}

impl Port for ShmPort {
    /// `remote_read` holds once a peer has connected whose memory may be read.
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: true,
            reliable: true,
            mtu: Bytes(self.geometry.mtu as u64),
            remote_read: self.peers.iter().any(|peer| peer.process.as_ref().is_some_and(|process| process.readable)),
            zero_copy: true,
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
        let taken = to.outgoing.as_mut().is_some_and(|outgoing| outgoing.send(length, fill));
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

    /// One system call for all peers. A peer's end is reported once, after the last packet it sent was delivered.
    fn notices(&mut self, mut report: impl FnMut(Notice)) -> Result<()> {
        let mut open: Vec<usize> = Vec::with_capacity(self.peers.len());
        // A peer without a way in is reported a round later than it was found gone: its invitation may be on its way, made
        // before it went.
        let reported = |peer: &mut Peer| match peer.state {
            State::Ending(ending) if peer.incoming.as_ref().is_none_or(Incoming::is_drained) => {
                peer.state = State::Reported;
                Some(ending)
            }
            _ => None,
        };
        let mut tell = |index: usize, ending: Ending| {
            let index = PeerIndex(index as u32);
            report(match ending {
                Ending::Dead => Notice::Dead(index),
                Ending::Closed => Notice::Closed(index),
            });
        };
        for (index, peer) in self.peers.iter_mut().enumerate() {
            if let Some(ending) = reported(peer) {
                tell(index, ending);
            }
        }
        let alive = |peer: &Peer| peer.state == State::Open && peer.process.is_some();
        open.extend((0..self.peers.len()).filter(|&i| alive(&self.peers[i])));
        let processes = open.iter().filter_map(|&i| self.peers[i].process.as_ref());
        let mut polled: Vec<PollFd<'_>> = processes.map(|process| PollFd::new(&process.pidfd, PollFlags::IN)).collect();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match rustix::event::poll(&mut polled, Some(&now)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => {
                return Err(Fault::because("peers over shared memory", e, "report this with the kernel's version"));
            }
        }
        let ended: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        for (index, ended) in open.into_iter().zip(ended) {
            let peer = &mut self.peers[index];
            // Before its confirmation a peer is gone too where its socket is.
            let refused = peer.invited.as_ref().map(invitation::answer);
            if refused != Some(Answer::None) {
                peer.invited = None;
            }
            if peer.incoming.as_ref().is_some_and(Incoming::is_closed)
                || peer.outgoing.as_ref().is_some_and(Outgoing::is_left)
                || refused == Some(Answer::Refused)
            {
                peer.state = State::Ending(Ending::Closed);
            } else if ended {
                peer.state = State::Ending(Ending::Dead);
            }
        }
        for (index, peer) in self.peers.iter_mut().enumerate() {
            if peer.incoming.is_some()
                && let Some(ending) = reported(peer)
            {
                tell(index, ending);
            }
        }
        Ok(())
    }

    fn read_remote(&mut self, peer: PeerIndex, address: u64, into: &mut [u8]) -> Result<()> {
        let Some(from) = self.peers.get_mut(peer.0 as usize) else { return Err(no_such_peer(peer)) };
        let subject = || format!("memory of peer {}", peer.0);
        let Some(process) = from.process.as_mut().filter(|process| process.readable) else {
            let cause = "this process may not read it";
            return Err(Fault::new(subject(), cause, "send in packets, or relax kernel.yama.ptrace_scope"));
        };
        let read = remote::read(process.memory, address, into);
        // Asked afterwards: while the process lives its number is not given to another, so what was read was its.
        if process.has_ended() {
            process.readable = false;
            return Err(Fault::new(subject(), "its process has ended", "drop the message"));
        }
        read.map_err(|e| {
            process.readable = false;
            Fault::because(subject(), e, "send in packets")
        })
    }
}

impl Drop for ShmPort {
    fn drop(&mut self) {
        for outgoing in self.peers.iter().filter_map(|peer| peer.outgoing.as_ref()) {
            outgoing.close();
        }
        for incoming in self.peers.iter().filter_map(|peer| peer.incoming.as_ref()) {
            incoming.leave();
        }
    }
}

#[cfg(test)]
mod tests;
