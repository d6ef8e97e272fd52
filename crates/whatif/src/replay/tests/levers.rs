//! Levers on a noisy run, compared with the gradient of the same run.

use machine::costs::{Interval, Item, Row, Way};
use machine::{Bytes, Costs, Nanoseconds, Reading, SiteKind};

use super::*;
use crate::answer;
use crate::lever::{Change, Lever};
use crate::model::Ways;

const US: i64 = 1_000;

fn ways() -> Ways {
    let way = Way { carrier: "near".into(), mpi: "an MPI".into(), placement: SiteKind::App, network: None };
    // In calls a rendezvous may be held up less by what is dearer: then time is not convex.
    Ways { within: way.clone(), between: way, shared_links: false, eager: Some(Bytes(1 << 30)) }
}

/// Half a round trip takes so many us, of large messages so many more; the cores' work is a quarter of it at each end.
fn costs(small: u8, large: u8) -> Costs {
    let trip = |size: u64| 2.0 * (1.0 + f64::from(small) + if size > 8 { f64::from(large) } else { 0.0 });
    let rows = [8, 1 << 20].into_iter().flat_map(|size| {
        let row = |item, ns: f64| Row {
            item,
            size: Some(Bytes(size)),
            cost: Reading::Measured(Interval::exactly(ns * US as f64)),
            source: "test".into(),
            taken: Nanoseconds(1),
        };
        let way = ways().within;
        [row(Item::HalfTrip(way.clone()), trip(size)), row(Item::Message(way), trip(size) / 4.0)]
    });
    Costs::of(rows.collect())
}

/// The recording of a program whose calls took `noise` us beyond their costs.
fn recorded(program: &Program, real: Four, noise: &[u16]) -> Graph {
    let shape = graph(program, US, None);
    let noise: Vec<i64> = (0..shape.len()).map(|call| i64::from(noise[call % noise.len()]) * US * PS).collect();
    let truth = replay(&shape, &prices(&shape, US * PS, real), Residuals::Own(&noise)).unwrap();
    graph(program, US, Some(&truth))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// However noisy the run: 1 ns more latency is what the gradient says, in all draws; much more is no less, and no more than
    /// if all messages came one after the other.
    #[test]
    fn more_latency_costs_what_the_gradient_says(
        program in programs(), real: Four, model: (u8, u8), noise in proptest::collection::vec(prop_oneof![9 => 0..3u16, 1 => 0..u16::MAX], 8),
    ) {
        let recorded = recorded(&program, real, &noise);
        let costs = costs(model.0, model.1);
        let program = answer::Program::new(&recorded, &costs, ways()).unwrap();
        let check = program.check().unwrap();
        let [right, left] = [check.gradients[0].right, check.gradients[0].left].map(|counts| counts.trips as f64);
        let changes = [1.0, -1.0, 1_000_000.0];
        let levers = changes.map(|ns| Lever { latency: Some(Change::By(ns)), ..Lever::default() });
        let answers = program.ask(&levers.each_ref()).unwrap();
        let more = |nth: usize| {
            let time = answers[nth].time;
            // Costs are exact here, and nothing else is uncertain of it.
            assert_eq!((time.low, time.high), (time.middle, time.middle));
            (time.middle - 1.0) * check.recorded
        };
        prop_assert!((more(0) - right).abs() < 1e-3, "{} {right}", more(0));
        prop_assert!((more(1) + left).abs() < 1e-3, "{} {left}", more(1));
        let all: u64 = recorded.messages.len() as u64 + 2 * recorded.gatherings.len() as u64;
        let far = more(2) / changes[2];
        prop_assert!(right * (1.0 - 1e-6) - 1e-6 <= far && far <= all as f64 + 1e-6, "{right} {far} {all}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// More latency, more time a byte and a slower clock never make a program faster, in any draw, where no call was over sooner
    /// than its costs say: what such a call was short of follows them, and can exceed its own part of them.
    #[test]
    fn predictions_are_monotone(
        program in programs(), real in (20..=u8::MAX, 20..=u8::MAX, 70..=u8::MAX, any::<u8>()), model in (0..16u8, 0..16u8),
        noise in proptest::collection::vec(0..20u16, 8),
    ) {
        let recorded = recorded(&program, real, &noise);
        let costs = costs(model.0, model.1);
        let program = answer::Program::new(&recorded, &costs, ways()).unwrap();
        let latency = |ns| Lever { latency: Some(Change::By(ns)), ..Lever::default() };
        let per_byte = |factor| Lever { per_byte: Some(factor), ..Lever::default() };
        let clock = |factor| Lever { clock: Some(factor), ..Lever::default() };
        for levers in [
            [-100.0, 0.0, 1_000.0, 1e6].map(latency),
            [0.25, 1.0, 2.0, 8.0].map(per_byte),
            [2.0, 1.0, 0.8, 0.5].map(clock),
        ] {
            let answers = program.ask(&levers.each_ref()).unwrap();
            for (one, other) in answers.iter().zip(&answers[1..]) {
                let pairs = [(one.time.low, other.time.low), (one.time.middle, other.time.middle), (one.time.high, other.time.high)];
                prop_assert!(pairs.iter().all(|(one, other)| *one <= other * (1.0 + 1e-9)), "{pairs:?} {levers:?}");
            }
            // What a lever leaves as it is, stays exactly.
            prop_assert_eq!(answers[1].time, Interval::exactly(1.0));
        }
    }
}

/// A ping-pong of 600 trips that loses its core now and then: 1 us more for each is 0.6 ms of 909.
#[test]
fn a_short_noisy_run_is_as_sensitive_as_it_has_trips() {
    let rounds = 300;
    let mut builder = Builder::new(vec![0, 0], 2 * rounds);
    (0..2 * rounds).for_each(|message| builder.message(message, KIND));
    for rank in 0..2 {
        builder.lane(rank, 0);
        for round in 0..rounds {
            let (there, back) = (2 * round, 2 * round + 1);
            let lost = if round % 7 == 0 { 20_000 * US } else { 0 };
            let send = |of| (Adding { inside: US, ..call("Send", US) }, vec![Step::Send(of), Step::Sent(of)]);
            let receive =
                |of| (Adding { inside: 2 * US + lost, ..call("Recv", 0) }, vec![Step::Post(of), Step::Received(of)]);
            let both = if rank == 0 { [send(there), receive(back)] } else { [receive(there), send(back)] };
            both.into_iter().for_each(|(adding, steps)| builder.call(adding, &steps));
        }
    }
    let graph = builder.finish();
    let costs = costs(0, 0);
    let program = answer::Program::new(&graph, &costs, ways()).unwrap();
    let check = program.check().unwrap();
    let lever = Lever { latency: Some(Change::By(1_000.0)), ..Lever::default() };
    let time = program.ask(&[&lever]).unwrap()[0].time;
    let most = f64::from(2 * rounds) * 1_000.0 / check.recorded;
    assert!(time.low > 1.0 && time.high <= 1.0 + most * 1.001, "{time:?} {most}");
    // The wire's half is in what messages cost, and not in what cores lost.
    let half = Lever { latency: Some(Change::Times(0.5)), ..Lever::default() };
    let time = program.ask(&[&half]).unwrap()[0].time;
    assert!(time.low >= 1.0 - 4.0 * most, "{time:?} {most}");
}
