//! Connections made at first need, as MPI libraries over verbs make them: each end tells the other its queue pair, and sends
//! nothing else before it knows that the other has it.

use std::time::{Duration, Instant};

use engine::Buffer;
use machine::{PeerIndex, Port, Result, Sent};

use crate::address::{Address, ConnectRequest, QueuePairNumber};
use crate::connection::Connection;
use crate::endpoint::{Endpoint, RESERVE, segment};
use crate::memory::MemoryKey;
use crate::settings::{Link, ReceiveQueues};
use crate::state::State;

/// Interval of datagrams to a peer that has not answered, and time until it counts as dead.
const AGAIN: Duration = Duration::from_millis(2);
const WITHIN: Duration = Duration::from_secs(60);

impl<P: Port, B: Buffer> Endpoint<P, B> {
    /// Makes the port's next peer a peer of this end; it is connected at the first send, or when it connects.
    pub fn admit(&mut self, link: Link) -> PeerIndex {
        let peer = PeerIndex(self.connections.len() as u32);
        self.connections.push(Connection::new(link));
        peer
    }

    /// Creates the queue pair of a peer, with its receives posted.
    pub(crate) fn make(&mut self, peer: PeerIndex) -> Result<Address> {
        let link = self.connections[peer.0 as usize].link;
        let queue_pair = self.adapter.create_queue_pair(peer, RESERVE, link)?;
        self.adapter.modify(queue_pair, State::Init)?;
        let (mut buffers, mut credits) = (self.shared.unwrap_or(MemoryKey(0)), 0);
        if let ReceiveQueues::PerPeer { depth } = self.settings.receive {
            let count = depth + RESERVE;
            buffers = self.adapter.register_pool(count as usize * self.settings.buffer.0 as usize);
            for place in 0..u64::from(count) {
                self.adapter.post_receive(queue_pair, place, segment(buffers, place, self.settings.buffer.0))?;
            }
            credits = depth;
        }
        let connection = &mut self.connections[peer.0 as usize];
        (connection.queue_pair, connection.buffers, connection.credits) = (queue_pair, buffers, credits);
        self.by_queue_pair.insert(queue_pair, peer);
        self.adapter.address(queue_pair, peer.0)
    }

    /// Begins to connect, unless the peer is being connected already.
    #[cold]
    pub(crate) fn begin(&mut self, peer: PeerIndex) -> Result<()> {
        if self.connecting.peers.iter().any(|(other, _)| *other == peer) {
            return Ok(());
        }
        if self.connections[peer.0 as usize].queue_pair == QueuePairNumber::NONE {
            self.make(peer)?;
        }
        self.connecting.peers.push((peer, Instant::now()));
        self.say(peer)
    }

    fn say(&mut self, peer: PeerIndex) -> Result<()> {
        let connection = &self.connections[peer.0 as usize];
        let queue_pair = connection.queue_pair;
        let knows = self.adapter.state(queue_pair)? == State::ReadyToSend;
        let address = self.adapter.address(queue_pair, peer.0)?;
        let hello = ConnectRequest { address, knows, asks: !connection.ready };
        if self.adapter.say(peer, &hello)? == Sent::Gone {
            self.peer_dead(peer);
        }
        Ok(())
    }

    /// Handles peers' datagrams, and repeats those that were not answered.
    #[inline]
    pub(crate) fn connect_peers(&mut self) -> Result<()> {
        while let Some((peer, hello)) = self.adapter.next_hello() {
            self.hear(peer, hello)?;
        }
        if self.connecting.peers.is_empty() { Ok(()) } else { self.say_again() }
    }

    #[cold]
    fn hear(&mut self, peer: PeerIndex, hello: ConnectRequest) -> Result<()> {
        let Some(connection) = self.connections.get(peer.0 as usize).filter(|connection| connection.alive) else {
            return Ok(());
        };
        if connection.queue_pair == QueuePairNumber::NONE {
            self.make(peer)?;
        }
        if self.adapter.state(self.connections[peer.0 as usize].queue_pair)? == State::Init {
            self.reach(peer, hello.address)?;
        }
        let connection = &mut self.connections[peer.0 as usize];
        if hello.knows && !connection.ready {
            connection.ready = true;
            self.connecting.peers.retain(|(other, _)| *other != peer);
            self.post_waiting(peer)?;
        }
        if hello.asks { self.say(peer) } else { Ok(()) }
    }

    #[cold]
    fn say_again(&mut self) -> Result<()> {
        let now = Instant::now();
        if self.connecting.last.is_some_and(|last| now - last < AGAIN) {
            return Ok(());
        }
        self.connecting.last = Some(now);
        for (peer, since) in self.connecting.peers.clone() {
            if now - since > WITHIN {
                self.peer_dead(peer);
            } else {
                self.say(peer)?;
            }
        }
        let connections = &self.connections;
        self.connecting.peers.retain(|(peer, _)| connections[peer.0 as usize].alive);
        Ok(())
    }
}
