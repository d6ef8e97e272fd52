//! Mappings of a ring of ranks, in closed form and by its answers.

use machine::costs::{Interval, Item, Row, Way};
use machine::{Bytes, Costs, Nanoseconds, Reading, SiteKind};
use record::functions::named;
use timeline::Collective;

use super::*;
use crate::answer::Program;
use crate::graph::{Adding, Builder};
use crate::lever::Lever;
use crate::model::Ways;

/// Half a round trip within a host and between hosts, ns, and what a byte adds.
const TRIPS: [f64; 2] = [1_000.0, 9_000.0];
const BYTE: f64 = 0.5;

fn way(network: Option<&str>) -> Way {
    let carrier = if network.is_some() { "tcp" } else { "vader" }.into();
    Way { carrier, mpi: "Open MPI 5".into(), placement: SiteKind::App, network: network.map(Into::into) }
}

fn ways() -> Ways {
    Ways { within: way(None), between: way(Some("lab")), shared_links: false, eager: None }
}

fn costs(spread: f64) -> Costs {
    let rows = [way(None), way(Some("lab"))].into_iter().zip(TRIPS).flat_map(|(way, trip)| {
        [1u64, 1 << 20].into_iter().flat_map(move |size| {
            let row = |item, ns: f64| Row {
                item,
                size: Some(Bytes(size)),
                cost: Reading::Measured(Interval::between(ns * (1.0 - spread), ns * (1.0 + spread))),
                source: "test".into(),
                taken: Nanoseconds(1),
            };
            let trip = trip + BYTE * size as f64;
            [row(Item::HalfTrip(way.clone()), trip), row(Item::Message(way.clone()), trip / 4.0)]
        })
    });
    Costs::of(rows.collect())
}

/// Rank r sends to r + 1 and receives from r - 1, `steps` times, and all sum at the end; `trip` ns is what each receive took.
fn ring(hosts: &[u32], steps: u32, trip: i64, uneven: i64) -> Graph {
    let ranks = hosts.len() as u32;
    let mut builder = Builder::new(hosts.to_vec(), ranks * steps);
    let reach = |one: u32, other: u32| {
        if hosts[one as usize] == hosts[other as usize] { Reach::Host } else { Reach::Between }
    };
    for message in 0..ranks * steps {
        let rank = message % ranks;
        builder.message(message, Kind { bytes: 8, reach: reach(rank, (rank + 1) % ranks), trips: 1 });
    }
    let apart = hosts.iter().any(|host| *host != hosts[0]);
    let farthest = if apart { Reach::Between } else { Reach::Host };
    let sum = builder.gathering(ranks, Collective::All, 0, Kind { bytes: 8, reach: farthest, trips: 2 });
    let id = |name| named(name).unwrap().id;
    for rank in 0..ranks {
        builder.lane(rank, 0);
        for step in 0..steps {
            let (own, theirs) = (step * ranks + rank, step * ranks + (rank + ranks - 1) % ranks);
            let call = |name, gap, inside| Adding { function: id(name), gap, inside, opaque: false };
            let gap = 5_000 + uneven * i64::from((rank * 7 + step * 3) % 5);
            builder.call(call("Isend", gap, 300), &[Step::Send(own)]);
            builder.call(call("Recv", 0, trip), &[Step::Post(theirs), Step::Received(theirs)]);
        }
        let call = Adding { function: id("Allreduce"), gap: 0, inside: 2 * trip, opaque: false };
        builder.call(call, &[Step::Enter(sum + rank), Step::Leave(sum + rank)]);
    }
    builder.finish()
}

fn hosts(text: &str) -> Hosts {
    text.parse().unwrap()
}

#[test]
fn ranks_are_written_by_host() {
    assert_eq!(hosts("0,2/1,3"), Hosts(vec![vec![0, 2], vec![1, 3]]));
    assert_eq!(hosts("0-2,5/3-4").to_string(), "0,1,2,5/3,4");
    assert!("0,x".parse::<Hosts>().is_err() && "3-1".parse::<Hosts>().is_err() && "".parse::<Hosts>().is_err());
    let graph = ring(&[0, 0, 1, 1], 1, 1_000, 0);
    let of = |text| Mapping::on(&graph, &hosts(text));
    assert_eq!(of("0,1/2,3").unwrap(), Mapping::recorded(&graph));
    assert_eq!(of("0,2/1,3").unwrap(), Mapping::recorded(&graph).swapped(1, 2).unwrap());
    // A host that has more ranks than were recorded there has cores that nobody was recorded on.
    assert_eq!(of("0,1,2,3").unwrap().cores, [Some(0), Some(1), None, None]);
    assert!(of("0,1/2").unwrap_err().to_string().contains("rank 3"));
    assert!(of("0,1/2,2").is_err() && of("0,1/2,3,4").is_err());
    assert!(Mapping::recorded(&graph).swapped(0, 4).is_err());
}

#[test]
fn what_stays_where_it_was_changes_nothing() {
    let graph = ring(&[0, 0, 1, 1], 20, 9_500, 700);
    let costs = costs(0.2);
    let program = Program::new(&graph, &costs, ways()).unwrap();
    let as_recorded = Mapping::recorded(&graph);
    let same = [as_recorded.clone(), as_recorded.clone().swapped(0, 1).unwrap(), as_recorded.clone()];
    for mapping in same {
        let mapped = mapping.of(&graph);
        assert_eq!((&mapped.messages.len(), mapped.len()), (&graph.messages.len(), graph.len()));
        let answer = &program.ask(&[&Lever { mapping: Some(mapping), ..Lever::default() }]).unwrap()[0];
        assert_eq!(answer.time, Interval::exactly(1.0));
    }
    // Another order of hosts is the same program, too.
    let answer = program.mapper().unwrap().time(Mapping::on(&graph, &hosts("2,3/0,1")).unwrap()).unwrap();
    assert_eq!(answer, 1.0);
    assert!(program.mapper().unwrap().time(as_recorded.swapped(1, 2).unwrap()).unwrap() > 1.0);
}

/// In step: each message and the two trips of the sum are shorter by the difference of trips between and within hosts.
#[test]
fn partners_on_one_host_save_the_difference_of_their_trips() {
    let steps = 20;
    let trip = |nth: usize| ((TRIPS[nth] + BYTE * 8.0) * 1e3).round() as i64;
    let trips = i64::from(steps) + 2;
    let graph = ring(&[0, 1], steps, 0, 0);
    let costs = costs(0.0);
    let price = |graph: &Graph| Prices::of(graph, &costs, &ways(), &crate::model::Draw::default()).unwrap();
    let time = |graph: &Graph| {
        let conditions = crate::replay::Conditions {
            prices: price(graph),
            computing: vec![1.0; 2],
            progress: crate::model::Progress::Calls,
            unrecorded: false,
            buffer: crate::replay::Buffer::Unlimited,
        };
        crate::replay::replay(graph, &conditions, crate::replay::Residuals::None).unwrap().total
    };
    let together = Mapping::on(&graph, &hosts("0,1")).unwrap().of(&graph);
    assert_eq!(time(&graph) - time(&together), trips * (trip(1) - trip(0)));
}

#[test]
fn gaps_follow_the_capability_of_the_core() {
    let graph = ring(&[0, 0], 10, 1_200, 0);
    let costs = costs(0.0);
    let program = Program::new(&graph, &costs, ways()).unwrap();
    let slower = |factor| {
        let mapping = Mapping::recorded(&graph).capable(1, factor).unwrap();
        program.mapper().unwrap().time(mapping).unwrap()
    };
    // A step is 5 us of computing, 0.3 of Isend and 1.2 of Recv, of which the slower rank does not wait any more; the other waits
    // for its last message.
    let trip = TRIPS[0] + BYTE * 8.0;
    let waited = trip - 300.0 - trip / 4.0;
    let whole = 10.0 * 6_500.0 + 2_400.0;
    let wanted = |factor: f64| (10.0 * (5_000.0 / factor + 1_500.0 - waited) + waited + 2_400.0) / whole;
    for factor in [0.5, 0.8] {
        assert!((slower(factor) / wanted(factor) - 1.0).abs() < 1e-6, "{} {}", slower(factor), wanted(factor));
    }
    assert_eq!(slower(1.0), 1.0);
}

/// A fifth of rank 0's computing is softirqs of its core, half of which fell into it: they stay with the core when the ranks
/// change places.
#[test]
fn softirqs_stay_with_their_core() {
    let graph = ring(&[0, 0], 10, 1_200, 0);
    let costs = costs(0.0);
    let program = Program::new(&graph, &costs, ways()).unwrap();
    let time = |mapping: Mapping| program.mapper().unwrap().time(mapping).unwrap();
    let swapped = |softirqs: [Option<f64>; 2]| {
        let recorded = Mapping { softirqs: softirqs.to_vec(), ..Mapping::recorded(&graph) };
        assert_eq!(time(recorded.clone()), 1.0);
        recorded.swapped(0, 1).unwrap()
    };
    let sampled = swapped([Some(10_000.0), Some(0.0)]);
    assert_eq!(sampled.unsampled(), [0u32; 0]);
    let factors = sampled.computing(&graph, &[], &Unknown { softirqs_inside: 0.5, ..Unknown::default() });
    assert!((factors[0] - 0.9).abs() < 1e-9 && (factors[1] - 1.1).abs() < 1e-9, "{factors:?}");
    assert_eq!(factors.iter().sum::<f64>(), 2.0, "what leaves one core's gaps comes to the other's");
    let slower = Mapping::recorded(&graph).capable(0, 1.0 / 0.9).unwrap().capable(1, 1.0 / 1.1).unwrap();
    assert!((time(sampled) / time(slower) - 1.0).abs() < 1e-6);
    let absent = swapped([Some(10_000.0), None]);
    assert_eq!(absent.unsampled(), [0, 1]);
    assert_eq!(time(absent), 1.0);
}

#[test]
fn a_mapping_is_read_from_where_another_recording_has_its_ranks() {
    let first = ring(&[0, 0, 1, 1], 1, 1_000, 0);
    let like = |places: &[u32]| Mapping::like(&first, &ring(places, 1, 1_000, 0));
    assert_eq!(like(&[0, 1, 0, 1]), Some(Mapping::on(&first, &hosts("0,2/1,3")).unwrap()));
    // Hosts have no names of their own: what the first one is called is no other mapping.
    assert_eq!((like(&[0, 0, 1, 1]), like(&[1, 1, 0, 0]), like(&[0, 0, 1])), (None, None, None));
}

/// Residuals are scaled by the trips of calls that a mapping changes, and by no others.
#[test]
fn only_calls_that_a_mapping_changes_are_scaled() {
    let costs = costs(0.0);
    let first = ring(&[0, 0, 1, 1], 2, 1_000, 0);
    let mapping = Mapping::on(&first, &hosts("0,2/1,3")).unwrap();
    let both = mapping.classified(&first);
    let prices = |graph: &Graph| Prices::of(graph, &costs, &ways(), &crate::model::Draw::default()).unwrap();
    let [recorded, mapped] = both.each_ref().map(|graph| (graph, prices(graph)));
    let ratios = ratios((recorded.0, &recorded.1), (mapped.0, &mapped.1));
    let receives = both[1].classes.iter().zip(ratios).filter(|(class, _)| class.function == named("Recv").unwrap().id);
    let mut seen: Vec<(Reach, f64)> = receives.map(|(class, ratio)| (class.reach, ratio)).collect();
    seen.sort_by(|one, other| one.1.total_cmp(&other.1));
    let [within, between] = TRIPS.map(|trip| trip + BYTE * 8.0);
    // No neighbour of the ring stays on its host; two of four were on others before.
    assert_eq!(seen, [(Reach::Between, 1.0), (Reach::Between, between / within)]);
}
