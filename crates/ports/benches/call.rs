//! A proxy call over a shared-memory channel between two cores, against the round trip of a bare cache line between
//! them: `cargo bench -p ports --bench call`. Blocks alternate, so that a change of the machine affects both.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use linux::affinity;
use machine::{CoreId, Nanoseconds, Result};
use offcode::call::{Header, Incoming, Kind};
use offcode::{Caller, Channel, ChannelId, Context, Interface, Lifecycle, Offcode, Refusal, Specification, Written};
use offcode::{interface, offcode};
use ports::channel::{Memory, unicast};
use ports::probe::ProbeLines;

const BLOCKS: usize = 21;
/// Calls of a batch: so few that few batches are interrupted.
const BATCH: u32 = 64;
const BATCHES: usize = 128;
const LIMIT: Nanoseconds = Nanoseconds(1_000_000_000);

#[interface(guid = "2f0c7a56-4df8-4a6c-8a3b-9b2c1d0e0001")]
trait Adder {
    fn add(&mut self, a: u64, b: u32) -> u64;
}

#[interface(guid = "2f0c7a56-4df8-4a6c-8a3b-9b2c1d0e0002", encoding = "fixed")]
trait FixedAdder {
    fn add(&mut self, a: u64, b: u32) -> u64;
}

#[offcode(
    guid = "2f0c7a56-4df8-4a6c-8a3b-9b2c1d0e0003",
    name = "bench.adder",
    version = "1.0.0",
    implements(Adder, FixedAdder),
    sites(app, core)
)]
#[derive(Default)]
struct Sum(u64);

impl Adder for Sum {
    fn add(&mut self, a: u64, b: u32) -> u64 {
        self.0 += a + u64::from(b);
        self.0
    }
}

impl FixedAdder for Sum {
    fn add(&mut self, a: u64, b: u32) -> u64 {
        Adder::add(self, a, b)
    }
}

impl Lifecycle for Sum {}

struct Nowhere;

impl Context for Nowhere {
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

/// Carries out the calls that have arrived.
fn serve(channel: &mut Memory, offcode: &mut dyn Offcode, reply: &mut Vec<u8>) -> Result<()> {
    reply.clear();
    channel.read_with(&mut |message| {
        let Some((header, arguments)) = Header::read(message) else { return };
        reply.resize(Header::LENGTH, 0);
        let incoming = Incoming { interface: header.interface, method: header.method, arguments };
        let kind = match offcode.call(incoming, reply, &mut Nowhere) {
            Ok(()) => Kind::Reply,
            Err(Refusal(why)) => {
                reply.extend_from_slice(why.as_bytes());
                Kind::Refused
            }
        };
        if let Some(head) = reply.first_chunk_mut() {
            Header { kind, ..header }.write(head);
        }
    })?;
    if !reply.is_empty() {
        while channel.write(reply)? == Written::Full {}
    }
    Ok(())
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// Nanoseconds of one `work`: the median of all batches.
fn batches(mut work: impl FnMut()) -> f64 {
    let batch = |_| {
        let start = Instant::now();
        (0..BATCH).for_each(|_| work());
        start.elapsed().as_nanos() as f64 / f64::from(BATCH)
    };
    median((0..BATCHES).map(batch).collect())
}

fn main() -> Result<()> {
    let (near, mut far) = unicast(&Specification::default())?;
    let lines = ProbeLines::create()?;
    let (probing, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut caller = Caller::new(near);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| -> Result<()> {
            let _pinned = affinity::pin(CoreId(1))?;
            let (mut offcode, mut reply) = (Sum::default(), Vec::with_capacity(256));
            while !done.load(Ordering::Relaxed) {
                if probing.load(Ordering::Acquire) {
                    lines.follow();
                    probing.store(false, Ordering::Release);
                }
                serve(&mut far, &mut offcode, &mut reply)?;
            }
            Ok(())
        });
        let _pinned = affinity::pin(CoreId(0))?;
        let (mut bare, mut postcard, mut fixed) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..BLOCKS {
            probing.store(true, Ordering::Release);
            let line = lines.lead();
            while probing.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            let mut block = |round: &mut dyn FnMut(&mut Caller<Memory>) -> Result<u64>| -> Result<f64> {
                let mut outcome = Ok(0);
                let time = batches(|| outcome = round(&mut caller));
                outcome.map(|_| time)
            };
            let (proxy, other) = (AdderProxy, FixedAdderProxy);
            let by_postcard = block(&mut |caller| caller.call(&proxy.add(1, 2), LIMIT, || {}))?;
            let by_fixed = block(&mut |caller| caller.call(&other.add(1, 2), LIMIT, || {}))?;
            if let Some(line) = line {
                bare.push(2.0 * line.nanoseconds());
                postcard.push(by_postcard);
                fixed.push(by_fixed);
            }
        }
        done.store(true, Ordering::Relaxed);
        other.join().expect("the serving thread does not panic")?;
        if bare.is_empty() {
            println!("no bare round trip could be measured: are there two cores?");
            return Ok(());
        }
        let ratio = |calls: &[f64]| median(calls.iter().zip(&bare).map(|(call, bare)| call / bare).collect());
        println!("round trips between cores 0 and 1, medians of {} blocks", bare.len());
        println!("bare cache line   {:6.1} ns", median(bare.clone()));
        println!("proxy call        {:6.1} ns, {:.2} of the bare one", median(postcard.clone()), ratio(&postcard));
        println!("fixed encoding    {:6.1} ns, {:.2} of the bare one", median(fixed.clone()), ratio(&fixed));
        let mut offcode = Sum::default();
        let mut reply = Vec::with_capacity(64);
        let call = Incoming { interface: <dyn Adder>::GUID.short(), method: 0, arguments: &[1, 2] };
        let dispatch = batches(|| {
            reply.clear();
            let it = std::hint::black_box(&mut offcode as &mut dyn Offcode);
            let _ = std::hint::black_box(it.call(std::hint::black_box(call), &mut reply, &mut Nowhere));
        });
        let build = batches(|| drop(std::hint::black_box(AdderProxy.add(std::hint::black_box(1), 2))));
        println!("dispatch alone    {dispatch:6.1} ns");
        println!("building a call   {build:6.1} ns");
        Ok(())
    })
}
