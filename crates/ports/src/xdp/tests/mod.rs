//! The program on a real kernel, between the hosts of a lab.

mod conformance_tests;
mod program_tests;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use machine::{FaultKind, PeerIndex, Port, XdpMode};

use super::*;
use crate::network::NetworkPort;
use crate::udp::UdpPort;
use linux::lab::testing::families;
use linux::lab::{Host, Lab, Options};

pub const CARRIES: u32 = 1;
pub const PING: u32 = 2;
pub const ACKNOWLEDGED: u32 = 4;

/// A lab, unless this machine has none or no BPF.
pub fn lab() -> Option<Lab> {
    if let Err(fault) = possible() {
        assert!([FaultKind::NotPermitted, FaultKind::Missing].contains(&fault.kind()), "{fault}");
        skip::test(fault);
        return None;
    }
    linux::lab::testing::possible().then(|| Lab::owned(&Options::default()).unwrap())
}

pub fn hook(lab: &Lab, host: Host, mode: XdpMode) -> Arc<Hook> {
    Arc::new(lab.inside(host, || Hook::attach(lab.interface(host), mode).unwrap()).unwrap())
}

pub fn udp(lab: &Lab, host: Host, ip: IpAddr) -> UdpPort {
    lab.inside(host, || UdpPort::open(SocketAddr::new(ip, 0)).unwrap()).unwrap()
}

/// The engine's sequencing header and `body`.
pub fn packet(session: u32, sequence: u32, expected: u32, flags: u32, body: &[u8]) -> Vec<u8> {
    let flags = flags | (body.len() as u32) << 16;
    let mut bytes = [session, sequence, expected, flags, 0, 0].map(u32::to_le_bytes).concat();
    bytes.extend_from_slice(body);
    bytes
}

pub fn word(packet: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(packet[at..at + 4].try_into().unwrap())
}

/// A frame with a packet of a conversation, from its Ethernet header on.
pub fn frame(from: SocketAddr, to: SocketAddr, session: u32, sequence: u32, body: &[u8]) -> Vec<u8> {
    let payload = packet(session, sequence, 0, CARRIES, body);
    let length = (8 + payload.len() as u16).to_be_bytes();
    let mut frame = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut frame = vec![0u8; 34];
            frame[12..15].copy_from_slice(&[8, 0, 0x45]);
            frame[16..18].copy_from_slice(&(28 + payload.len() as u16).to_be_bytes());
            frame[22..24].copy_from_slice(&[64, 17]);
            frame[26..30].copy_from_slice(&from.octets());
            frame[30..34].copy_from_slice(&to.octets());
            frame
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let mut frame = vec![0u8; 22];
            frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
            frame[18..20].copy_from_slice(&length);
            frame[20..22].copy_from_slice(&[17, 64]);
            frame.extend(from.octets().into_iter().chain(to.octets()));
            frame
        }
        _ => unreachable!("addresses of one family"),
    };
    frame.extend(from.port().to_be_bytes().into_iter().chain(to.port().to_be_bytes()).chain(length));
    // An arbitrary checksum, which the program does not verify.
    frame.extend([1, 2]);
    frame.extend_from_slice(&payload);
    frame
}

/// A port at host B that receives at the hook, and its peer, a plain socket at host A.
pub struct Pair {
    pub hook: Arc<Hook>,
    pub port: XdpPort,
    pub peer: PeerIndex,
    pub socket: UdpSocket,
    /// Packets that were received, in order.
    pub got: Vec<Vec<u8>>,
}

/// Number of the tests' conversation, and of its first packet.
pub const SESSION: u32 = 77;
pub const FIRST: u32 = u32::MAX - 20;

impl Pair {
    pub fn new(lab: &Lab, [a, b]: [IpAddr; 2], mode: XdpMode) -> Pair {
        let hook = hook(lab, Host::B, mode);
        let mut port = XdpPort::at(udp(lab, Host::B, b), &hook).unwrap();
        let socket = lab.inside(Host::A, || UdpSocket::bind((a, 0)).unwrap()).unwrap();
        socket.connect(port.local_address()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let peer = port.add_peer(socket.local_addr().unwrap()).unwrap();
        let mut pair = Pair { hook, port, peer, socket, got: Vec::new() };
        // The first packets wait for the neighbours' addresses.
        pair.send(b"hello");
        pair.until("the first packet by the socket", |pair| !pair.got.is_empty());
        pair.got.clear();
        assert!(pair.port.sequence(pair.peer, SESSION, FIRST));
        pair
    }

    pub fn send(&self, packet: &[u8]) {
        assert_eq!(self.socket.send(packet).unwrap(), packet.len());
    }

    /// Packet `number` of the conversation, counted from 0.
    pub fn send_number(&self, number: u32, flags: u32) {
        self.send(&packet(SESSION, FIRST.wrapping_add(number), 0, CARRIES | flags, &number.to_le_bytes()));
    }

    pub fn frame(&self, session: u32, sequence: u32, body: &[u8]) -> Vec<u8> {
        frame(self.socket.local_addr().unwrap(), self.port.local_address(), session, sequence, body)
    }

    pub fn receive(&mut self) {
        let Pair { port, peer, got, .. } = self;
        port.receive(64, |from, packet| {
            assert_eq!(from, *peer);
            got.push(packet.to_vec());
        })
        .unwrap();
    }

    /// The numbers of the packets received.
    pub fn numbers(&self) -> Vec<u32> {
        self.got.iter().map(|packet| word(packet, 24)).collect()
    }

    pub fn until(&mut self, what: &str, done: impl Fn(&mut Pair) -> bool) {
        let end = Instant::now() + skip::LIMIT;
        while !done(self) {
            assert!(Instant::now() < end, "{what}: not within 20 s; {:?}", self.port.lane_counters());
            self.receive();
            std::thread::yield_now();
        }
    }

    /// The next acknowledgement at the peer: the packet expected, counted from [`FIRST`], and the bits of packets beyond.
    pub fn acknowledgement(&self) -> Option<(u32, u64)> {
        let mut bytes = [0; 100];
        let length = self.socket.recv(&mut bytes).ok()?;
        assert_eq!((length, word(&bytes, 0), word(&bytes, 12)), (24, SESSION, 0), "{:?}", &bytes[..length]);
        Some((word(&bytes, 8).wrapping_sub(FIRST), u64::from(word(&bytes, 20)) << 32 | u64::from(word(&bytes, 16))))
    }

    /// As [`Pair::acknowledgement`], without polling the port: only the program can have sent it.
    pub fn next_acknowledgement(&self) -> (u32, u64) {
        let end = Instant::now() + skip::LIMIT;
        loop {
            if let Some(found) = self.acknowledgement() {
                return found;
            }
            assert!(Instant::now() < end, "no acknowledgement within 20 s; {:?}", self.port.lane_counters());
            std::thread::yield_now();
        }
    }

    /// Waits, without polling the port, until the program has seen so many packets of the conversation.
    pub fn seen(&self, packets: u64) {
        let end = Instant::now() + skip::LIMIT;
        let seen = || {
            let counted = self.port.lane_counters();
            counted.placed + counted.duplicated + counted.full + counted.far + counted.long + counted.unknown
        };
        while seen() < packets {
            assert!(Instant::now() < end, "not within 20 s: {:?}", self.port.lane_counters());
            std::thread::yield_now();
        }
    }
}
