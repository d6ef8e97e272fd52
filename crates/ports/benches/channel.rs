//! Channels in shared memory against the raw cache line between the same two cores.
//!
//! `cargo bench -p ports --bench channel [-- ROUNDS]`. Two threads, each pinned to a core; the quantities alternate in
//! short blocks, with a probe before each round, so that a machine whose cores move apart shows it in every line.
//! Prints median and quartiles of the rounds; ratios are taken within a round.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use linux::affinity;
use machine::channel::{
    Buffers, Cast, Channel, Content, Counted, Delivery, Policy, Specification, Synchronization, Written,
};
use machine::{Bytes, CoreId, Nanoseconds};
use offcode::call::{Header, Incoming, Kind};
use offcode::context::{ChannelId, Context};
use offcode::{Caller, Lifecycle, Offcode, interface, offcode};
use ports::channel::{self, MOST_READERS};
use ports::probe::ProbeLines;

/// Round trips timed together, so that reading the clock does not matter.
const BATCH: u64 = 64;
const BATCHES: usize = 40;
const MESSAGES: u64 = 100_000;
const FOREVER: Nanoseconds = Nanoseconds(5_000_000_000);

#[interface(guid = "5f0e7a52-54c5-4b65-9c70-6a1fd4a3a0d1")]
trait Filter {
    fn limit(&mut self, port: u16, bytes: u32) -> bool;
}

#[offcode(
    guid = "5f0e7a52-54c5-4b65-9c70-6a1fd4a3a0d2",
    name = "bench.filter",
    version = "1.0.0",
    implements(Filter),
    sites(app),
    bodies(native(app))
)]
#[derive(Default)]
struct Limiter {
    limits: u64,
}

impl Filter for Limiter {
    fn limit(&mut self, port: u16, bytes: u32) -> bool {
        self.limits += u64::from(bytes);
        port != 0
    }
}

impl Lifecycle for Limiter {}

struct NoContext;

impl Context for NoContext {
    fn now(&self) -> Nanoseconds {
        Nanoseconds(0)
    }
    fn channel(&self, _: &str) -> Option<ChannelId> {
        None
    }
    fn write(&mut self, _: ChannelId, _: &[u8]) -> Written {
        Written::Gone
    }
    fn attribute(&self, _: &str) -> Option<&str> {
        None
    }
    fn log(&mut self, _: &str) {}
}

fn specification(cast: Cast, delivery: Delivery, synchronization: Synchronization, size: u64) -> Specification {
    let buffers = Buffers { count: 64, size: Bytes(size), policy: Policy::ZeroCopy };
    Specification { cast, delivery, synchronization, content: Content::Messages, buffers }
}

type End = Box<dyn Channel>;

fn unicast(synchronization: Synchronization) -> (End, End) {
    let asked = specification(Cast::Unicast, Delivery::Reliable, synchronization, 4096);
    let (one, other) = channel::unicast(&asked).unwrap();
    (Box::new(one), Box::new(other))
}

#[derive(Default)]
struct Table(Vec<(String, &'static str, Vec<f64>)>);

impl Table {
    fn add(&mut self, name: impl Into<String>, unit: &'static str, value: f64) {
        let name = name.into();
        match self.0.iter_mut().find(|row| row.0 == name) {
            Some(row) => row.2.push(value),
            None => self.0.push((name, unit, vec![value])),
        }
    }

    fn print(mut self) {
        for (name, unit, values) in &mut self.0 {
            values.sort_by(f64::total_cmp);
            let [low, middle, high] = [1, 2, 3].map(|q| values[(values.len() - 1) * q / 4]);
            println!("{name:<58}{middle:>10.2} {unit:<6} quartiles {low:.2} .. {high:.2}");
        }
    }
}

/// Runs `there` on the other core while `here` measures on this one.
fn on_two_cores<R>(other: CoreId, there: impl FnOnce() + Send, here: impl FnOnce() -> R) -> R {
    let ready = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _pinned = affinity::pin(other).unwrap();
            ready.store(true, Ordering::Release);
            there();
        });
        while !ready.load(Ordering::Acquire) {
            // The other thread starts on this core.
            std::thread::yield_now();
        }
        here()
    })
}

/// The median time in ns of one of the [`BATCH`] operations of `batch`.
fn median_of(mut batch: impl FnMut()) -> f64 {
    (0..3).for_each(|_| batch());
    let mut times: Vec<u128> = (0..BATCHES)
        .map(|_| {
            let start = Instant::now();
            batch();
            start.elapsed().as_nanos()
        })
        .collect();
    times.sort_unstable();
    times[BATCHES / 2] as f64 / BATCH as f64
}

const TRIPS: u64 = (BATCHES as u64 + 3) * BATCH;

#[inline(never)]
fn write(end: &mut dyn Channel, message: &[u8]) {
    while end.write(message).unwrap() != Written::Taken {}
}

#[inline(never)]
fn read(end: &mut dyn Channel, deliver: &mut dyn FnMut(&[u8])) {
    while !end.read_with(deliver).unwrap() {}
}

fn echo(end: &mut dyn Channel, times: u64) {
    for _ in 0..times {
        let mut copy = [0; 32];
        read(end, &mut |message| copy.copy_from_slice(message));
        write(end, &copy);
    }
}

fn round_trip(other: CoreId, synchronization: Synchronization) -> f64 {
    let (mut mine, mut theirs) = unicast(synchronization);
    on_two_cores(
        other,
        move || echo(&mut *theirs, TRIPS),
        || {
            let mut message = [1u8; 32];
            median_of(|| {
                for _ in 0..BATCH {
                    write(&mut *mine, &message);
                    read(&mut *mine, &mut |answer| message.copy_from_slice(answer));
                }
            })
        },
    )
}

/// Serves a channel of calls, as a site does.
fn serve(end: &mut dyn Channel, offcode: &mut dyn Offcode, calls: u64) {
    let mut reply = Vec::with_capacity(4096);
    for _ in 0..calls {
        read(end, &mut |message| {
            let (header, arguments) = Header::read(message).expect("a call");
            reply.clear();
            reply.resize(Header::LENGTH, 0);
            let incoming = Incoming { interface: header.interface, method: header.method, arguments };
            offcode.call(incoming, &mut reply, &mut NoContext).expect("a call that is carried out");
            let head = reply.first_chunk_mut().expect("the header's place");
            Header { kind: Kind::Reply, ..header }.write(head);
        });
        write(end, &reply);
    }
}

fn proxy_call(other: CoreId) -> f64 {
    let (mine, mut theirs) = unicast(Synchronization::Poll);
    on_two_cores(
        other,
        move || serve(&mut *theirs, &mut Limiter::default(), TRIPS),
        || {
            let mut caller = Caller::new(mine);
            median_of(|| {
                for port in 1..=BATCH as u16 {
                    let pending = FilterProxy.limit(port, 900).over(&mut caller).unwrap();
                    assert!(caller.wait(pending, FOREVER, || {}).unwrap());
                }
            })
        },
    )
}

/// Messages a second from one core to the other; the reader touches the last byte of each.
fn rate(other: CoreId, synchronization: Synchronization, length: usize) -> f64 {
    let (mut mine, mut theirs) = unicast(synchronization);
    let count = MESSAGES.min((256 << 20) / length as u64 / 4);
    let receive = move || {
        let mut sum = 0;
        for _ in 0..count {
            read(&mut *theirs, &mut |message| sum += touch(message));
        }
        std::hint::black_box(sum);
        write(&mut *theirs, &[]);
    };
    on_two_cores(other, receive, || {
        let message = vec![7u8; length];
        let start = Instant::now();
        (0..count).for_each(|_| write(&mut *mine, &message));
        read(&mut *mine, &mut |_| ());
        count as f64 / start.elapsed().as_secs_f64()
    })
}

/// Reads a byte of every cache line, as a reader would.
fn touch(message: &[u8]) -> u64 {
    message.iter().step_by(64).map(|byte| u64::from(*byte)).sum()
}

/// Time in ns that the writer spends on one message to three readers on the other core, and until all have read it.
fn to_three(other: CoreId, how: Option<Delivery>, length: usize) -> f64 {
    const COUNT: u64 = 20_000;
    let (mut writers, mut readers): (Vec<End>, Vec<End>) = match how {
        None => (0..3).map(|_| unicast(Synchronization::Poll)).unzip(),
        Some(delivery) => {
            let asked = specification(Cast::Multicast, delivery, Synchronization::Poll, 4096);
            let (writer, readers) = channel::multicast(&asked, 3).unwrap();
            (vec![Box::new(writer)], readers.into_iter().map(|reader| Box::new(reader) as _).collect())
        }
    };
    let read_all = move || {
        let mut sum = 0;
        while readers.iter().any(|reader| {
            let Counted { read, dropped, .. } = reader.counted();
            read + dropped < COUNT
        }) {
            for reader in &mut readers {
                let _ = reader.read_with(&mut |message| sum += touch(message)).unwrap();
            }
        }
        std::hint::black_box(sum);
    };
    let start = Instant::now();
    on_two_cores(other, read_all, || {
        let message = vec![7u8; length];
        for _ in 0..COUNT {
            writers.iter_mut().for_each(|writer| write(&mut **writer, &message));
        }
    });
    start.elapsed().as_nanos() as f64 / COUNT as f64
}

/// Time in ns from a write until the answer of an end that slept; the answer is polled.
fn wake_up(other: CoreId) -> f64 {
    const TIMES: u64 = 100;
    let (mut mine, mut theirs) = unicast(Synchronization::Blocking);
    let sleeper = move || {
        for _ in 0..TIMES {
            assert!(theirs.wait(FOREVER).unwrap());
            echo(&mut *theirs, 1);
        }
    };
    on_two_cores(other, sleeper, || {
        let mut times: Vec<u128> = (0..TIMES)
            .map(|_| {
                // The other end falls asleep meanwhile.
                let idle = Instant::now();
                while idle.elapsed().as_micros() < 50 {}
                let start = Instant::now();
                write(&mut *mine, &[1; 32]);
                read(&mut *mine, &mut |_| ());
                start.elapsed().as_nanos()
            })
            .collect();
        times.sort_unstable();
        times[times.len() / 2] as f64
    })
}

fn main() {
    let rounds = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(15);
    let cores = affinity::allowed().unwrap();
    let &[mine, other, ..] = &cores[..] else {
        return println!("one core only: nothing to measure between cores");
    };
    let _pinned = affinity::pin(mine).unwrap();
    let lines = ProbeLines::create().unwrap();
    let mut table = Table::default();
    for _ in 0..rounds {
        let follow = || {
            lines.follow();
        };
        let Some(raw) = on_two_cores(other, follow, || lines.lead()) else { continue };
        let raw = 2.0 * raw.nanoseconds();
        table.add("bare cache line, round trip", "ns", raw);
        let trip = round_trip(other, Synchronization::Poll);
        table.add("32 B message through dyn Channel, round trip", "ns", trip);
        let call = proxy_call(other);
        table.add("proxy call, round trip", "ns", call);
        table.add("  message over bare", "x", trip / raw);
        table.add("  proxy call over bare", "x", call / raw);
        table.add(
            "32 B, blocking channel whose ends are awake, round trip",
            "ns",
            round_trip(other, Synchronization::Blocking),
        );
        for length in [8, 48, 512, 4096] {
            let rate = rate(other, Synchronization::Poll, length);
            table.add(format!("{} one way", Bytes(length as u64)), "M/s", rate / 1e6);
        }
        table.add("8 B one way, blocking channel", "M/s", rate(other, Synchronization::Blocking, 8) / 1e6);
        for length in [48, 4096] {
            let name = Bytes(length as u64);
            let three = to_three(other, None, length);
            let one = to_three(other, Some(Delivery::Reliable), length);
            table.add(format!("{name} to 3 readers, three unicasts"), "ns", three);
            table.add(format!("{name} to 3 readers, multicast reliable"), "ns", one);
            table.add(
                format!("{name} to 3 readers, multicast unreliable"),
                "ns",
                to_three(other, Some(Delivery::Unreliable), length),
            );
            table.add(format!("  {name}: three unicasts over one multicast"), "x", three / one);
        }
        let start = Instant::now();
        (0..20).for_each(|_| drop(unicast(Synchronization::Poll)));
        table.add("unicast channel of 64 x 4 KiB made and dropped", "us", start.elapsed().as_nanos() as f64 / 20e3);
        table.add("answer of a sleeper, round trip", "us", wake_up(other) / 1000.0);
    }
    println!("{rounds} rounds between {mine} and {other}; multicast takes up to {MOST_READERS} readers");
    table.print();
}
