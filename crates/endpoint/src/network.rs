//! The way to other hosts, whichever port was asked for, with or without faults made on it.

use std::net::SocketAddr;

use linux::network::NetworkPort;
use linux::udp::UdpPort;
use machine::{Capabilities, Fault, Notice, PeerIndex, Port, Result, Sent};

use crate::faults::{FaultyPort, Injected, WireFaults};
use crate::settings::Network;

/// Peers that share a socket's buffer before their windows shrink; more than that seldom send at once.
const PEERS_AT_ONCE: u64 = 8;
const WINDOW_MOST: u64 = 1024;
const WINDOW_LEAST: u64 = 4;

enum Inner {
    Udp(UdpPort),
    Faulty(Box<FaultyPort<UdpPort>>),
}

pub struct NetworkPath {
    inner: Inner,
    asked: Network,
}

macro_rules! each {
    ($self:expr, $port:ident => $what:expr) => {
        match $self {
            Inner::Udp($port) => $what,
            Inner::Faulty($port) => $what,
        }
    };
}

impl NetworkPath {
    pub fn open(asked: &Network, local: SocketAddr, faults: Option<WireFaults>) -> Result<NetworkPath> {
        let Network::Udp = asked else {
            return Err(Fault::new(format!("network {asked}"), "this build does not carry it", "choose udp"));
        };
        let mut port = UdpPort::open(local)?;
        port.welcome_strangers();
        let inner = match faults {
            None => Inner::Udp(port),
            Some(faults) => Inner::Faulty(Box::new(FaultyPort::new(port, faults))),
        };
        Ok(NetworkPath { inner, asked: asked.clone() })
    }

    /// What was asked for, which is what runs: there is no falling back.
    pub fn asked(&self) -> &Network {
        &self.asked
    }

    /// Faults made so far; `None` where none were asked for.
    pub fn injected(&self) -> Option<Injected> {
        match &self.inner {
            Inner::Udp(_) => None,
            Inner::Faulty(port) => Some(port.injected()),
        }
    }

    fn udp(&self) -> &UdpPort {
        match &self.inner {
            Inner::Udp(port) => port,
            Inner::Faulty(port) => port.inner(),
        }
    }

    fn udp_mut(&mut self) -> &mut UdpPort {
        match &mut self.inner {
            Inner::Udp(port) => port,
            Inner::Faulty(port) => port.inner_mut(),
        }
    }

    pub fn local_address(&self) -> SocketAddr {
        self.udp().local_address()
    }

    /// Makes `address` a peer of the conversation `session`.
    pub fn add_peer(&mut self, address: SocketAddr, _session: u32) -> Result<PeerIndex> {
        self.udp_mut().add_peer(address)
    }

    pub fn strangers(&mut self, each: impl FnMut(SocketAddr, &[u8])) {
        NetworkPort::strangers(self.udp_mut(), each);
    }

    /// Packets in flight to one peer.
    pub fn window(&self) -> u32 {
        let udp = self.udp();
        let share = udp.buffers().receive_window(udp.capabilities().mtu) / PEERS_AT_ONCE;
        share.clamp(WINDOW_LEAST, WINDOW_MOST) as u32
    }
}

impl Port for NetworkPath {
    fn capabilities(&self) -> Capabilities {
        each!(&self.inner, port => port.capabilities())
    }

    fn send(&mut self, peer: PeerIndex, length: usize, fill: impl FnOnce(&mut [u8])) -> Result<Sent> {
        each!(&mut self.inner, port => port.send(peer, length, fill))
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
