//! Programs in closed form, and random ones.

use proptest::prelude::*;
use record::functions::{FunctionId, named};
use timeline::Collective;

mod buffers;
mod levers;
mod servers;

use super::*;
use crate::gradient::gradients;
use crate::graph::{Adding, Builder, Kind, Message, NO_CALL, Reach};
use crate::model::Price;
use crate::path::{Counts, OnPath, Path, critical};

const KIND: Kind = Kind { bytes: 8, reach: Reach::Host, trips: 1 };

fn id(name: &str) -> FunctionId {
    named(name).unwrap().id
}

fn call(name: &str, gap: i64) -> Adding {
    Adding { function: id(name), gap, inside: 0, opaque: false }
}

fn conditions(graph: &Graph, price: Price) -> Conditions {
    Conditions::of(graph, Prices { kinds: vec![price; graph.kinds.len()] }, Progress::Calls)
}

const PRICE: Price = Price { send: 70_001, receive: 90_003, trip: 400_007, engine: 0, link: 0, rendezvous: false };

#[test]
fn a_ping_pong_takes_its_trips_and_gaps() {
    let rounds = 10;
    let mut builder = Builder::new(vec![0, 0], 2 * rounds);
    (0..2 * rounds).for_each(|message| builder.message(message, KIND));
    for rank in 0..2 {
        builder.lane(rank, 0);
        builder.recorded(3);
        for round in 0..rounds {
            let (there, back) = (2 * round, 2 * round + 1);
            let receive = |builder: &mut Builder, message| {
                builder.call(call("Recv", 5), &[Step::Post(message), Step::Received(message)]);
            };
            if rank == 1 {
                receive(&mut builder, there);
            }
            let sent = if rank == 0 { there } else { back };
            builder.call(call("Send", 11), &[Step::Send(sent), Step::Sent(sent)]);
            if rank == 0 {
                receive(&mut builder, back);
            }
        }
    }
    let graph = builder.finish();
    let conditions = conditions(&graph, PRICE);
    let replayed = replay(&graph, &conditions, Residuals::None).unwrap();
    // The receives are posted while the message is on its way.
    let rounds = i64::from(rounds);
    assert_eq!(replayed.total, 2 * rounds * (400_007 + 11_000));
    let path = critical(&graph, &conditions, &replayed);
    assert_eq!(path.parts.messages, 2 * rounds * 400_007);
    assert_eq!((path.counts[0].trips, path.counts[0].bytes), (2 * rounds as u64, 16 * rounds as u64));
    assert_eq!((path.parts.computing, path.parts.total()), (2 * rounds * 11_000, replayed.total));
    let unrecorded = Conditions { unrecorded: true, ..conditions };
    let replayed = replay(&graph, &unrecorded, Residuals::None).unwrap();
    assert_eq!(replayed.total, 2 * rounds * (400_007 + 8_000));
    assert_eq!(critical(&graph, &unrecorded, &replayed).parts.total(), replayed.total);
}

#[test]
fn a_late_receiver_holds_a_rendezvous_and_not_an_eager_message() {
    let mut builder = Builder::new(vec![0, 0], 1);
    builder.message(0, KIND);
    builder.lane(0, 0);
    builder.call(call("Send", 0), &[Step::Send(0), Step::Sent(0)]);
    builder.lane(1, 0);
    builder.call(call("Recv", 900), &[Step::Post(0), Step::Received(0)]);
    let graph = builder.finish();
    let exits = |rendezvous| {
        let conditions = conditions(&graph, Price { rendezvous, ..PRICE });
        replay(&graph, &conditions, Residuals::None).unwrap().exits
    };
    assert_eq!(exits(false), [70_001, 900_000 + 90_003]);
    assert_eq!(exits(true), [900_000 + 400_007; 2]);
}

/// By the model the second message of a call leaves 70 ns after the entry: what was received sooner left sooner.
#[test]
fn only_an_exit_before_the_entry_of_its_senders_call_contradicts_the_clocks() {
    let replayed = |inside| {
        let mut builder = Builder::new(vec![0, 0], 2);
        (0..2).for_each(|message| builder.message(message, KIND));
        builder.lane(0, 0);
        builder.call(call("Startall", 500), &[Step::Send(0), Step::Send(1)]);
        builder.lane(1, 0);
        builder.call(Adding { inside, ..call("Recv", 0) }, &[Step::Post(1), Step::Received(1)]);
        let graph = builder.finish();
        let conditions = conditions(&graph, PRICE);
        let mut residuals = Vec::new();
        let learned = replay(&graph, &conditions, Residuals::Learn(&mut residuals)).unwrap();
        let own = replay(&graph, &conditions, Residuals::Own(&residuals)).unwrap();
        assert_eq!(critical(&graph, &conditions, &own).parts.total(), own.total);
        let [within, _] = gradients(&graph, &conditions, &own, |call| residuals[call as usize]);
        (learned.backwards, own.exits[1], within.left.trips)
    };
    assert_eq!(replayed(530), ((0, 0), 530_000, 1));
    assert_eq!(replayed(500), ((0, 0), 500_000, 0));
    assert_eq!(replayed(480), ((1, 20_000), 500_000, 0));
}

#[test]
fn a_rendezvous_waits_until_its_sender_is_in_a_call_unless_somebody_else_moves_it() {
    let mut builder = Builder::new(vec![0, 0], 1);
    builder.message(0, KIND);
    builder.lane(0, 0);
    builder.call(call("Isend", 0), &[Step::Send(0)]);
    builder.call(call("Wait", 5_000), &[Step::Sent(0)]);
    builder.lane(1, 0);
    builder.call(call("Recv", 900), &[Step::Post(0), Step::Received(0)]);
    let graph = builder.finish();
    let run = |progress| {
        let conditions = Conditions { progress, ..conditions(&graph, Price { rendezvous: true, ..PRICE }) };
        let replayed = replay(&graph, &conditions, Residuals::None).unwrap();
        assert_eq!(critical(&graph, &conditions, &replayed).parts.total(), replayed.total);
        replayed.exits
    };
    let in_wait = 70_001 + 5_000_000;
    assert_eq!(run(Progress::Calls), [70_001, in_wait + 400_007, in_wait + 400_007]);
    assert_eq!(run(Progress::Always), [70_001, in_wait, 900_000 + 400_007]);
}

#[test]
fn an_engine_that_is_loaded_serves_one_message_after_the_other() {
    let messages = 50;
    let mut builder = Builder::new(vec![0, 1], messages);
    (0..messages).for_each(|message| builder.message(message, Kind { reach: Reach::Between, ..KIND }));
    builder.lane(0, 0);
    let all: Vec<Step> = (0..messages).map(Step::Send).collect();
    builder.call(call("Startall", 0), &all);
    builder.lane(1, 0);
    let both = |message| [Step::Post(message), Step::Received(message)];
    (0..messages).for_each(|message| builder.call(call("Recv", 0), &both(message)));
    let graph = builder.finish();
    let price = Price { send: 0, receive: 0, trip: 1_000_000, engine: 300_000, ..Price::default() };
    let replayed = replay(&graph, &conditions(&graph, price), Residuals::None).unwrap();
    assert_eq!(replayed.total, 1_000_000 + 300_000 * (i64::from(messages) - 1));
}

#[test]
fn a_root_waits_for_all_and_a_broadcast_for_its_root() {
    let entries = [3_000, 1_000, 2_000];
    let exits = |who| {
        let mut builder = Builder::new(vec![0; 3], 0);
        let first = builder.gathering(3, who, 1, Kind { trips: 2, ..KIND });
        for (member, entry) in entries.into_iter().enumerate() {
            builder.lane(member as u32, 0);
            let place = first + member as u32;
            builder.call(call("Allreduce", entry), &[Step::Enter(place), Step::Leave(place)]);
        }
        let graph = builder.finish();
        let price = Price { send: 5, trip: 20, ..Price::default() };
        replay(&graph, &conditions(&graph, price), Residuals::None).unwrap().exits
    };
    let us = |us: i64, more| us * 1_000_000 + more;
    assert_eq!(exits(Collective::All), [us(3, 20); 3]);
    assert_eq!(exits(Collective::FromRoot), [us(3, 0), us(1, 5), us(2, 0)]);
    assert_eq!(exits(Collective::ToRoot), [us(3, 5), us(3, 20), us(2, 5)]);
    assert_eq!(exits(Collective::Prefix), [us(3, 20); 3]);
}

#[test]
fn calls_that_wait_for_each_other_are_told_of() {
    let mut builder = Builder::new(vec![0, 0], 2);
    (0..2).for_each(|message| builder.message(message, KIND));
    for rank in 0..2 {
        builder.lane(rank, 0);
        builder.call(call("Recv", 0), &[Step::Post(1 - rank), Step::Received(1 - rank)]);
        builder.call(call("Send", 0), &[Step::Send(rank), Step::Sent(rank)]);
    }
    let graph = builder.finish();
    let fault = replay(&graph, &conditions(&graph, PRICE), Residuals::None).unwrap_err();
    assert!(fault.to_string().contains("4 calls wait for each other"), "{fault}");
}

/// The actions of ranks, one after the other in a global order, so that none waits for ever.
#[derive(Debug, Clone)]
enum Deed {
    Message { from: usize, to: usize, large: bool, nonblocking: bool },
    All,
    FromRoot(usize),
    ToRoot(usize),
}

#[derive(Debug, Clone)]
struct Program {
    ranks: usize,
    deeds: Vec<(Deed, u8)>,
}

fn programs() -> impl Strategy<Value = Program> {
    (2..5usize).prop_flat_map(|ranks| {
        let message =
            (0..ranks, 1..ranks, any::<bool>(), any::<bool>()).prop_map(move |(from, by, large, nonblocking)| {
                Deed::Message { from, to: (from + by) % ranks, large, nonblocking }
            });
        let deed = prop_oneof![
            8 => message,
            1 => Just(Deed::All),
            1 => (0..ranks).prop_map(Deed::FromRoot),
            1 => (0..ranks).prop_map(Deed::ToRoot),
        ];
        proptest::collection::vec((deed, 0..4u8), 1..60).prop_map(move |deeds| Program { ranks, deeds })
    })
}

/// The graph of a program. Gaps are few different values, so that ties are common; `unit` is what they are multiples of.
fn graph(program: &Program, unit: i64, measured: Option<&Replayed>) -> Graph {
    let messages = program.deeds.iter().filter(|(deed, _)| matches!(deed, Deed::Message { .. })).count();
    let mut builder = Builder::new(vec![0; program.ranks], messages as u32);
    let mut lanes: Vec<Vec<(Adding, Vec<Step>)>> = vec![Vec::new(); program.ranks];
    let mut message = 0;
    for (deed, gap) in &program.deeds {
        let gap = i64::from(*gap) * unit;
        match *deed {
            Deed::Message { from, to, large, nonblocking } => {
                let bytes = if large { 1 << 20 } else { 8 };
                builder.message(message, Kind { bytes, ..KIND });
                if nonblocking {
                    lanes[from].push((call("Isend", gap), vec![Step::Send(message)]));
                    lanes[to].push((call("Irecv", gap), vec![Step::Post(message)]));
                    lanes[to].push((call("Wait", gap), vec![Step::Received(message)]));
                    lanes[from].push((call("Wait", gap), vec![Step::Sent(message)]));
                } else {
                    lanes[from].push((call("Send", gap), vec![Step::Send(message), Step::Sent(message)]));
                    lanes[to].push((call("Recv", gap), vec![Step::Post(message), Step::Received(message)]));
                }
                message += 1;
            }
            Deed::All | Deed::FromRoot(_) | Deed::ToRoot(_) => {
                let (who, root) = match *deed {
                    Deed::FromRoot(root) => (Collective::FromRoot, root),
                    Deed::ToRoot(root) => (Collective::ToRoot, root),
                    _ => (Collective::All, 0),
                };
                let kind = Kind { trips: 2, ..KIND };
                let first = builder.gathering(program.ranks as u32, who, root as u32, kind);
                for (rank, lane) in lanes.iter_mut().enumerate() {
                    let place = first + rank as u32;
                    let gap = gap + unit * (rank as i64 % 2);
                    lane.push((call("Allreduce", gap), vec![Step::Enter(place), Step::Leave(place)]));
                }
            }
        }
    }
    let mut exits = measured.map(|measured| measured.exits.iter());
    for (rank, lane) in lanes.into_iter().enumerate() {
        builder.lane(rank as u32, 0);
        let mut left = 0;
        for (mut adding, steps) in lane {
            if let Some(exit) = exits.as_mut().and_then(Iterator::next) {
                adding.inside = exit / PS - (left + adding.gap);
                left = exit / PS;
            }
            builder.call(adding, &steps);
            builder.made_at(left as u32 % 5);
        }
    }
    builder.finish()
}

/// The messages of a program as GOAL, as a profile is exported: a chain for each rank.
fn goal(program: &Program, unit: i64) -> String {
    #[derive(Default, Clone)]
    struct Chain {
        text: String,
        next: usize,
        after: Vec<usize>,
        started: Option<usize>,
    }
    impl Chain {
        fn put(&mut self, what: &str) -> usize {
            let label = self.next;
            self.next += 1;
            self.text += &format!("l{label}: {what}\n");
            self.after.drain(..).for_each(|before| self.text += &format!("l{label} requires l{before}\n"));
            self.started.take().into_iter().for_each(|before| self.text += &format!("l{label} irequires l{before}\n"));
            label
        }

        fn compute(&mut self, ns: i64) {
            if ns > 0 {
                let label = self.put(&format!("calc {ns}"));
                self.after.push(label);
            }
        }
    }
    let mut chains = vec![Chain::default(); program.ranks];
    for (number, (deed, gap)) in program.deeds.iter().enumerate() {
        let Deed::Message { from, to, large, nonblocking } = *deed else { continue };
        let bytes = if large { 1 << 20 } else { 8 };
        for (rank, what) in [(from, format!("send {bytes}b to {to}")), (to, format!("recv {bytes}b from {from}"))] {
            let chain = &mut chains[rank];
            let gap = i64::from(*gap) * unit;
            chain.compute(gap);
            let label = chain.put(&format!("{what} tag {number}"));
            if nonblocking {
                chain.started = Some(label);
                chain.compute(gap);
            }
            chain.after.push(label);
        }
    }
    let ranks = chains.iter().enumerate().map(|(rank, chain)| format!("rank {rank} {{\n{}}}\n", chain.text));
    format!("num_ranks {}\n{}", program.ranks, ranks.collect::<String>())
}

/// Prices in multiples of `unit` ps: of small and large messages and of gatherings.
fn prices(graph: &Graph, unit: i64, (send, receive, small, large): (u8, u8, u8, u8)) -> Conditions {
    let price = |kind: &Kind| {
        let small = i64::from(small.max(1));
        let trip = if kind.bytes > 8 { small + i64::from(large) } else { small };
        Price {
            send: i64::from(send) * unit,
            receive: i64::from(receive) * unit,
            trip: i64::from(kind.trips) * trip * unit,
            rendezvous: kind.bytes > 8,
            ..Price::default()
        }
    };
    Conditions {
        prices: Prices { kinds: graph.kinds.iter().map(price).collect() },
        computing: vec![1.0; graph.lanes.len()],
        // Where messages move in calls, higher costs may hold a message up less: the time is then not convex.
        progress: Progress::Always,
        unrecorded: false,
        buffer: Buffer::Unlimited,
    }
}

fn dearer(conditions: &Conditions, graph: &Graph, by: i64) -> Conditions {
    let mut dearer = conditions.clone();
    for (price, kind) in dearer.prices.kinds.iter_mut().zip(&graph.kinds) {
        price.trip += by * i64::from(kind.trips);
    }
    dearer
}

fn walked(graph: &Graph, conditions: &Conditions) -> (i64, Path) {
    let replayed = replay(graph, conditions, Residuals::None).unwrap();
    (replayed.total, critical(graph, conditions, &replayed))
}

type Four = (u8, u8, u8, u8);

proptest! {
    /// Under any model the residuals reproduce the recorded run: a check of the reader, not evidence for the model.
    #[test]
    fn the_recorded_run_comes_back(program in programs(), real: Four, model: Four, in_calls: bool) {
        let shape = graph(&program, 1, None);
        let progress = if in_calls { Progress::Calls } else { Progress::Always };
        let truth = Conditions { progress, ..prices(&shape, PS, real) };
        let truth = replay(&shape, &truth, Residuals::None).unwrap();
        let recorded = graph(&program, 1, Some(&truth));
        let conditions = Conditions { progress, ..prices(&recorded, PS, model) };
        let mut residuals = Vec::new();
        let learned = replay(&recorded, &conditions, Residuals::Learn(&mut residuals)).unwrap();
        prop_assert_eq!(&learned.exits, &truth.exits);
        let again = replay(&recorded, &conditions, Residuals::Own(&residuals)).unwrap();
        prop_assert_eq!((again.exits, again.total), (truth.exits, truth.total));
    }

    /// A stretch of a recording is replayed as it was recorded, and no message of it lacks an end.
    #[test]
    fn a_stretch_comes_back(program in programs(), real: Four, model: Four, most in 1..40usize) {
        let made = graph(&program, 1, None);
        let measured = replay(&made, &prices(&made, PS, real), Residuals::None).unwrap();
        let whole = graph(&program, 1, Some(&measured));
        let Some(part) = whole.excerpt(most) else { return Ok(()) };
        prop_assert!(part.len() <= whole.len() && part.lanes.len() == whole.lanes.len());
        prop_assert!(part.messages.iter().all(|of| of.sender != NO_CALL && of.receiver != NO_CALL));
        let conditions = prices(&part, PS, model);
        let mut residuals = Vec::new();
        let learned = replay(&part, &conditions, Residuals::Learn(&mut residuals)).unwrap();
        let (begun, end) = part.span();
        prop_assert_eq!(learned.total, if part.is_empty() { 0 } else { (end - begun) * PS });
        let again = replay(&part, &conditions, Residuals::Own(&residuals)).unwrap();
        prop_assert_eq!(again.exits, learned.exits);
    }

    /// Whatever queues or waits for room, each message's work is done once at each end, where its price says.
    #[test]
    fn work_is_neither_lost_nor_doubled(
        program in programs(), costs: Four, engine in 0..3i64, link in 0..3i64, size in 1..64u64, finite: bool,
    ) {
        let graph = graph(&program, 1, None);
        let mut conditions = prices(&graph, PS, costs);
        for price in &mut conditions.prices.kinds {
            (price.engine, price.link) = (engine * 333, link * 501);
        }
        if finite {
            conditions.buffer = Buffer::Of(machine::Bytes(size));
        }
        let replayed = replay(&graph, &conditions, Residuals::None).unwrap();
        prop_assert_eq!(replayed.work, Work::of(&graph, &conditions.prices));
        let alone = timed(&graph, &conditions, Residuals::None).unwrap();
        prop_assert_eq!((alone.total, &alone.over, alone.exits.len()), (replayed.total, &replayed.over, 0));
        let trip = |message: &Message| conditions.prices.kinds[message.kind as usize].trip;
        let began: Vec<i64> =
            replayed.over.iter().zip(&graph.messages).map(|(over, message)| over - trip(message)).collect();
        if let Some(order) = Order::of(&graph, &began, &conditions) {
            let kept = replay_in(Some(order), &graph, &conditions, Residuals::None).unwrap();
            prop_assert_eq!(kept.work, replayed.work);
        }
        // Work moves from the ranks' cores to the engines'.
        let mut moved = conditions.clone();
        for price in &mut moved.prices.kinds {
            (price.send, price.receive, price.engine) = (7, 7, 7_000);
        }
        let mut kept = moved.clone();
        for price in &mut kept.prices.kinds {
            (price.send, price.receive, price.engine) = (7_000, 7_000, 0);
        }
        let run = |of: &Conditions| replay(&graph, of, Residuals::None).unwrap().work;
        prop_assert_eq!((run(&moved).engines, run(&moved).links), (run(&kept).ranks, run(&kept).links));
    }

    /// Residuals under the buffers of the recorded run; nothing is lost in buffers, and large ones change nothing.
    #[test]
    fn buffers_lose_nothing(program in programs(), costs: Four, size in 1..40u64, in_calls: bool) {
        let shape = graph(&program, 1, None);
        let progress = if in_calls { Progress::Calls } else { Progress::Always };
        let of = |bytes: u64| Buffer::Of(machine::Bytes(bytes));
        // An eighth of it is whole nanoseconds, as parcels of 8 bytes need it.
        let under = |buffer| Conditions { progress, buffer, ..prices(&shape, 8 * PS, costs) };
        let conditions = under(of(size));
        let truth = replay(&shape, &conditions, Residuals::None).unwrap();
        prop_assert_eq!(critical(&shape, &conditions, &truth).parts.total(), truth.total);
        let recorded = graph(&program, 1, Some(&truth));
        let mut residuals = Vec::new();
        let learned = replay(&recorded, &conditions, Residuals::Learn(&mut residuals)).unwrap();
        prop_assert!(residuals.iter().all(|residual| *residual == 0));
        let again = replay(&recorded, &conditions, Residuals::Own(&residuals)).unwrap();
        prop_assert_eq!((again.exits, again.total), (learned.exits, learned.total));
        let large = replay(&shape, &under(of(1 << 40)), Residuals::None).unwrap();
        let none = replay(&shape, &under(Buffer::Unlimited), Residuals::None).unwrap();
        prop_assert_eq!(large.exits, none.exits);
    }

    #[test]
    fn the_parts_of_the_critical_path_add_up(program in programs(), real: Four, model: Four) {
        let shape = graph(&program, 1, None);
        let truth = replay(&shape, &prices(&shape, PS, real), Residuals::None).unwrap();
        let recorded = graph(&program, 1, Some(&truth));
        let conditions = prices(&recorded, PS, model);
        let mut residuals = Vec::new();
        replay(&recorded, &conditions, Residuals::Learn(&mut residuals)).unwrap();
        let slower = dearer(&conditions, &recorded, 700);
        let in_calls = Conditions { progress: Progress::Calls, ..slower.clone() };
        for conditions in [conditions, slower, in_calls] {
            let replayed = replay(&recorded, &conditions, Residuals::Own(&residuals)).unwrap();
            let path = critical(&recorded, &conditions, &replayed);
            prop_assert_eq!(path.parts.total(), replayed.total);
            // The sums by rank and by site agree, too.
            for sums in [path.by(|spot| spot.rank), path.by(|spot| spot.site)] {
                let mut all = OnPath::default();
                sums.values().for_each(|of| all += *of);
                prop_assert_eq!(all.computing, path.parts.computing);
                prop_assert_eq!(all.computing + all.time, replayed.total);
                prop_assert_eq!(all.counts, path.counts[0]);
            }
        }
    }

    /// The count of trips on the critical path lies between the left and the right derivative of the time by the latency, and
    /// these are exact: lengths are multiples of a unit larger than all counts.
    #[test]
    fn the_gradient_is_the_finite_difference(program in programs(), costs: Four) {
        let unit = 1_000_000;
        let graph = graph(&program, unit / PS, None);
        let conditions = prices(&graph, unit, costs);
        let (time, path) = walked(&graph, &conditions);
        let (up, _) = walked(&graph, &dearer(&conditions, &graph, 1));
        let (down, _) = walked(&graph, &dearer(&conditions, &graph, -1));
        let count = path.counts[0].trips as i64;
        prop_assert!(time - down <= count && count <= up - time, "{} {count} {}", time - down, up - time);
    }

    /// The gradients by all counts are the finite differences to both sides, ties or not.
    #[test]
    fn gradients_are_the_finite_differences(program in programs(), costs: Four) {
        let unit = 1_000_000_000;
        let graph = graph(&program, unit / PS, None);
        let conditions = prices(&graph, unit, costs);
        let (replayed, path) = {
            let replayed = replay(&graph, &conditions, Residuals::None).unwrap();
            let path = critical(&graph, &conditions, &replayed);
            (replayed, path)
        };
        let slope = gradients(&graph, &conditions, &replayed, |_| 0)[0];
        type Change = fn(&mut Price, &Kind, i64);
        let latency: Change = |price, kind, by| price.trip += by * i64::from(kind.trips);
        let bytes: Change = |price, kind, by| price.trip += by * i64::from(kind.trips) * kind.bytes as i64;
        let ends: Change = |price, _, by| {
            price.send += by;
            price.receive += by;
        };
        let counts = |of: Counts| [of.trips, of.bytes, of.ends].map(|count| count as i64);
        let (right, left, on_path) = (counts(slope.right), counts(slope.left), counts(path.counts[0]));
        for (nth, change) in [latency, bytes, ends].into_iter().enumerate() {
            let changed = |by: i64| {
                let mut conditions = conditions.clone();
                let both = conditions.prices.kinds.iter_mut().zip(&graph.kinds);
                both.for_each(|(price, kind)| change(price, kind, by));
                replay(&graph, &conditions, Residuals::None).unwrap().total
            };
            prop_assert_eq!(changed(1) - replayed.total, right[nth], "right, {}", nth);
            prop_assert_eq!(replayed.total - changed(-1), left[nth], "left, {}", nth);
            prop_assert!(left[nth] <= on_path[nth] && on_path[nth] <= right[nth]);
        }
    }

    /// With residuals that stay, the gradients hold as well.
    #[test]
    fn gradients_hold_with_residuals(program in programs(), real: Four, model: Four) {
        let unit = 1_000_000;
        let shape = graph(&program, unit / PS, None);
        let truth = replay(&shape, &prices(&shape, unit, real), Residuals::None).unwrap();
        let recorded = graph(&program, unit / PS, Some(&truth));
        let conditions = prices(&recorded, unit, model);
        let mut residuals = Vec::new();
        replay(&recorded, &conditions, Residuals::Learn(&mut residuals)).unwrap();
        let time = |by| replay(&recorded, &dearer(&conditions, &recorded, by), Residuals::Own(&residuals)).unwrap();
        let now = time(0);
        let slope = gradients(&recorded, &conditions, &now, |call| residuals[call as usize])[0];
        prop_assert_eq!(time(1).total - now.total, slope.right.trips as i64);
        prop_assert_eq!(now.total - time(-1).total, slope.left.trips as i64);
    }

    /// A program that is written as a schedule and read again takes the same time, on the same critical path.
    #[test]
    fn a_schedule_is_the_program_that_it_was_written_of(program in programs(), costs: Four) {
        let messages = |(deed, _): &(Deed, u8)| matches!(deed, Deed::Message { .. });
        let program = Program { deeds: program.deeds.into_iter().filter(messages).collect(), ..program };
        let schedule = crate::goal::read(goal(&program, 1_000).as_bytes()).unwrap();
        let (written, read) = (graph(&program, 1_000, None), Graph::of_schedule(&schedule, u32::MAX).unwrap());
        let [written, read] = [written, read].map(|graph| {
            let conditions = prices(&graph, 1_000_000, costs);
            let replayed = replay(&graph, &conditions, Residuals::None).unwrap();
            (replayed.total, gradients(&graph, &conditions, &replayed, |_| 0))
        });
        prop_assert_eq!(written, read);
    }

    /// Convex and monotone: what nothing waits for costs nothing.
    #[test]
    fn time_is_convex_in_the_latency(program in programs(), costs: Four, step in 1..5_000_000i64) {
        let graph = graph(&program, 1000, None);
        let conditions = prices(&graph, 1_000_000, costs);
        let times = [0, step, 2 * step].map(|by| walked(&graph, &dearer(&conditions, &graph, by)).0);
        prop_assert!(times[0] <= times[1] && times[1] - times[0] <= times[2] - times[1]);
    }
}
