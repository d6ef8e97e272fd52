//! The processor time of a mapping of many ranks with a long timeline: 256 ranks on 256 cores of 8 hosts, a million calls.
//!
//! `cargo bench -p mapping --bench many -- [CALLS]`

use std::time::Instant;

use machine::costs::{Interval, Item, Row, Way};
use machine::{Bytes, CoreId, Costs, Nanoseconds, Reading, Result, SiteKind};
use mapping::problem::{Load, Problem, Spot, Talk};
use mapping::recorded::Replays;
use mapping::search::search;
use record::functions::named;
use whatif::answer::Program;
use whatif::graph::{Adding, Builder, Graph, Kind, Reach, Step};
use whatif::lever::Lever;
use whatif::model::Ways;

const HOSTS: u32 = 8;
const CORES: u32 = 32;
const RANKS: u32 = HOSTS * CORES;
/// The share of the first core of each host that softirqs take, and the load of its last rank over that of the others.
const SOFTIRQS: f64 = 0.25;
const IDLE: f64 = 0.5;
/// Nanoseconds of a step on a core of its own.
const COMPUTING: f64 = 50_000.0;
const BYTES: u64 = 4096;
const TRIP: i64 = 12_000;

fn main() -> Result<()> {
    let calls = std::env::args()
        .skip(1)
        .find(|word| word != "--bench")
        .and_then(|word| word.parse().ok())
        .unwrap_or(1_000_000u32);
    let steps = calls / RANKS / 2;
    let graph = ring(steps);
    let problem = problem();
    let costs = costs();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut last = (Instant::now(), processor_seconds());
    let mut told = |what: &str| {
        let (wall, used) = (last.0.elapsed().as_secs_f64(), processor_seconds() - last.1);
        println!("{what:<44} {wall:>7.3} s on {cores} cores, {used:.2} s of them used");
        last = (Instant::now(), processor_seconds());
    };
    println!("{} ranks on {} cores, {} calls", RANKS, problem.spots.len(), graph.len());
    let program = Program::new(&graph, &costs, ways())?;
    told("draws that fit the recording");
    let seconds = f64::from(steps) * (COMPUTING / (1.0 - SOFTIRQS) + TRIP as f64) / 1e9;
    let replays = Replays::of(&problem, &graph, &program, seconds)?;
    let found = search(&problem, &replays)?;
    told(&format!("search, {} mappings replayed", found.judged));
    let lever = Lever { mapping: Some(replays.mapping(&found.seats)), ..Lever::default() };
    let answer = &program.ask(&[&lever])?[0];
    told(&format!("interval over {} draws", answer.draws));
    let moved = found.seats.iter().zip(&problem.seats).filter(|(to, from)| to != from).count();
    println!("{moved} ranks move: {:.3}x ({:.3} .. {:.3})", answer.time.middle, answer.time.low, answer.time.high);
    Ok(())
}

/// Processor time of the process, which other work on the machine changes less than wall time.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has it");
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2).filter_map(|word| word.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

fn load(rank: u32) -> f64 {
    if rank % CORES == CORES - 1 { IDLE } else { 1.0 }
}

fn softirqs(rank: u32) -> f64 {
    if rank.is_multiple_of(CORES) { SOFTIRQS } else { 0.0 }
}

/// Each rank sends to the next one and receives from the one before.
fn ring(steps: u32) -> Graph {
    let host = |rank: u32| rank / CORES;
    let mut builder = Builder::new((0..RANKS).map(host).collect(), RANKS * steps);
    for message in 0..RANKS * steps {
        let (one, other) = (message % RANKS, (message + 1) % RANKS);
        let reach = if host(one) == host(other) { Reach::Host } else { Reach::Between };
        builder.message(message, Kind { bytes: BYTES, reach, trips: 1 });
    }
    let id = |name| named(name).expect("MPI has it").id;
    for rank in 0..RANKS {
        builder.lane(rank, 0);
        for step in 0..steps {
            let (own, theirs) = (step * RANKS + rank, step * RANKS + (rank + RANKS - 1) % RANKS);
            let gap = (COMPUTING * load(rank) / (1.0 - softirqs(rank))) as i64;
            let call = |name, gap, inside| Adding { function: id(name), gap, inside, opaque: false };
            builder.call(call("Isend", gap, 300), &[Step::Send(own)]);
            builder.call(call("Recv", 0, TRIP), &[Step::Post(theirs), Step::Received(theirs)]);
        }
    }
    builder.finish()
}

fn problem() -> Problem {
    let run = COMPUTING / (1.0 - SOFTIRQS) + TRIP as f64;
    let spot = |rank: u32| Spot {
        host: rank / CORES,
        core: CoreId(rank % CORES),
        softirq: softirqs(rank),
        free: 1.0,
        far: false,
    };
    Problem {
        hosts: (0..HOSTS).map(|host| format!("node{host}")).collect(),
        spots: (0..RANKS).map(spot).collect(),
        ranks: (0..RANKS).map(|rank| Load { computing: COMPUTING * load(rank) / run, fixed: 0.01 }).collect(),
        talks: (0..RANKS)
            .map(|rank| {
                let next = (rank + 1) % RANKS;
                let share = 1.0 / f64::from(RANKS);
                Talk { one: rank.min(next), other: rank.max(next), share, mean: BYTES as f64 }
            })
            .collect(),
        seats: (0..RANKS).collect(),
        blocked: Vec::new(),
        distances: Vec::new(),
        across: false,
    }
}

fn way(network: Option<&str>) -> Way {
    Way { carrier: "tcp".into(), mpi: "Open MPI 5".into(), placement: SiteKind::App, network: network.map(Into::into) }
}

fn ways() -> Ways {
    Ways { within: way(None), between: way(Some("lab")), shared_links: false, eager: None }
}

fn costs() -> Costs {
    let rows = [(way(None), 2_000.0), (way(Some("lab")), 9_000.0)].into_iter().flat_map(|(way, trip)| {
        [1u64, 1 << 16].into_iter().flat_map(move |size| {
            let row = |item, ns: f64| Row {
                item,
                size: Some(Bytes(size)),
                cost: Reading::Measured(Interval::between(ns * 0.9, ns * 1.1)),
                source: "example".into(),
                taken: Nanoseconds(1),
            };
            let trip = trip + 0.3 * size as f64;
            [row(Item::HalfTrip(way.clone()), trip), row(Item::Message(way.clone()), trip / 4.0)]
        })
    });
    Costs::of(rows.collect())
}
