//! Runs over sockets in closed form, and mappings that change nothing.

use machine::costs::{Interval, Item, Row, Way};
use machine::{Bytes, Nanoseconds, Reading, SiteKind};
use rounds::random::Random;

use super::*;
use crate::answer::Program;
use crate::graph::{Adding, Builder, Kind, Reach, Step, called};
use crate::lever::mapping::SAMPLED;

/// A half trip: 10 us, and what a byte adds.
const LATENCY: f64 = 10_000.0;
const BYTE: f64 = 4.0;

fn way(network: Option<&str>) -> Way {
    Way { carrier: "tcp".into(), mpi: "Open MPI 5".into(), placement: SiteKind::App, network: network.map(Into::into) }
}

fn costs() -> Costs {
    let rows = [way(None), way(Some("lab"))].into_iter().flat_map(|way| {
        [1u64, 1 << 20].into_iter().flat_map(move |size| {
            let row = |item, ns: f64| Row {
                item,
                size: Some(Bytes(size)),
                cost: Reading::Measured(Interval::exactly(ns)),
                source: "test".into(),
                taken: Nanoseconds(1),
            };
            let bytes = (size - 1) as f64;
            let trip = row(Item::HalfTrip(way.clone()), LATENCY + BYTE * bytes);
            [trip, row(Item::Message(way.clone()), 0.3 * BYTE * bytes)]
        })
    });
    Costs::of(rows.collect())
}

fn ways() -> Ways {
    Ways { within: way(None), between: way(Some("lab")), shared_links: false, eager: None }
}

/// Each rank of two hosts computes and sends to the next one, `steps` times; calls are as long as `inside` says.
fn ring(ranks: u32, steps: u32, bytes: u64, gap: impl Fn(u32, u32) -> i64, inside: impl Fn(u32, u32) -> i64) -> Graph {
    let host = |rank: u32| rank * 2 / ranks;
    let mut builder = Builder::new((0..ranks).map(host).collect(), ranks * steps);
    for message in 0..ranks * steps {
        let reach = if host(message % ranks) == host((message + 1) % ranks) { Reach::Host } else { Reach::Between };
        builder.message(message, Kind { bytes, reach, trips: 1 });
    }
    for rank in 0..ranks {
        builder.lane(rank, 0);
        for step in 0..steps {
            let (own, theirs) = (step * ranks + rank, step * ranks + (rank + ranks - 1) % ranks);
            let steps = [Step::Send(own), Step::Post(theirs), Step::Sent(own), Step::Received(theirs)];
            let (gap, inside) = (gap(rank, step), inside(rank, step));
            builder.call(Adding { function: called(&steps), gap, inside, opaque: false }, &steps);
        }
    }
    builder.finish()
}

/// With nothing else on the way, two ranks that send to each other are done after a trip each, since one core sends before it takes.
#[test]
fn a_piece_takes_its_half_trip_and_softirqs_stop_their_core() {
    let costs = costs();
    let graph = ring(2, 1, 1000, |_, _| 0, |_, _| 1);
    let plan = Plan::of(&graph);
    let draw = Draw::default();
    let ways = ways();
    let trips = Trips::of(&costs, &ways, &draw);
    let pieces = Pieces::of(&graph, &trips).unwrap();
    let prices = Prices::of(&graph, &costs, &ways, &draw).unwrap();
    let half = (LATENCY + BYTE * 999.0) * 1e3;
    let total = |softirqs: [f64; 2], work: [i64; 2]| {
        let figures = Figures([0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        let stages = Stages::of(&graph, &plan, &pieces, &trips, &softirqs, &figures);
        let seats = Seats { shares: &[1.0, 0.0], far: &[] };
        let (plan, stages, pieces, prices) = (&plan, &stages, &pieces, &prices);
        let buffer = Buffer::Unlimited;
        let of = Conditions { graph: &graph, plan, stages, pieces, prices, seats, buffer, calls: usize::MAX };
        Run::of(of, Gaps::Known(&work)).run().unwrap() as f64
    };
    assert!((total([0.0; 2], [0, 0]) - half).abs() < 10.0, "{} {half}", total([0.0; 2], [0, 0]));
    // 500 ns of softirqs on each host for the message to it: the trip has them, and no core's own work comes on top.
    assert!((total([500.0; 2], [0, 0]) - half).abs() < 10.0);
    // Rank 0 computes while its host's softirqs receive, which stop it for 500 ns, and finds the message there.
    let computing = 1_000_000_000;
    let more = total([500.0; 2], [computing, 0]) - total([0.0; 2], [computing, 0]);
    let own = |softirqs: [f64; 2]| total(softirqs, [computing, 0]) - computing as f64;
    assert!(own([500.0; 2]) > own([0.0; 2]) - 1.0 && more.abs() < 510_000.0, "{more}");
}

/// What changes nothing is 1 exactly, whatever was recorded; a rank on a slower core never gains.
#[test]
fn the_recorded_mapping_takes_its_own_time_and_a_slower_core_no_less() {
    let costs = costs();
    for seed in 0..20 {
        let mut random = Random::stream(seed, 3);
        let ranks = 2 * (1 + random.below(3) as u32);
        let bytes = 1 << random.below(18);
        let mut lengths: Vec<i64> = Vec::new();
        (0..200).for_each(|_| lengths.push(20_000 + random.below(400_000) as i64));
        let of = |rank: u32, step: u32, part: u32| lengths[((rank * 31 + step * 7 + part * 101) % 200) as usize];
        let graph = ring(ranks, 5, bytes, |rank, step| of(rank, step, 0), |rank, step| of(rank, step, 1));
        let mut shares = vec![0.0; ranks as usize];
        (shares[0], shares[ranks as usize / 2]) = (1.0, 0.6);
        let far = (0..ranks).map(|rank| rank % 2 == 1).collect();
        let softirqs = Softirqs { hosts: vec![3e5, 1e5], shares, far };
        let program = Program::beside(&graph, &costs, ways(), Buffer::Unlimited, Some(softirqs)).unwrap();
        let recorded = Mapping::recorded(&graph);
        let slower = recorded.clone().capable(random.below(ranks as usize) as u32, 0.5).unwrap();
        let slower = Mapping { stays: SAMPLED, ..slower };
        let times = program.mapped(&[recorded, slower]).unwrap();
        assert_eq!(times[0], Interval::exactly(1.0), "seed {seed}");
        assert!(times[1].high >= 0.999, "seed {seed}: {:?}", times[1]);
    }
}
