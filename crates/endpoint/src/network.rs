//! The port to other hosts, of whichever kind, with or without injected faults.

use std::net::SocketAddr;

use engine::{LinkConfig, ReliabilityConfig};
use machine::bounds::ENGINE_WINDOW;
use machine::port::Shared;
use machine::{Capabilities, Notice, PeerIndex, Port, Result, Sent};
use ports::network::NetworkPort;

use crate::faults::{FaultyPort, Injected, WireFaults};
use crate::settings::Network;
use crate::wire::Wire;

/// Peers that share a socket's buffer before their windows shrink; more seldom send at once.
const PEERS_AT_ONCE: u64 = 8;
const WINDOW_MOST: u64 = ENGINE_WINDOW.each.count() as u64;
const WINDOW_LEAST: u64 = 4;

enum Inner {
    Plain(Wire),
    Faulty(Box<FaultyPort<Wire>>),
}

pub struct NetworkPath {
    inner: Inner,
    asked: Network,
}

macro_rules! each {
    ($self:expr, $port:ident => $what:expr) => {
        match $self {
            Inner::Plain($port) => $what,
            Inner::Faulty($port) => $what,
        }
    };
}

impl NetworkPath {
    pub fn open(asked: &Network, local: SocketAddr, faults: Option<WireFaults>) -> Result<NetworkPath> {
        let port = Wire::open(asked, local)?;
        let inner = match faults {
            None => Inner::Plain(port),
            Some(faults) => Inner::Faulty(Box::new(FaultyPort::new(port, faults))),
        };
        Ok(NetworkPath { inner, asked: asked.clone() })
    }

    /// The network asked for, which is what runs: there is no fallback.
    pub fn asked(&self) -> &Network {
        &self.asked
    }

    /// Faults made so far; `None` without injection.
    pub fn injected(&self) -> Option<Injected> {
        match &self.inner {
            Inner::Plain(_) => None,
            Inner::Faulty(port) => Some(port.injected()),
        }
    }

    pub fn wire(&self) -> &Wire {
        match &self.inner {
            Inner::Plain(port) => port,
            Inner::Faulty(port) => port.inner(),
        }
    }

    fn wire_mut(&mut self) -> &mut Wire {
        match &mut self.inner {
            Inner::Plain(port) => port,
            Inner::Faulty(port) => port.inner_mut(),
        }
    }

    pub fn local_address(&self) -> SocketAddr {
        self.wire().local_address()
    }

    /// Makes `address` a peer of the conversation `session`.
    pub fn add_peer(&mut self, address: SocketAddr, session: u32) -> Result<PeerIndex> {
        let peer = self.wire_mut().add_peer(address)?;
        self.wire_mut().sequence(peer, session, ReliabilityConfig::new(session).first_sequence());
        Ok(peer)
    }

    pub fn unknown_senders(&mut self, each: impl FnMut(SocketAddr, &[u8])) {
        self.wire_mut().unknown_senders(each);
    }

    /// The link to a peer of the conversation `session`.
    pub fn link(&self, session: u32) -> LinkConfig {
        let mut link = LinkConfig::for_port(&self.capabilities(), session);
        if let Some(reliability) = &mut link.reliability {
            let share = self.wire().receive_window() / PEERS_AT_ONCE;
            reliability.window = share.clamp(WINDOW_LEAST, WINDOW_MOST) as u32;
        }
        link
    }
}

impl Port for NetworkPath {
    fn capabilities(&self) -> Capabilities {
        each!(&self.inner, port => port.capabilities())
    }

    fn send(&mut self, peer: PeerIndex, length: usize, fill: impl FnOnce(&mut [u8])) -> Result<Sent> {
        each!(&mut self.inner, port => port.send(peer, length, fill))
    }

    fn send_apart(
        &mut self,
        peer: PeerIndex,
        head: usize,
        fill: impl FnOnce(&mut [u8]),
        body: &Shared,
    ) -> Result<Sent> {
        each!(&mut self.inner, port => port.send_apart(peer, head, fill, body))
    }

    fn flush(&mut self) -> Result<()> {
        each!(&mut self.inner, port => port.flush())
    }

    fn receive(&mut self, budget: usize, deliver: impl FnMut(PeerIndex, &[u8])) -> Result<usize> {
        each!(&mut self.inner, port => port.receive(budget, deliver))
    }

    fn notices(&mut self, report: impl FnMut(Notice)) -> Result<()> {
        each!(&mut self.inner, port => port.notices(report))
    }

    fn read_remote(&mut self, peer: PeerIndex, address: u64, into: &mut [u8]) -> Result<()> {
        each!(&mut self.inner, port => port.read_remote(peer, address, into))
    }
}
