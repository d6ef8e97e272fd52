//! Nanoseconds and bytes that a call's timeline costs: `cargo bench -p record --bench trace`.

use std::hint::black_box;
use std::time::Instant;

use record::functions::named;
use record::trace::{Call, Decoder, Encoder, Header, Matched, Reference, block};

const CALLS: usize = 10_000_000;
/// 2.6 GHz ticks; this shift makes units of about 1 ns.
const SHIFT: u32 = 1;

/// One call, with its references as distances back.
#[derive(Clone)]
struct Step {
    call: Call,
    back: Vec<u64>,
    matched: Vec<Matched>,
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn call(name: &str, peer: i32, tag: i32, bytes: u64, begun: u16) -> Step {
    let mut call = Call::new(named(name).expect("a function").id, 0, 0);
    (call.begun, call.communicator, call.peer, call.tag, call.bytes) = (begun, 0, peer, tag, bytes);
    Step { call, back: Vec::new(), matched: Vec::new() }
}

fn completion(name: &str, back: impl IntoIterator<Item = u64>) -> Step {
    Step { back: back.into_iter().collect(), ..call(name, -3, -2, 0, 0) }
}

/// Mixes of calls: a period of steps that is repeated, long where steps are random.
fn mixes() -> Vec<(&'static str, Vec<Step>)> {
    let mut random = Random(0x1234_5678_9abc_def1);
    let sends = vec![call("Send", -2, 0, 0, 0)];
    let mut halo = Vec::new();
    for name in ["Irecv", "Isend"] {
        halo.extend((0..26).map(|peer| call(name, peer, 11, 8 << (peer % 14), 1)));
    }
    halo.push(completion("Waitall", (0..52).map(|k| 52 - k)));
    halo.push(call("Allreduce", -3, -2, 8, 0));
    let mut waits = Vec::new();
    for _ in 0..200 {
        waits.extend((0..26).map(|peer| call("Isend", peer, 11, 1024, 1)));
        waits.push(completion("Waitall", (0..26).map(|k| 26 - k)));
    }
    let mut single = Vec::new();
    for _ in 0..1000 {
        single.push(call("Irecv", 3, 4, 4096, 1));
        single.push(call("Isend", 5, 4, 4096, 1));
        single.push(completion("Wait", [2]));
        single.push(completion("Wait", [1]));
    }
    let mut exchange = Vec::new();
    for _ in 0..10_000 {
        let mut step = call("Sendrecv", 1, 9, 20_000 + random.below(4000), 0);
        (step.call.source, step.call.source_tag, step.call.source_bytes) = (3, 9, 20_000 + random.below(4000));
        exchange.push(step);
    }
    let mut random_all = Vec::new();
    for _ in 0..100_000 {
        let (peer, tag, bytes) = (random.below(4096), random.below(32768), random.below(1 << 20));
        random_all.push(call("Send", peer as i32, tag as i32, bytes, 0));
    }
    let mut anywhere = Vec::new();
    for _ in 0..20_000 {
        let mut step = call("Recv", -1, -1, 65536, 0);
        let (source, tag, bytes) = (random.below(128) as i32, random.below(100) as i32, random.below(65536));
        step.matched.push(Matched { place: 0, source, tag, bytes });
        anywhere.push(step);
        anywhere.push(call("Send", source, 5, 16, 0));
    }
    vec![
        ("send to PROC_NULL", sends),
        ("halo of 26, one Waitall", halo),
        ("26 Isend, Waitall of 26", waits),
        ("Irecv, Isend, Wait, Wait", single),
        ("Sendrecv, sizes vary", exchange),
        ("random peer, tag, size", random_all),
        ("Recv from anywhere, Send", anywhere),
    ]
}

fn main() {
    println!("{CALLS} calls each; gaps of 0.2 to 20 us, durations of 50 to 1000 ns");
    println!("{:<28} {:>10} {:>12} {:>13} {:>11}", "mix", "bytes/call", "encode, ns", "of that loop", "decode, ns");
    let mut random = Random(77);
    let times: Vec<(u64, u64)> = (0..4096)
        .map(|_| ((500 << random.below(7)) + random.below(500), (130 << random.below(4)) + random.below(100)))
        .collect();
    let header = Header::new(SHIFT, 0, 1, 0);
    let mut out = vec![0u8; 1 << 20];
    for (name, steps) in mixes() {
        let mut rounds = Vec::new();
        let mut file = Vec::with_capacity(CALLS * 16);
        for round in 0..4 {
            let keep = round == 0;
            let (mut encoder, mut now, mut begun, mut at, mut bytes) = (Encoder::new(&header), 0, 0u64, 0, 0);
            let mut references = Vec::new();
            let empty = round == 1;
            let start = Instant::now();
            for place in 0..CALLS {
                let step = &steps[place % steps.len()];
                let (gap, duration) = times[place % times.len()];
                let call = Call { entered: now + gap, left: now + gap + duration, ..step.call };
                now = call.left;
                references.clear();
                references.extend(step.back.iter().map(|back| Reference { thread: 0, ordinal: begun - back }));
                begun += u64::from(call.begun);
                if empty {
                    black_box((&call, &references));
                    continue;
                }
                // The buffer is written forwards in one stretch, like the mapped window of a file.
                if at + 4096 > out.len() {
                    at = 0;
                }
                let length = encoder.encode(&call, &references, &step.matched, &mut out[at..]).expect("room");
                if keep {
                    file.extend_from_slice(&out[at..at + length]);
                }
                at += length;
                bytes += length;
            }
            let took = start.elapsed().as_nanos() as f64 / CALLS as f64;
            rounds.push((took, bytes));
        }
        let file = block::file(&header, &file);
        let mut decoder = Decoder::new(&file).expect("a timeline");
        let start = Instant::now();
        let mut read = 0;
        while let Some(event) = decoder.next_event().expect("whole") {
            read += 1;
            black_box(event);
        }
        let decode = start.elapsed().as_nanos() as f64 / CALLS as f64;
        assert_eq!(read, CALLS);
        let (empty, best) = (rounds[1].0, rounds[2].0.min(rounds[3].0));
        let bytes = rounds[0].1 as f64 / CALLS as f64;
        println!("{name:<28} {bytes:>10.2} {:>12.1} {empty:>13.1} {decode:>11.1}", best - empty);
    }
}
