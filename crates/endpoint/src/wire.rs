//! The port to other hosts, of whichever kind.

use std::net::SocketAddr;

use machine::port::Shared;
use machine::{Capabilities, Notice, PeerIndex, Port, Result, Sent};
use ports::afxdp::{AfxdpPort, Path};
use ports::network::NetworkPort;
use ports::udp::UdpPort;
use ports::xdp::XdpPort;

use crate::settings::Network;

pub enum Wire {
    Udp(Box<UdpPort>),
    Afxdp(Box<AfxdpPort>),
    Xdp(Box<XdpPort>),
}

macro_rules! each {
    ($self:expr, $port:ident => $what:expr) => {
        match $self {
            Wire::Udp($port) => $what,
            Wire::Afxdp($port) => $what,
            Wire::Xdp($port) => $what,
        }
    };
}

impl Wire {
    pub fn open(asked: &Network, local: SocketAddr) -> Result<Wire> {
        Ok(match asked {
            Network::Udp => {
                let mut port = UdpPort::open(local)?;
                port.keep_unknown_senders();
                Wire::Udp(Box::new(port))
            }
            Network::Afxdp(interface) => Wire::Afxdp(Box::new(AfxdpPort::open(interface, local)?)),
            Network::Xdp(interface) => {
                let mut port = XdpPort::open(local, interface)?;
                port.keep_unknown_senders();
                Wire::Xdp(Box::new(port))
            }
        })
    }

    /// Packets that can wait to be received.
    pub fn receive_window(&self) -> u64 {
        match self {
            Wire::Udp(port) => port.buffers().receive_window(port.capabilities().mtu),
            Wire::Afxdp(port) => port.receive_window(),
            Wire::Xdp(port) => port.receive_window(),
        }
    }

    /// Whether a poll makes no system call while no packets are there.
    pub fn looks_at_memory(&self) -> bool {
        matches!(self, Wire::Afxdp(_) | Wire::Xdp(_))
    }

    /// Notes on what runs, with evidence, beyond what was asked for.
    pub fn notes(&self) -> Vec<String> {
        match self {
            Wire::Udp(_) => Vec::new(),
            Wire::Afxdp(port) => {
                let (ran, counted, kernel) = (port.nic().in_force(), port.counters(), port.kernel_counters());
                let mut notes = vec![format!(
                    "afxdp:{} runs on queue {} in {}, its program in {} mode; of its packets {} left in frames and {} by the \
                     kernel's UDP ({} of them in bursts), {} came in frames and {} by the kernel's UDP",
                    ran.interface,
                    ran.queue,
                    ran.mode,
                    ran.hook,
                    counted.frames_sent,
                    kernel.packets_sent,
                    counted.burst_sent,
                    counted.frames_received,
                    counted.kernel_received,
                )];
                notes.extend(ran.notes.iter().map(|note| format!("afxdp:{}: {note}", ran.interface)));
                for way in [Path::Local, Path::Unanswered] {
                    let peers = port.ways().filter(|found| *found == way).count();
                    let why = if way == Path::Local { "are this host's" } else { "do not answer on the link" };
                    if peers > 0 {
                        notes.push(format!("afxdp:{}: {peers} peers' addresses {why}: by the kernel", ran.interface));
                    }
                }
                notes
            }
            Wire::Xdp(port) => xdp_notes(port),
        }
    }
}

/// The program's own counts beside the socket's.
fn xdp_notes(port: &XdpPort) -> Vec<String> {
    let (counted, socket, interface) = (port.lane_counters(), port.counters(), port.interface().name());
    let proof = match port.prove() {
        Ok(found) => format!("program {} in {} mode", found.id, found.mode),
        Err(fault) => fault.to_string(),
    };
    let mut notes = vec![format!(
        "xdp:{interface} runs {proof}{}; the program placed {} packets and sent {} acknowledgements, dropped {} that were \
         there and {} for want of room, and left {} to the kernel's UDP, where {} packets were received and {} sent",
        if port.is_guest() { ", lent by the process that attached it" } else { "" },
        counted.placed,
        counted.acknowledged,
        counted.duplicated,
        counted.full,
        counted.unknown + counted.far + counted.long + counted.foreign,
        socket.packets_received + socket.unknown_sender,
        socket.packets_sent,
    )];
    if let Some(note) = port.note() {
        notes.push(format!("xdp:{interface} is not in native mode: {note}"));
    }
    if port.joined_again() > 0 {
        notes.push(format!(
            "xdp:{interface}: {} times the process that had attached the program ended; packets came by the kernel meanwhile",
            port.joined_again()
        ));
    }
    if port.unsequenced() > 0 {
        notes.push(format!(
            "xdp:{interface}: the program's table has no room for {} peers: their packets come by the kernel",
            port.unsequenced()
        ));
    }
    notes
}

impl Port for Wire {
    fn capabilities(&self) -> Capabilities {
        each!(self, port => port.capabilities())
    }

    #[inline]
    fn send(&mut self, peer: PeerIndex, length: usize, fill: impl FnOnce(&mut [u8])) -> Result<Sent> {
        each!(self, port => port.send(peer, length, fill))
    }

    fn send_apart(
        &mut self,
        peer: PeerIndex,
        head: usize,
        fill: impl FnOnce(&mut [u8]),
        body: &Shared,
    ) -> Result<Sent> {
        each!(self, port => port.send_apart(peer, head, fill, body))
    }

    #[inline]
    fn flush(&mut self) -> Result<()> {
        each!(self, port => port.flush())
    }

    #[inline]
    fn receive(&mut self, budget: usize, deliver: impl FnMut(PeerIndex, &[u8])) -> Result<usize> {
        each!(self, port => port.receive(budget, deliver))
    }

    fn notices(&mut self, report: impl FnMut(Notice)) -> Result<()> {
        each!(self, port => port.notices(report))
    }

    fn read_remote(&mut self, peer: PeerIndex, address: u64, into: &mut [u8]) -> Result<()> {
        each!(self, port => port.read_remote(peer, address, into))
    }
}

impl NetworkPort for Wire {
    fn local_address(&self) -> SocketAddr {
        each!(self, port => NetworkPort::local_address(&**port))
    }

    fn add_peer(&mut self, address: SocketAddr) -> Result<PeerIndex> {
        each!(self, port => NetworkPort::add_peer(&mut **port, address))
    }

    fn sequence(&mut self, peer: PeerIndex, session: u32, expected: u32) -> bool {
        each!(self, port => port.sequence(peer, session, expected))
    }

    fn unknown_senders(&mut self, visit: impl FnMut(SocketAddr, &[u8])) {
        each!(self, port => port.unknown_senders(visit));
    }
}
