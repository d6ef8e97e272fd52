//! The `shm` port: rings in memory shared with each peer on this host.
//!
//! A packet of up to 56 bytes travels inside one cache line; a longer one in the bulk ring beside. Large messages can be
//! read from the peer's memory by a single copy (`process_vm_readv`), where a test during the handshake showed that the
//! kernel permits it.

mod bulk;
mod handshake;
mod link;
mod remote;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use machine::{Bytes, Capabilities, Fault, Notice, PeerIndex, Port, Result, Sent};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::time::Timespec;

pub use handshake::Role;
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

struct Peer {
    outgoing: Outgoing,
    incoming: Incoming,
    pid: Pid,
    pidfd: OwnedFd,
    readable: bool,
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
        self.peers.push(Peer {
            outgoing: met.outgoing,
            incoming: met.incoming,
            pid: met.pid,
            pidfd: met.pidfd,
            readable: met.readable,
            state: State::Open,
        });
        Ok(index)
    }

    /// The process behind a peer.
    pub fn process(&self, peer: PeerIndex) -> Option<u32> {
        self.peers.get(peer.0 as usize).map(|peer| peer.pid.as_raw_nonzero().get() as u32)
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

impl Peer {
    /// Whether the process has ended: asks the kernel.
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
            remote_read: self.peers.iter().any(|peer| peer.readable),
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
        Ok(if to.outgoing.send(length, fill) { Sent::Taken } else { Sent::Full })
    }

    #[inline]
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    #[inline]
    fn receive(&mut self, budget: usize, mut deliver: impl FnMut(PeerIndex, &[u8])) -> Result<usize> {
        if let [only] = &mut self.peers[..] {
            return Ok(only.incoming.receive(budget, |packet| deliver(PeerIndex(0), packet)));
        }
        let mut delivered = 0;
        let mut idle = 0;
        while delivered < budget && idle < self.peers.len() {
            let index = self.turn;
            self.turn = if index + 1 == self.peers.len() { 0 } else { index + 1 };
            let from = PeerIndex(index as u32);
            let most = TURN.min(budget - delivered);
            let n = self.peers[index].incoming.receive(most, |packet| deliver(from, packet));
            delivered += n;
            idle = if n == 0 { idle + 1 } else { 0 };
        }
        Ok(delivered)
    }

    /// One system call for all peers. A peer's end is reported once, after the last packet it sent was delivered.
    fn notices(&mut self, mut report: impl FnMut(Notice)) -> Result<()> {
        let mut open: Vec<usize> = Vec::with_capacity(self.peers.len());
        open.extend((0..self.peers.len()).filter(|&i| self.peers[i].state == State::Open));
        let mut polled: Vec<PollFd<'_>> =
            open.iter().map(|&i| PollFd::new(&self.peers[i].pidfd, PollFlags::IN)).collect();
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
            if peer.incoming.is_closed() {
                peer.state = State::Ending(Ending::Closed);
            } else if ended {
                peer.state = State::Ending(Ending::Dead);
            }
        }
        for (index, peer) in self.peers.iter_mut().enumerate() {
            if let State::Ending(ending) = peer.state
                && peer.incoming.is_drained()
            {
                peer.state = State::Reported;
                let index = PeerIndex(index as u32);
                report(match ending {
                    Ending::Dead => Notice::Dead(index),
                    Ending::Closed => Notice::Closed(index),
                });
            }
        }
        Ok(())
    }

    fn read_remote(&mut self, peer: PeerIndex, address: u64, into: &mut [u8]) -> Result<()> {
        let Some(from) = self.peers.get_mut(peer.0 as usize) else { return Err(no_such_peer(peer)) };
        let subject = || format!("memory of peer {}", peer.0);
        if !from.readable {
            let cause = "this process may not read it";
            return Err(Fault::new(subject(), cause, "send in packets, or relax kernel.yama.ptrace_scope"));
        }
        let read = remote::read(from.pid, address, into);
        // Asked afterwards: while the process lives its number is not given to another, so what was read was its.
        if from.has_ended() {
            from.readable = false;
            return Err(Fault::new(subject(), "its process has ended", "drop the message"));
        }
        read.map_err(|e| {
            from.readable = false;
            Fault::because(subject(), e, "send in packets")
        })
    }
}

impl Drop for ShmPort {
    fn drop(&mut self) {
        for peer in &self.peers {
            peer.outgoing.close();
        }
    }
}

#[cfg(test)]
mod tests;
