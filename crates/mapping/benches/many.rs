//! The processor time of a mapping of many ranks with a long timeline: 256 ranks on 256 cores of 8 hosts, a million calls.
//!
//! `cargo bench -p mapping --bench many -- [CALLS] [--sockets]`: messages priced as a whole, or passed in pieces beside softirqs.

use std::time::Instant;

use machine::costs::{Interval, Item, Row, Way};
use machine::{Bytes, CoreId, Costs, Nanoseconds, Reading, Result, SiteKind};
use mapping::problem::{Load, Problem, Spot, Talk};
use mapping::recorded::{self, Replays, deciding};
use mapping::search::search;
use record::functions::named;
use whatif::answer::Program;
use whatif::graph::{Adding, Builder, Graph, Kind, Reach, Step};
use whatif::model::{Draw, Prices, Ways};
use whatif::replay::{Buffer, Conditions, Residuals, replay};

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
    let words: Vec<String> = std::env::args().skip(1).collect();
    let calls = words.iter().find_map(|word| word.parse().ok()).unwrap_or(1_000_000u32);
    let over_sockets = words.iter().any(|word| word == "--sockets");
    let steps = calls / RANKS / 2;
    let (problem, costs) = (problem(), costs());
    let graph = recorded_ring(steps, &costs)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut last = (Instant::now(), processor_seconds());
    let mut told = |what: &str| {
        let (wall, used) = (last.0.elapsed().as_secs_f64(), processor_seconds() - last.1);
        println!("{what:<44} {wall:>7.3} s on {cores} cores, {used:.2} s of them used");
        last = (Instant::now(), processor_seconds());
    };
    println!("{} ranks on {} cores, {} calls", RANKS, problem.spots.len(), graph.len());
    let (begun, end) = graph.span();
    let seconds = (end - begun) as f64 / 1e9;
    let (graph, seconds) = deciding(&graph, seconds);
    told(&format!("what decides, {} calls", graph.len()));
    // On whole messages, and over sockets in pieces.
    let softirqs = recorded::softirqs(&problem, seconds * 1e9).filter(|_| over_sockets);
    let program = Program::beside(&graph, &costs, ways(), Buffer::Unlimited, softirqs)?;
    told("draws that fit the recording");
    let replays = Replays::of(&problem, &graph, &program, seconds)?;
    let found = search(&problem, &replays)?;
    told(&format!("search, {} mappings replayed", found.judged));
    let time = program.mapped(&[replays.mapping(&found.seats)])?[0];
    told("interval");
    let moved = found.seats.iter().zip(&problem.seats).filter(|(to, from)| to != from).count();
    println!("{moved} ranks move: {:.3}x ({:.3} .. {:.3})", time.middle, time.low, time.high);
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

/// The ring with the times at which its calls end by these costs.
fn recorded_ring(steps: u32, costs: &Costs) -> Result<Graph> {
    let graph = ring(steps, &[]);
    let prices = Prices::of(&graph, costs, &ways(), &Draw::default())?;
    let conditions = Conditions::of(&graph, prices, ways().progress());
    Ok(ring(steps, &replay(&graph, &conditions, Residuals::None)?.exits))
}

/// Each rank sends to the next one and receives from the one before. `exits` of all calls, ps; empty: not known.
fn ring(steps: u32, exits: &[i64]) -> Graph {
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
        let mut left = 0i64;
        for step in 0..steps {
            let (own, theirs) = (step * RANKS + rank, step * RANKS + (rank + RANKS - 1) % RANKS);
            let gap = (COMPUTING * load(rank) / (1.0 - softirqs(rank))) as i64;
            let first = 2 * (rank * steps + step);
            let mut call = |number: u32, name, gap| {
                let exit = exits.get((first + number) as usize).map_or(left + gap, |exit| exit / 1000);
                let inside = i64::max(exit - left - gap, 0);
                left += gap + inside;
                Adding { function: id(name), gap, inside, opaque: false }
            };
            let calls = [call(0, "Isend", gap), call(1, "Recv", 0)];
            builder.call(calls[0], &[Step::Send(own)]);
            builder.call(calls[1], &[Step::Post(theirs), Step::Received(theirs)]);
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
        sampled: true,
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
