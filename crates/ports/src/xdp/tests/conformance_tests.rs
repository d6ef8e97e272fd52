//! The checks that every port passes, with each packet sequenced as the engine would: through the program.

use machine::port::conformance::{self, Bench, Leaf, Star};
use machine::{Bytes, Capabilities, Notice, Result, Sent};

use super::*;

/// Adds the engine's header before each packet, and a byte behind it, since the engine has no empty ones; removes both again.
struct Sequenced {
    port: XdpPort,
    next: Vec<u32>,
}

const HEADER: usize = 24;
const AROUND: usize = HEADER + 1;
const CONVERSATION: u32 = 3;

impl Sequenced {
    fn add_peer(&mut self, address: SocketAddr) -> PeerIndex {
        let peer = self.port.add_peer(address).unwrap();
        assert!(self.port.sequence(peer, CONVERSATION, 0));
        self.next.push(0);
        peer
    }
}

impl Port for Sequenced {
    fn capabilities(&self) -> Capabilities {
        let inner = self.port.capabilities();
        Capabilities { mtu: Bytes(inner.mtu.0 - AROUND as u64), ..inner }
    }

    fn send(&mut self, peer: PeerIndex, length: usize, fill: impl FnOnce(&mut [u8])) -> Result<Sent> {
        let sequence = self.next.get(peer.0 as usize).copied().unwrap_or(0);
        let sent = self.port.send(peer, length.saturating_add(AROUND), |into| {
            let (header, body) = into.split_at_mut(HEADER);
            header.copy_from_slice(&packet(CONVERSATION, sequence, 0, CARRIES, body)[..HEADER]);
            fill(&mut body[..length]);
            body[length] = 0;
        })?;
        if sent == Sent::Taken {
            self.next[peer.0 as usize] += 1;
        }
        Ok(sent)
    }

    fn flush(&mut self) -> Result<()> {
        self.port.flush()
    }

    fn receive(&mut self, budget: usize, mut deliver: impl FnMut(PeerIndex, &[u8])) -> Result<usize> {
        let mut delivered = 0;
        self.port.receive(budget, |peer, packet| {
            // Acknowledgements of the program are not part of the suite's traffic.
            if packet.len() > HEADER {
                delivered += 1;
                deliver(peer, &packet[HEADER..packet.len() - 1]);
            }
        })?;
        Ok(delivered)
    }

    fn notices(&mut self, report: impl FnMut(Notice)) -> Result<()> {
        self.port.notices(report)
    }

    fn read_remote(&mut self, peer: PeerIndex, address: u64, into: &mut [u8]) -> Result<()> {
        self.port.read_remote(peer, address, into)
    }
}

struct Hosts {
    lab: Lab,
    ips: [IpAddr; 2],
    hooks: [Arc<Hook>; 2],
}

impl Hosts {
    fn open(&self, host: Host) -> Sequenced {
        let port = XdpPort::at(udp(&self.lab, host, self.ips[host as usize]), &self.hooks[host as usize]).unwrap();
        Sequenced { port, next: Vec::new() }
    }
}

impl Bench for Hosts {
    type Port = Sequenced;

    fn star(&mut self, count: usize) -> Star<Sequenced> {
        let mut hub = self.open(Host::A);
        let mut join = || {
            let mut port = self.open(Host::B);
            let index = hub.add_peer(port.port.local_address());
            Leaf { hub: port.add_peer(hub.port.local_address()), port, index }
        };
        let leaves = (0..count).map(|_| join()).collect();
        Star { hub, leaves }
    }

    fn end(&mut self, leaf: Sequenced) {
        let counted = leaf.port.lane_counters();
        assert!(counted.placed > 0 || leaf.port.counters().packets_received == 0, "{counted:?}");
        drop(leaf);
    }

    /// Only a packet that is refused tells that nobody listens any more.
    fn notices_ends(&self) -> bool {
        false
    }
}

fn conforms(ips: [IpAddr; 2], mode: XdpMode) {
    let lab = Lab::owned(&Options::default()).unwrap();
    let hooks = Host::BOTH.map(|host| hook(&lab, host, mode));
    conformance::all(&mut Hosts { lab, ips, hooks });
}

#[test]
fn the_port_conforms() {
    let Some(first) = lab() else { return };
    conforms(families(&first)[0], XdpMode::Native);
}

#[test]
#[ignore = "make check"]
fn the_port_conforms_in_all_ways() {
    let Some(first) = lab() else { return };
    let families = families(&first);
    conforms(families[0], XdpMode::Generic);
    for ips in &families[1..] {
        [XdpMode::Native, XdpMode::Generic].iter().for_each(|mode| conforms(*ips, *mode));
    }
}
