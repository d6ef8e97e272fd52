//! The time and memory of replays of a recorded program: `cargo bench -p whatif --bench replay -- [CALLS]`.
//!
//! The program is a ring of 64 ranks on 8 hosts that swap borders with both neighbours and sum a number every tenth step; its
//! lengths are uneven, so that ranks wait for each other.

use std::time::Instant;

use machine::costs::{Interval, Item, Row, Way};
use machine::{Bytes, Costs, Nanoseconds, Reading, SiteKind};
use record::functions::named;
use rounds::random::Random;
use timeline::Collective;
use whatif::answer::Program;
use whatif::graph::{Adding, Builder, Graph, Kind, Reach, Step};
use whatif::lever::Mapping;
use whatif::model::Progress;
use whatif::model::{Price, Prices, Ways};
use whatif::path::critical;
use whatif::replay::{Conditions, Residuals, replay};

const RANKS: u32 = 64;

fn main() {
    let calls: u64 = std::env::args()
        .skip(1)
        .find(|word| word != "--bench")
        .map_or(10_000_000, |text| text.parse().expect("a number of calls"));
    let steps = (calls / u64::from(RANKS) / 6).max(1) as u32;
    let begun = Instant::now();
    let graph = ring(steps);
    let prices = graph.kinds.iter().map(|kind| {
        let between = i64::from(kind.reach == Reach::Between);
        let trip = (400_000 + between * 4_000_000) * i64::from(kind.trips);
        Price { send: 80_000, receive: 80_000, trip, rendezvous: kind.bytes > 65_536, ..Price::default() }
    });
    let prices = Prices { kinds: prices.collect() };
    let conditions = Conditions::of(&graph, prices, Progress::Calls);
    println!(
        "{} calls, {} messages: made in {:.2} s",
        graph.len(),
        graph.messages.len(),
        begun.elapsed().as_secs_f64()
    );
    let timed = |what: &str, seconds: f64| {
        println!("{what:<34} {seconds:6.2} s, {:6.1} million calls a second", graph.len() as f64 / seconds / 1e6);
    };
    let mut residuals = Vec::new();
    let begun = Instant::now();
    replay(&graph, &conditions, Residuals::Learn(&mut residuals)).expect("a ring ends");
    timed("learning the residuals", begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    let replayed = replay(&graph, &conditions, Residuals::Own(&residuals)).expect("a ring ends");
    timed("replay", begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    let path = critical(&graph, &conditions, &replayed);
    timed("critical path and gradients", begun.elapsed().as_secs_f64());
    assert_eq!(path.parts.total(), replayed.total);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    match peak {
        Some(peak) => {
            println!("most memory {:.0} MB, {:.0} bytes a call", peak / 1e3, peak * 1024.0 / graph.len() as f64)
        }
        None => println!("the kernel does not tell the memory"),
    }
    drop((graph, residuals, replayed, conditions));
    mappings(10);
}

/// Mappings evaluated per second, for a program of `steps` steps.
fn mappings(steps: u32) {
    let way = |network: Option<&str>| Way {
        carrier: "tcp".into(),
        mpi: "Open MPI 5".into(),
        placement: SiteKind::App,
        network: network.map(Into::into),
    };
    let ways = Ways { within: way(None), between: way(Some("lab")), shared_links: false, eager: None };
    let row = |item, ns: f64| Row {
        item,
        size: Some(Bytes(8)),
        cost: Reading::Measured(Interval::exactly(ns)),
        source: "example".into(),
        taken: Nanoseconds(1),
    };
    let of_way = |(way, ns): (&Way, f64)| [row(Item::HalfTrip(way.clone()), ns), row(Item::Message(way.clone()), 80.0)];
    let costs = Costs::of([(&ways.within, 400.0), (&ways.between, 4_400.0)].into_iter().flat_map(of_way).collect());
    let graph = ring(steps);
    let program = Program::new(&graph, &costs, ways).expect("all was measured");
    let mapper = program.mapper().expect("all was measured");
    let mut random = Random::new(7);
    let (begun, mut number, mut best) = (Instant::now(), 0, f64::MAX);
    while begun.elapsed().as_secs_f64() < 2.0 {
        let (one, other) = (random.below(RANKS as usize) as u32, random.below(RANKS as usize) as u32);
        let mapping = Mapping::recorded(&graph).swapped(one, other).expect("they are ranks");
        best = mapper.time(mapping).expect("a ring ends").min(best);
        number += 1;
    }
    let rate = f64::from(number) / begun.elapsed().as_secs_f64();
    println!("{number} mappings of {} calls: {rate:.0} a second; the best takes {best:.3} of the time", graph.len());
}

fn ring(steps: u32) -> Graph {
    let mut random = Random::new(5);
    let hosts = (0..RANKS).map(|rank| rank / 8).collect();
    let mut builder = Builder::new(hosts, 2 * RANKS * steps);
    let left = |rank: u32| (rank + RANKS - 1) % RANKS;
    let right = |rank: u32| (rank + 1) % RANKS;
    // Numbers of a rank's messages of a step to the left and to the right.
    let number = |step: u32, rank: u32, to_left: bool| 2 * (step * RANKS + rank) + u32::from(to_left);
    let reach = |one: u32, other: u32| if one / 8 == other / 8 { Reach::Host } else { Reach::Between };
    for step in 0..steps {
        for rank in 0..RANKS {
            for (to_left, to) in [(false, right(rank)), (true, left(rank))] {
                let kind = Kind { bytes: 4096, reach: reach(rank, to), trips: 1 };
                builder.message(number(step, rank, to_left), kind);
            }
        }
    }
    let sum = Kind { bytes: 8, reach: Reach::Between, trips: 6 };
    let sums: Vec<u32> = (0..steps / 10).map(|_| builder.gathering(RANKS, Collective::All, 0, sum)).collect();
    let id = |name| named(name).expect("a function of MPI").id;
    let (receive, send, wait, all) = (id("Irecv"), id("Isend"), id("Waitall"), id("Allreduce"));
    for rank in 0..RANKS {
        builder.lane(rank, 0);
        for step in 0..steps {
            let uneven = 20_000 + random.below(5_000) as i64;
            let call = |function, gap, inside| Adding { function, gap, inside, opaque: false };
            let theirs = [number(step, left(rank), false), number(step, right(rank), true)];
            let own = [number(step, rank, false), number(step, rank, true)];
            builder.call(call(receive, uneven, 90), &[Step::Post(theirs[0])]);
            builder.call(call(receive, 60, 90), &[Step::Post(theirs[1])]);
            builder.call(call(send, 60, 150), &[Step::Send(own[0])]);
            builder.call(call(send, 60, 150), &[Step::Send(own[1])]);
            let received = theirs.map(Step::Received);
            let sent = own.map(Step::Sent);
            builder.call(call(wait, 60, 5_000), &[&received[..], &sent[..]].concat());
            if step % 10 == 9 {
                let place = sums[(step / 10) as usize] + rank;
                builder.call(call(all, 100, 9_000), &[Step::Enter(place), Step::Leave(place)]);
            }
        }
    }
    builder.finish()
}
