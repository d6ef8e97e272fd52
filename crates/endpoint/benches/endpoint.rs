//! The engine over `shm` between two cores, beside the raw cache-line ping-pong of the same two cores.
//!
//! `cargo bench -p endpoint --bench endpoint`. Blocks are interleaved; each figure is the median over rounds with its
//! quartiles. Both ends are threads of this process, so that the probe and the engine use the very same cores.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Instant;

use endpoint::{Direction, Endpoint, Source, TagSelector, shm_links};
use machine::{CoreId, PeerIndex, Site};
use ports::shm::{Role, ShmPort};

const OTHER: PeerIndex = PeerIndex(0);
const ROUNDS: usize = 15;
const PINGS: u64 = 4000;
const MESSAGES: usize = 100_000;
const WINDOW: usize = 64;
const LARGE: usize = 1 << 20;
/// A small window, so that the buffers stay in the caches as NetPIPE's do.
const LARGE_WINDOW: usize = 2;
const LARGE_MESSAGES: usize = 200;

#[repr(align(128))]
struct Line(AtomicU64);

type End = Endpoint<ShmPort, Vec<u8>>;

fn endpoint(port: ShmPort, core: CoreId) -> End {
    let links = shm_links(&port, 1);
    let endpoint = Endpoint::open(port, &links, &Site::App, &[core]).expect("an endpoint at app");
    for note in &endpoint.placed().notes {
        println!("note: {note}");
    }
    endpoint
}

/// Polls until a message has come; buffers go back to the pool.
fn until_received(end: &mut End, pool: &mut Vec<Vec<u8>>) {
    loop {
        if let Some(done) = end.poll().expect("poll") {
            pool.push(done.buffer);
            if done.direction == Direction::Receive {
                return;
            }
        }
    }
}

fn ping_pong(end: &mut End, first: bool) -> f64 {
    let mut pool: Vec<Vec<u8>> = (0..4).map(|_| vec_of(8)).collect();
    let post = |end: &mut End, pool: &mut Vec<Vec<u8>>| {
        end.receive(Source::Peer(OTHER), TagSelector::exactly(1), pool.pop().expect("pool"), 0).expect("receive");
    };
    let start = Instant::now();
    if !first {
        post(end, &mut pool);
    }
    for ping in 1..=PINGS {
        if first {
            end.send(OTHER, 1, pool.pop().expect("pool"), 0).expect("send");
            post(end, &mut pool);
        }
        until_received(end, &mut pool);
        if !first {
            end.send(OTHER, 1, pool.pop().expect("pool"), 0).expect("send");
            if ping < PINGS {
                post(end, &mut pool);
            }
        }
    }
    start.elapsed().as_nanos() as f64 / PINGS as f64 / 2.0
}

fn vec_of(length: usize) -> Vec<u8> {
    vec![0u8; length]
}

/// Streams one way in windows, each acknowledged by one message; messages per second as the sender sees it.
fn stream(end: &mut End, first: bool, length: usize, window: usize, messages: usize) -> f64 {
    let mut pool: Vec<Vec<u8>> = (0..window + 1).map(|_| vec_of(length)).collect();
    let start = Instant::now();
    for _ in 0..messages / window {
        if first {
            end.receive(Source::Peer(OTHER), TagSelector::exactly(2), vec_of(8), 0).expect("receive");
            for _ in 0..window {
                end.send(OTHER, 1, pool.pop().expect("pool"), 0).expect("send");
            }
        } else {
            for _ in 0..window {
                end.receive(Source::Peer(OTHER), TagSelector::exactly(1), pool.pop().expect("pool"), 0)
                    .expect("receive");
            }
        }
        let (mut sent, mut got) = (0, 0);
        while if first { sent < window || got < 1 } else { got < window } {
            match end.poll().expect("poll") {
                Some(done) => {
                    match done.direction {
                        Direction::Send => sent += 1,
                        Direction::Receive => got += 1,
                    }
                    if done.buffer.len() == length {
                        pool.push(done.buffer);
                    }
                }
                None => end.relax(),
            }
        }
        if !first {
            end.send(OTHER, 2, vec![0; 9], 0).expect("send");
            while end.poll().expect("poll").is_none() {}
        }
    }
    messages as f64 / start.elapsed().as_secs_f64()
}

fn raw(lines: &[Line; 2], first: bool) -> f64 {
    let (mine, theirs) = if first { (&lines[0].0, &lines[1].0) } else { (&lines[1].0, &lines[0].0) };
    let base = mine.load(Ordering::Relaxed);
    let start = Instant::now();
    for i in 1..=PINGS {
        if first {
            mine.store(base + i, Ordering::Release);
        }
        while theirs.load(Ordering::Acquire) != base + i {
            std::hint::spin_loop();
        }
        if !first {
            mine.store(base + i, Ordering::Release);
        }
    }
    start.elapsed().as_nanos() as f64 / PINGS as f64 / 2.0
}

#[derive(Default)]
struct Series(Vec<f64>);

impl Series {
    fn show(&mut self, name: &str, unit: &str, scale: f64) -> f64 {
        self.0.sort_by(f64::total_cmp);
        let at = |share: f64| self.0[((self.0.len() - 1) as f64 * share) as usize] * scale;
        println!("{name:44} {:10.2} {unit}  ({:.2} .. {:.2})", at(0.5), at(0.25), at(0.75));
        at(0.5)
    }
}

fn run(port: ShmPort, core: CoreId, first: bool, lines: &[Line; 2], barrier: &Barrier) -> [Series; 4] {
    let _pinned = linux::affinity::pin(core).expect("pin");
    let mut end = endpoint(port, core);
    let mut all: [Series; 4] = Default::default();
    for round in 0..ROUNDS + 1 {
        let step = |f: &mut dyn FnMut() -> f64| {
            barrier.wait();
            f()
        };
        let values = [
            step(&mut || raw(lines, first)),
            step(&mut || ping_pong(&mut end, first)),
            step(&mut || stream(&mut end, first, 8, WINDOW, MESSAGES)),
            step(&mut || stream(&mut end, first, LARGE, LARGE_WINDOW, LARGE_MESSAGES)),
        ];
        // The first round warms up.
        if round > 0 {
            for (series, value) in all.iter_mut().zip(values) {
                series.0.push(value);
            }
        }
    }
    barrier.wait();
    all
}

fn main() {
    let cores = linux::affinity::allowed().expect("affinity");
    let &[first, second, ..] = &cores[..] else {
        skip::test(format_args!("two cores are needed, this process has {}", cores.len()));
        return;
    };
    let (here, there) = UnixStream::pair().expect("socket pair");
    let lines = Arc::new([Line(AtomicU64::new(0)), Line(AtomicU64::new(0))]);
    let barrier = Arc::new(Barrier::new(2));
    let other = std::thread::spawn({
        let (lines, barrier) = (lines.clone(), barrier.clone());
        move || {
            let mut port = ShmPort::default();
            port.connect(&there, Role::Join).expect("connect");
            run(port, second, false, &lines, &barrier)
        }
    });
    let mut port = ShmPort::default();
    port.connect(&here, Role::Create).expect("connect");
    let mut all = run(port, first, true, &lines, &barrier);
    other.join().expect("the other end");

    println!("engine over shm at app, {first} and {second}, {ROUNDS} interleaved rounds: median (quartiles)");
    let ratios: Vec<f64> = all[1].0.iter().zip(&all[0].0).map(|(engine, raw)| engine / raw).collect();
    all[0].show("raw cache line, half round trip", "ns", 1.0);
    all[1].show("engine 8 B, half round trip", "ns", 1.0);
    Series(ratios).show("engine / raw (target at most 2.5)", "x", 1.0);
    all[2].show("engine 8 B message rate (target 10 near)", "M/s", 1e-6);
    all[3].show("engine 1 MiB bandwidth", "GB/s", LARGE as f64 * 1e-9);
}
