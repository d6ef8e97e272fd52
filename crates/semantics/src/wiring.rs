//! Ports for a hub and its leaves, and the layers over them.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;

use endpoint::{Driver, udp_links};
use engine::LinkConfig;
use linux::shortage::raise_descriptor_limit;
use machine::port::memory::{self, MemoryPort};
use machine::{Bytes, Fault, Port, Result};
use ports::shm::{Geometry, Role, ShmPort};
use ports::udp::UdpPort;
use queue_pair::{Endpoint, Link, ReceiveQueues, Settings};

use super::layer::Message;
use super::{Footprint, Semantics};

/// A hub and its leaves over one layer.
pub struct World<L> {
    pub hub: L,
    pub leaves: Vec<L>,
}

pub struct Ports<P> {
    pub hub: P,
    pub leaves: Vec<P>,
}

/// Packets in flight of one connection over a port that can lose them, where this many share a socket.
fn window(port: &UdpPort, peers: usize) -> u32 {
    let share = port.buffers().receive_window(port.capabilities().mtu) / peers as u64;
    share.clamp(4, 128) as u32
}

pub fn memory(peers: u32) -> Ports<MemoryPort> {
    let geometry = memory::Geometry { mtu: 4 << 10, hub: 4 << 20, leaf: 64 << 10 };
    let (hub, leaves) = memory::star(peers as usize, geometry);
    Ports { hub, leaves }
}

/// Rings of 64 slots as everywhere; the bulk rings beside are small, so that a thousand fit.
pub fn shm(peers: u32) -> Result<Ports<ShmPort>> {
    raise_descriptor_limit();
    let geometry = Geometry { slots: 64, bulk: 16 << 10, mtu: 4 << 10 };
    let mut hub = ShmPort::new(geometry);
    let mut leaves = Vec::new();
    for _ in 0..peers {
        let (left, right) = UnixStream::pair().map_err(|e| Fault::because("a socket pair", e, "see ulimit -n"))?;
        let mut leaf = ShmPort::new(geometry);
        std::thread::scope(|scope| {
            let joined = scope.spawn(|| leaf.connect(&right, Role::Join));
            hub.connect(&left, Role::Create)?;
            joined.join().expect("a handshake does not panic")
        })?;
        leaves.push(leaf);
    }
    Ok(Ports { hub, leaves })
}

pub fn udp(peers: u32) -> Result<Ports<UdpPort>> {
    raise_descriptor_limit();
    let open = || UdpPort::open(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let mut hub = open()?;
    let mut leaves = Vec::new();
    for _ in 0..peers {
        let mut leaf = open()?;
        leaf.add_peer(hub.local_address())?;
        hub.add_peer(leaf.local_address())?;
        leaves.push(leaf);
    }
    Ok(Ports { hub, leaves })
}

/// Settings of the layers for a port.
pub trait Wired: Port + Send + Sized {
    /// Link settings for each peer.
    fn links(&self, peers: usize, hub_has: usize) -> Vec<LinkConfig>;

    fn link(&self, _hub_has: usize) -> Link {
        Link::of(&self.capabilities())
    }
}

impl Wired for MemoryPort {
    fn links(&self, peers: usize, _: usize) -> Vec<LinkConfig> {
        vec![LinkConfig::for_port(&self.capabilities(), 0); peers]
    }
}

impl Wired for ShmPort {
    fn links(&self, peers: usize, _: usize) -> Vec<LinkConfig> {
        vec![LinkConfig::for_port(&self.capabilities(), 0); peers]
    }
}

impl Wired for UdpPort {
    /// All links have one session; the leaves, too, share the hub's buffer.
    fn links(&self, peers: usize, hub_has: usize) -> Vec<LinkConfig> {
        udp_links(self, &vec![11; hub_has])[..peers].to_vec()
    }

    fn link(&self, hub_has: usize) -> Link {
        Link { window: window(self, hub_has), ..Link::of(&self.capabilities()) }
    }
}

/// Depth of the shared receive queue, at the hub and at a leaf.
const SHARED_DEPTH: u32 = 1024;
const LEAF_DEPTH: u32 = 64;

fn queue_pair_settings(semantics: Semantics) -> Settings {
    match semantics {
        Semantics::QueuePairShared => Settings::shared(SHARED_DEPTH),
        _ => Settings::default(),
    }
}

pub fn matched<P: Wired>(ports: Ports<P>) -> (World<Driver<P, Message>>, Footprint) {
    let peers = ports.leaves.len();
    let leaves = ports.leaves.into_iter().map(|port| {
        let links = port.links(1, peers);
        Driver::new(port, &links)
    });
    let leaves = leaves.collect();
    let links = ports.hub.links(peers, peers);
    let before = Footprint::look();
    let hub = Driver::new(ports.hub, &links);
    let computed = engine::Engine::<Message>::BYTES_PER_PEER as u64;
    (World { hub, leaves }, before.idle(Semantics::Matched, peers as u32, Bytes(computed)))
}

pub fn queue_pairs<P: Wired>(
    ports: Ports<P>,
    semantics: Semantics,
) -> Result<(World<Endpoint<P, Message>>, Footprint)> {
    let peers = ports.leaves.len();
    let settings = queue_pair_settings(semantics);
    let link = ports.hub.link(peers);
    // A leaf has one peer, and as many receives for it with either queue.
    let of_leaf = match settings.receive {
        ReceiveQueues::Shared { .. } => {
            Settings { receive: ReceiveQueues::Shared { depth: LEAF_DEPTH }, ..settings.clone() }
        }
        ReceiveQueues::PerPeer { .. } => settings.clone(),
    };
    let mut leaves = Vec::new();
    let mut addresses = Vec::with_capacity(peers);
    for port in ports.leaves {
        let mut leaf = Endpoint::open(port, &of_leaf)?;
        addresses.push(leaf.create(link)?.1);
        leaves.push(leaf);
    }
    let mut hub_addresses = Vec::with_capacity(peers);
    let before = Footprint::look();
    let mut hub = Endpoint::open(ports.hub, &settings)?;
    for &address in &addresses {
        let (peer, ours) = hub.create(link)?;
        hub.connect(peer, address)?;
        hub_addresses.push(ours);
    }
    let footprint = before.idle(semantics, peers as u32, Bytes(hub.bytes_per_peer()?));
    for (leaf, &address) in leaves.iter_mut().zip(&hub_addresses) {
        leaf.connect(machine::PeerIndex(0), address)?;
    }
    Ok((World { hub, leaves }, footprint))
}
