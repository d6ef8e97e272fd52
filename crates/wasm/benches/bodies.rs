//! What a sandbox costs: the same filter, from one source, linked in and as a wasm body, both through `dyn Offcode` and
//! interleaved in one run. `cargo bench -p wasm --bench bodies`

use std::hint::black_box;
use std::time::Instant;

#[path = "../tests/built/mod.rs"]
mod built;
#[allow(dead_code, reason = "its trait's methods are called by number here")]
#[path = "../guest/filter/src/lib.rs"]
mod filter;

use filter::PortFilter;
use machine::{Nanoseconds, Result};
use offcode::map::Maps;
use offcode::{Attributes, ChannelId, Context, Described, Incoming, Offcode, Wake, Written};
use wasm::{Limits, Module, Sandboxed};

const ROUNDS: usize = 41;
const CALLS: u32 = 20_000;

/// Takes all and keeps nothing; its clock is free, so that only the bodies are compared.
struct Site {
    bytes: u64,
    maps: Maps,
}

impl Context for Site {
    fn now(&self) -> Nanoseconds {
        Nanoseconds(black_box(1))
    }
    fn channel(&self, _: &str) -> Option<ChannelId> {
        Some(ChannelId(1))
    }
    fn write(&mut self, _: ChannelId, message: &[u8]) -> Written {
        self.bytes += black_box(message).len() as u64;
        Written::Taken
    }
    fn attribute(&self, _: &str) -> Option<&str> {
        Some("9000")
    }
    fn log(&mut self, _: &str) {}

    fn set_timer(&mut self, _: u8, _: Wake) -> Result<()> {
        Ok(())
    }

    fn share(&mut self, _: &str, _: u32) -> Result<()> {
        Ok(())
    }

    fn store(&mut self, _: &str, _: u32, _: &[u64]) -> Result<()> {
        Ok(())
    }

    fn load(&mut self, _: &str, _: u32, _: &mut [u64]) -> Result<bool> {
        Ok(true)
    }

    fn maps(&mut self) -> Option<&mut Maps> {
        Some(&mut self.maps)
    }
}

/// One thing to time; the number is of operations that it stands for.
type Work = fn(&mut dyn Offcode, &mut Site, &[u8], &mut Vec<u8>) -> u32;

fn one_call(body: &mut dyn Offcode, site: &mut Site, _: &[u8], reply: &mut Vec<u8>) -> u32 {
    reply.clear();
    let call = Incoming { interface: PortFilter::INTERFACES[0].short(), method: 1, arguments: &[] };
    let _ = black_box(body.call(black_box(call), reply, site));
    1
}

fn one_turn(body: &mut dyn Offcode, site: &mut Site, _: &[u8], _: &mut Vec<u8>) -> u32 {
    black_box(body.turn(site));
    1
}

fn batch<const N: u32>(body: &mut dyn Offcode, site: &mut Site, packet: &[u8], _: &mut Vec<u8>) -> u32 {
    for _ in 0..N {
        body.message(ChannelId(0), black_box(packet), site);
    }
    black_box(body.turn(site));
    N
}

fn packet(port: u16, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    bytes[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    bytes[23] = 17;
    bytes[36..38].copy_from_slice(&port.to_be_bytes());
    bytes
}

fn started(mut body: Box<dyn Offcode>, site: &mut Site) -> Box<dyn Offcode> {
    body.initialize(site).expect("initializes");
    body.start(site).expect("starts");
    body.attached(ChannelId(1), "next", site);
    body
}

fn nanoseconds(body: &mut dyn Offcode, site: &mut Site, packet: &[u8], work: Work) -> f64 {
    let mut reply = Vec::with_capacity(256);
    let (mut done, begin) = (0, Instant::now());
    while done < CALLS {
        done += work(body, site, packet, &mut reply);
    }
    begin.elapsed().as_nanos() as f64 / f64::from(done)
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|q| values[values.len() * q / 4])
}

fn main() {
    let Some(bytes) = built::or_skip(built::filter()) else { return };
    let mut site = Site { bytes: 0, maps: Maps::default() };
    let begin = Instant::now();
    let module = Module::compile(bytes, &Limits::default()).unwrap_or_else(|fault| panic!("{fault}"));
    let compiled = begin.elapsed();
    let begin = Instant::now();
    let guest = Sandboxed::new(&module, &PortFilter::manifest(), &Attributes::default())
        .unwrap_or_else(|fault| panic!("{fault}"));
    println!("filter.wasm: {} bytes, compiled in {compiled:.1?}, instantiated in {:.1?}", bytes.len(), begin.elapsed());

    let mut native = started(Box::new(PortFilter::default()), &mut site);
    let mut guest = started(Box::new(guest), &mut site);
    println!("{:<44} {:>9} {:>9}   wasm / native (quartiles)", "ns an operation, median", "native", "wasm");
    let (passed, dropped, long) = (packet(9000, 64), packet(53, 64), packet(9000, 1024));
    let works: [(&str, Work, &[u8]); 7] = [
        ("one call", one_call, &[]),
        ("one turn", one_turn, &[]),
        ("64 B packet passed on, one and a turn", batch::<1>, &passed),
        ("64 B packet passed on, 16 and a turn", batch::<16>, &passed),
        ("64 B packet dropped, 16 and a turn", batch::<16>, &dropped),
        ("64 B packet dropped, 256 and a turn", batch::<256>, &dropped),
        ("1 KiB packet passed on, 16 and a turn", batch::<16>, &long),
    ];
    for (name, work, packet) in works {
        let (mut natives, mut guests, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let a = nanoseconds(&mut *native, &mut site, packet, work);
            let b = nanoseconds(&mut *guest, &mut site, packet, work);
            // The first round warms up.
            if round > 0 {
                natives.push(a);
                guests.push(b);
                ratios.push(b / a);
            }
        }
        let ([_, a, _], [_, b, _], [low, ratio, high]) = (quartiles(natives), quartiles(guests), quartiles(ratios));
        println!("{name:<44} {a:>9.1} {b:>9.1}   {ratio:.1}x ({low:.1} .. {high:.1})");
    }
    assert!(guest.failure().is_none() && site.bytes > 0);
}
