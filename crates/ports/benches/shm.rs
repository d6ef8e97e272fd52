//! The shared-memory port against the raw cache line between the same two cores.
//!
//! `cargo bench -p ports --bench shm [-- SLOTS BULK MTU]`. Two processes, each pinned to a core; the quantities
//! alternate in short blocks, with a probe before each, so that a machine whose cores move apart shows it in every
//! column. Prints the median, and the quartiles as spread.

use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use linux::affinity;
use machine::{Bytes, CoreId, PeerIndex, Port, Sent};
use ports::probe::ProbeLines;
use ports::ring;
use ports::shm::{Geometry, Role, ShmPort};

const PEER: PeerIndex = PeerIndex(0);
const ROUNDS: usize = 15;
const PINGS: u64 = 2_000;
const SMALL: u64 = 200_000;
const BULK_BYTES: u64 = 16 << 20;

/// Orders to the second process, as packets of three words: order, bytes, times.
const ECHO: u64 = 1;
const COUNT: u64 = 2;
const PROBE: u64 = 3;
const QUIT: u64 = 4;

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let peer = arguments.first().is_some_and(|a| a == "--peer");
    if peer {
        arguments.remove(0);
    }
    let figure =
        |i: usize, default: usize| arguments.get(i).map_or(default, |a| a.parse::<Bytes>().expect("a size").0 as usize);
    let usual = Geometry::default();
    let geometry = Geometry { slots: figure(0, usual.slots), bulk: figure(1, usual.bulk), mtu: figure(2, usual.mtu) };
    if peer {
        // SAFETY: the parent made the socket our descriptor 0, and nothing else here reads standard input.
        return serve(UnixStream::from(unsafe { OwnedFd::from_raw_fd(0) }), CoreId(figure(3, 1) as u32), geometry);
    }
    let cores = affinity::allowed().unwrap();
    let &[mine, theirs, ..] = &cores[..] else {
        return println!("one core only: nothing to measure between cores");
    };
    let (stream, other) = UnixStream::pair().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let figures = [geometry.slots, geometry.bulk, geometry.mtu, theirs.0 as usize];
    command.arg("--peer").args(figures.map(|n| n.to_string())).stdin(Stdio::from(OwnedFd::from(other)));
    affinity::inherit_allowed(&mut command).unwrap();
    let mut child = Reaped(command.spawn().unwrap());
    drop(command);
    let _pinned = affinity::pin(mine).unwrap();
    measure(&stream, geometry);
    child.0.wait().unwrap();
}

/// Killed and reaped with the parent, also when the parent panics.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(stream: UnixStream, core: CoreId, geometry: Geometry) {
    let _pinned = affinity::pin(core).unwrap();
    let mut port = ShmPort::new(geometry);
    port.connect(&stream, Role::Join).unwrap();
    let lines = ProbeLines::join(&stream).unwrap();
    // Memory to be read remotely; its address is the first thing the parent gets.
    let exposed = vec![7u8; 1 << 20];
    push(&mut port, 8, |into| into.copy_from_slice(&(exposed.as_ptr() as u64).to_le_bytes()));
    let mut sum = 0u64;
    loop {
        let order = receive_words(&mut port);
        match order[0] {
            ECHO => {
                for _ in 0..order[2] {
                    receive(&mut port, 1, |packet| sum += packet.len() as u64);
                    push(&mut port, order[1] as usize, |into| into.fill(1));
                }
            }
            COUNT => {
                let mut left = order[2];
                while left > 0 {
                    let most = left.min(32) as usize;
                    // Reads every cache line, as a reader would.
                    left -= receive(&mut port, most, |packet| sum += copied(packet));
                }
                push(&mut port, 8, |into| into.copy_from_slice(&sum.to_le_bytes()));
            }
            PROBE => drop(lines.follow()),
            _ => break,
        }
    }
}

/// Copies a packet to where an application would have it; returns a value that depends on it.
fn copied(packet: &[u8]) -> u64 {
    if packet.len() <= 56 {
        return packet.len() as u64;
    }
    thread_local!(static PLACE: std::cell::RefCell<Vec<u8>> = std::cell::RefCell::new(vec![0; 64 << 10]));
    PLACE.with_borrow_mut(|place| {
        place[..packet.len()].copy_from_slice(packet);
        u64::from(place[packet.len() - 1])
    })
}

fn push(port: &mut ShmPort, length: usize, fill: impl Fn(&mut [u8])) {
    while port.send(PEER, length, &fill).unwrap() == Sent::Full {}
}

/// Waits for packets; ends the process when the peer is gone, so that neither outlives the other.
fn receive(port: &mut ShmPort, most: usize, mut take: impl FnMut(&[u8])) -> u64 {
    let mut looks = 0u32;
    loop {
        let n = port.receive(most, |_, packet| take(packet)).unwrap();
        if n > 0 {
            return n as u64;
        }
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(1 << 16) {
            port.notices(|notice| panic!("{notice:?} in the middle of a block")).unwrap();
        }
    }
}

fn receive_words(port: &mut ShmPort) -> [u64; 3] {
    let mut words = [0; 3];
    receive(port, 1, |packet| {
        for (word, bytes) in words.iter_mut().zip(packet.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().unwrap());
        }
    });
    words
}

fn order(port: &mut ShmPort, words: [u64; 3]) {
    push(port, 24, |into| {
        for (place, word) in into.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    });
}

struct Column {
    name: String,
    unit: &'static str,
    values: Vec<f64>,
}

impl Column {
    fn quartiles(&self) -> [f64; 3] {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        [1, 2, 3].map(|q| sorted[(sorted.len() - 1) * q / 4])
    }
}

#[derive(Default)]
struct Table(Vec<Column>);

impl Table {
    fn add(&mut self, name: String, unit: &'static str, value: f64) {
        match self.0.iter_mut().find(|c| c.name == name) {
            Some(column) => column.values.push(value),
            None => self.0.push(Column { name, unit, values: vec![value] }),
        }
    }

    fn print(&self) {
        for column in &self.0 {
            let [low, middle, high] = column.quartiles();
            println!("{:<44}{middle:>10.2} {:<8} quartiles {low:.2} .. {high:.2}", column.name, column.unit);
        }
    }
}

fn measure(stream: &UnixStream, geometry: Geometry) {
    let mut port = ShmPort::new(geometry);
    port.connect(stream, Role::Create).unwrap();
    let lines = ProbeLines::share(stream).unwrap();
    let address = receive_words(&mut port)[0];
    let mut into = vec![0u8; 1 << 20];
    let source = vec![5u8; 1 << 20];
    let mut table = Table::default();
    for _ in 0..ROUNDS {
        order(&mut port, [PROBE, 0, 0]);
        let Some(raw) = lines.lead() else { continue };
        let raw = raw.nanoseconds();
        table.add("raw cache line, half round trip".into(), "ns", raw);
        for size in [8, 56, 57, 1024, 8192] {
            if size > geometry.mtu {
                continue;
            }
            let half = ping(&mut port, size);
            table.add(format!("port, {} half round trip", Bytes(size as u64)), "ns", half);
            if size == 8 {
                table.add("port 8 B over raw".into(), "x", half / raw);
            }
        }
        table.add("port, 8 B one way".into(), "M/s", stream_packets(&mut port, &source, 8, SMALL) / 1e6);
        for size in [8 << 10, 64 << 10, 256 << 10, 1 << 20] {
            let name = Bytes(size as u64);
            let rate = stream_packets(&mut port, &source[..size], geometry.mtu.min(size), BULK_BYTES / size as u64);
            table.add(format!("packets, messages of {name}"), "GB/s", rate * size as f64 / 1e9);
            table.add(
                format!("read_remote, messages of {name}"),
                "GB/s",
                remote(&mut port, address, &mut into[..size]),
            );
        }
        table.add("thread ring, push and pop on one core".into(), "ns", ring_on_one_core());
    }
    order(&mut port, [QUIT, 0, 0]);
    println!("{geometry:?}, {ROUNDS} rounds, {} and the next allowed one", affinity::current().unwrap()[0]);
    table.print();
}

fn ping(port: &mut ShmPort, size: usize) -> f64 {
    order(port, [ECHO, size as u64, PINGS + 100]);
    let mut start = Instant::now();
    for i in 0..PINGS + 100 {
        if i == 100 {
            start = Instant::now();
        }
        push(port, size, |into| into.fill(1));
        receive(port, 1, |packet| assert_eq!(packet.len(), size));
    }
    start.elapsed().as_nanos() as f64 / (2 * PINGS) as f64
}

/// Messages a second, each sent in packets of at most `piece`; counted by the receiver.
fn stream_packets(port: &mut ShmPort, message: &[u8], piece: usize, count: u64) -> f64 {
    let message = if piece == 8 { &message[..8] } else { message };
    let packets = message.len().div_ceil(piece) as u64;
    order(port, [COUNT, 0, count * packets]);
    let start = Instant::now();
    for _ in 0..count {
        for part in message.chunks(piece) {
            push(port, part.len(), |into| into.copy_from_slice(part));
        }
    }
    receive(port, 1, |_| ());
    count as f64 / start.elapsed().as_secs_f64()
}

fn remote(port: &mut ShmPort, address: u64, into: &mut [u8]) -> f64 {
    let count = BULK_BYTES / into.len() as u64;
    let start = Instant::now();
    for _ in 0..count {
        if let Err(fault) = port.read_remote(PEER, address, into) {
            println!("{fault}");
            return f64::NAN;
        }
    }
    BULK_BYTES as f64 / 1e9 / start.elapsed().as_secs_f64()
}

fn ring_on_one_core() -> f64 {
    let (mut producer, mut consumer) = ring::pair(256);
    let mut sum = 0;
    let start = Instant::now();
    for i in 0..10_000u64 {
        producer.try_push(8, |into| into.copy_from_slice(&i.to_le_bytes()));
        sum += consumer.try_pop(|message| message[0] as u64).unwrap_or(0);
    }
    std::hint::black_box(sum);
    start.elapsed().as_nanos() as f64 / 10_000.0
}
