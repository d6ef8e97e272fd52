//! Cost of a packet on the receiving core: where the kernel receives (`udp`), and where a program at the driver hook does
//! (`xdp:IFACE`). Needs root.
//!
//! `cargo bench -p endpoint --bench receive`. Packets are sent to a port that is not polled; when all are there, the time in
//! which the port delivers them is measured, on one core. The earlier work of the kernel or the program is not in it: that is
//! softirq work, on the core that serves the interface's queue. Each figure is the least of several.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use linux::lab::{Host, Lab, Options};
use machine::Result;
use ports::network::NetworkPort;
use ports::udp::UdpPort;
use ports::xdp::XdpPort;

/// Packets that wait for a port when it is timed.
const WAITING: u32 = 256;
const BURSTS: u32 = 40;
const POLLS: u32 = 100_000;

/// A packet as the engine sends it: sequencing header, then 24 bytes.
fn packet(sequence: u32) -> [u8; 48] {
    let mut bytes = [0; 48];
    let words = [1, sequence, 0, 24 << 16 | 1];
    bytes.chunks_exact_mut(4).zip(words).for_each(|(place, word)| place.copy_from_slice(&u32::to_le_bytes(word)));
    bytes
}

/// Nanoseconds of the receiving thread per waiting packet, and per poll that finds nothing.
fn costs<P: NetworkPort>(lab: &Lab, mut port: P) -> [f64; 2] {
    let from = SocketAddr::new(lab.address(Host::A), 0);
    let socket = lab.inside(Host::A, || UdpSocket::bind(from).expect("bind")).expect("host a");
    socket.connect(port.local_address()).expect("connect");
    let peer = port.add_peer(socket.local_addr().expect("address")).expect("peer");
    port.sequence(peer, 1, 0);
    let mut best = [f64::INFINITY; 2];
    for round in 0..BURSTS {
        for number in 0..WAITING {
            socket.send(&packet(round * WAITING + number)).expect("send");
        }
        std::thread::sleep(Duration::from_millis(2));
        let (mut came, start) = (0, Instant::now());
        while came < WAITING as usize {
            came += port.receive(64, |_, _| ()).expect("receive");
            assert!(start.elapsed() < Duration::from_secs(20), "{came} of {WAITING} packets came");
        }
        best[0] = best[0].min(start.elapsed().as_nanos() as f64 / f64::from(WAITING));
    }
    for _ in 0..5 {
        let start = Instant::now();
        (0..POLLS).for_each(|_| assert_eq!(port.receive(64, |_, _| ()).expect("receive"), 0));
        best[1] = best[1].min(start.elapsed().as_nanos() as f64 / f64::from(POLLS));
    }
    best
}

fn main() -> Result<()> {
    let (one, other) = match (Lab::owned(&Options::default()), Lab::owned(&Options::default())) {
        (Ok(one), Ok(other)) => (one, other),
        (Err(fault), _) | (_, Err(fault)) => {
            skip::test(fault);
            return Ok(());
        }
    };
    let _pinned = linux::affinity::pin(linux::affinity::allowed()?[0])?;
    let at = |lab: &Lab| SocketAddr::new(lab.address(Host::B), 0);
    let udp = costs(&one, one.inside(Host::B, || UdpPort::open(at(&one)))??);
    let xdp = costs(&other, other.inside(Host::B, || XdpPort::open(at(&other), other.interface(Host::B)))??);
    for (network, [packet, look]) in [("udp", udp), ("xdp", xdp)] {
        println!("{network}: {packet:7.1} ns a packet that waits, {look:7.1} ns a look that finds none");
    }
    println!("xdp / udp: {:.3} x a packet, {:.4} x a look", xdp[0] / udp[0], xdp[1] / udp[1]);
    Ok(())
}
