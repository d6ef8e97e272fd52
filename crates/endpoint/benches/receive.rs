//! What receiving costs where the kernel does it (`udp`) and where a program at the driver hook does (`xdp:IFACE`),
//! between the two hosts of a lab each. Needs root.
//!
//! `cargo bench -p endpoint --bench receive`. Blocks are interleaved; each figure is the median over rounds with its
//! quartiles. On a veth the sender's core does the receiving host's softirq work, the program's among it: what the
//! receiving *core* saves is the last two figures.

use std::hint::spin_loop;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Barrier;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use endpoint::{Direction, Endpoint, Name, Paths, Settings, Source, TagSelector};
use linux::lab::{Host, Lab, Options};
use linux::network::NetworkPort;
use linux::udp::UdpPort;
use linux::xdp::receive::XdpPort;
use machine::{CoreId, PeerIndex, Result};

const NETWORKS: [&str; 2] = ["udp", "xdp:lab0"];
const ROUNDS: usize = 11;
const PINGS: u64 = 2000;
const MESSAGES: usize = 40_000;
const WINDOW: usize = 64;
const LARGE: usize = 1 << 20;
const LARGE_MESSAGES: usize = 40;
/// Packets that wait for a port when it is timed.
const WAITING: u32 = 256;
const LOOKS: u32 = 100_000;

type End = Endpoint<Paths, Vec<u8>>;

struct Side {
    end: End,
    other: PeerIndex,
}

/// To be called in `host`, once by each end.
fn join(lab: &Lab, host: Host, network: &str, tell: &Sender<Name>, hear: &Receiver<Name>) -> Result<Side> {
    let read = |key: &str| match key {
        "NETWORK" => Some(network.to_owned()),
        "ADDRESS" => Some(lab.address(host).to_string()),
        "SHM" => Some("no".into()),
        _ => None,
    };
    let mut end = End::join(&Settings::read(read)?)?;
    tell.send(end.name()).expect("the other end");
    let other = end.insert(&hear.recv().expect("the other end"))?;
    Ok(Side { end, other })
}

impl Side {
    fn post(&mut self, tag: u64, buffer: Vec<u8>) {
        self.end.receive(Source::Peer(self.other), TagSelector::exactly(tag), buffer, 0).expect("receive");
    }

    fn send(&mut self, tag: u64, buffer: Vec<u8>) {
        self.end.send(self.other, tag, buffer, 0).expect("send");
    }

    /// Until so many sends and receives have ended; their buffers.
    fn until(&mut self, mut sends: usize, mut receives: usize, pool: &mut Vec<Vec<u8>>) {
        while sends > 0 || receives > 0 {
            match self.end.poll().expect("poll") {
                Some(done) => {
                    match done.direction {
                        Direction::Send => sends = sends.saturating_sub(1),
                        Direction::Receive => receives -= 1,
                    }
                    pool.push(done.buffer);
                }
                None => spin_loop(),
            }
        }
    }

    fn ping_pong(&mut self, first: bool) -> f64 {
        let mut pool = vec![vec![0; 8]; 4];
        let start = Instant::now();
        for _ in 0..PINGS {
            if first {
                self.send(1, pool.pop().expect("pool"));
            }
            self.post(1, pool.pop().expect("pool"));
            self.until(0, 1, &mut pool);
            if !first {
                self.send(1, pool.pop().expect("pool"));
            }
            while pool.len() < 2 {
                self.until(1, 0, &mut pool);
            }
        }
        start.elapsed().as_nanos() as f64 / PINGS as f64 / 2.0
    }

    /// One way, windows answered by one message.
    fn stream(&mut self, first: bool, length: usize, window: usize, messages: usize) -> f64 {
        let mut pool = vec![vec![0; length]; window];
        let start = Instant::now();
        for _ in 0..messages / window {
            let mut answer = Vec::new();
            if first {
                self.post(2, vec![0; 8]);
                for _ in 0..window {
                    let buffer = pool.pop().expect("pool");
                    self.send(1, buffer);
                }
                self.until(window, 1, &mut pool);
                // The answer's buffer is no message's.
                pool.retain(|buffer| buffer.len() == length);
                pool.resize(window, vec![0; length]);
            } else {
                for _ in 0..window {
                    let buffer = pool.pop().expect("pool");
                    self.post(1, buffer);
                }
                self.until(0, window, &mut pool);
                self.send(2, vec![0; 8]);
                self.until(1, 0, &mut answer);
            }
        }
        messages as f64 / start.elapsed().as_secs_f64()
    }
}

/// A packet as the engine sends it: sequencing header, then 24 bytes.
fn packet(sequence: u32) -> [u8; 48] {
    let mut bytes = [0; 48];
    let words = [1, sequence, 0, 24 << 16 | 1];
    bytes.chunks_exact_mut(4).zip(words).for_each(|(place, word)| place.copy_from_slice(&u32::to_le_bytes(word)));
    bytes
}

/// Nanoseconds of the receiving thread a packet that waits, and a look that finds nothing.
fn costs<P: NetworkPort>(lab: &Lab, mut port: P) -> [f64; 2] {
    let from = SocketAddr::new(lab.address(Host::A), 0);
    let socket = lab.inside(Host::A, || UdpSocket::bind(from).expect("bind")).expect("host a");
    socket.connect(port.local_address()).expect("connect");
    let peer = port.add_peer(socket.local_addr().expect("address")).expect("peer");
    port.sequence(peer, 1, 0);
    let mut best = [f64::INFINITY; 2];
    for round in 0..20 {
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
        (0..LOOKS).for_each(|_| assert_eq!(port.receive(64, |_, _| ()).expect("receive"), 0));
        best[1] = best[1].min(start.elapsed().as_nanos() as f64 / f64::from(LOOKS));
    }
    best
}

#[derive(Default)]
struct Series(Vec<f64>);

impl Series {
    fn show(&mut self, name: &str, unit: &str, scale: f64) {
        self.0.sort_by(f64::total_cmp);
        let at = |share: f64| self.0[((self.0.len() - 1) as f64 * share) as usize] * scale;
        println!("{name:52} {:10.3} {unit}  ({:.3} .. {:.3})", at(0.5), at(0.25), at(0.75));
    }
}

/// One end of network `mine`; while another network is measured it sleeps.
fn run(mut side: Side, core: CoreId, mine: usize, first: bool, barrier: &Barrier) -> [Series; 3] {
    let _pinned = linux::affinity::pin(core).expect("pin");
    let mut all: [Series; 3] = Default::default();
    for round in 0..ROUNDS + 1 {
        for network in 0..NETWORKS.len() {
            for (at, series) in all.iter_mut().enumerate() {
                barrier.wait();
                if network != mine {
                    continue;
                }
                let value = match at {
                    0 => side.ping_pong(first),
                    1 => side.stream(first, 8, WINDOW, MESSAGES),
                    _ => side.stream(first, LARGE, 2, LARGE_MESSAGES),
                };
                // What was sent last may have to be sent again: the other needs this end until it has all.
                side.end.settle(Duration::from_millis(20)).expect("settle");
                // The first round warms up.
                if round > 0 {
                    series.0.push(value);
                }
            }
        }
    }
    barrier.wait();
    if !first {
        let report = side.end.report().expect("report");
        report.notes.iter().for_each(|note| println!("note: {note}"));
    }
    all
}

fn main() -> Result<()> {
    let cores = linux::affinity::allowed()?;
    let &[first, second, ..] = &cores[..] else {
        println!("SKIPPED: two cores are needed, this process has {}", cores.len());
        return Ok(());
    };
    let labs = match (Lab::owned(&Options::default()), Lab::owned(&Options::default())) {
        (Ok(one), Ok(other)) => [one, other],
        (Err(fault), _) | (_, Err(fault)) => {
            println!("SKIPPED: {fault}");
            return Ok(());
        }
    };
    let barrier = Barrier::new(2 * NETWORKS.len());
    let mut all: Vec<[Series; 3]> = std::thread::scope(|scope| {
        let mut ends = Vec::new();
        for (mine, (lab, network)) in labs.iter().zip(NETWORKS).enumerate() {
            let ((to_b, from_a), (to_a, from_b)) = (channel(), channel());
            for (host, core, tell, hear) in [(Host::A, first, to_b, from_b), (Host::B, second, to_a, from_a)] {
                let barrier = &barrier;
                let work = move || {
                    let side = join(lab, host, network, &tell, &hear).expect("an endpoint");
                    run(side, core, mine, host == Host::A, barrier)
                };
                ends.push(scope.spawn(move || lab.inside(host, work).expect("the host")));
            }
        }
        // Of each network the sender's.
        ends.into_iter().map(|end| end.join().expect("an end")).step_by(2).collect()
    });
    println!(
        "two hosts of a lab, engine at app, {first} and {second}, {ROUNDS} interleaved rounds: median (quartiles)"
    );
    for (network, series) in NETWORKS.iter().zip(&mut all) {
        series[0].show(&format!("{network}: 8 B, half round trip"), "us", 1e-3);
        series[1].show(&format!("{network}: 8 B, message rate"), "M/s", 1e-6);
        series[2].show(&format!("{network}: 1 MiB, bandwidth"), "GB/s", LARGE as f64 * 1e-9);
    }
    let at = |lab: &Lab| SocketAddr::new(lab.address(Host::B), 0);
    let udp = labs[0].inside(Host::B, || UdpPort::open(at(&labs[0])))??;
    let xdp = labs[1].inside(Host::B, || XdpPort::open(at(&labs[1]), "lab0"))??;
    let _pinned = linux::affinity::pin(first)?;
    for (network, [packet, look]) in NETWORKS.iter().zip([costs(&labs[0], udp), costs(&labs[1], xdp)]) {
        println!(
            "{network}: receiving core, ns a packet that waits {packet:8.1}, ns a look that finds none {look:8.1}"
        );
    }
    Ok(())
}
