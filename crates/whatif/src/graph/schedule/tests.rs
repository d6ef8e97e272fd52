use crate::goal;
use crate::model::{Price, Prices, Progress};
use crate::path::{Path, critical};
use crate::replay::{Conditions, PS, Residuals, replay};

use super::*;

const PRICE: Price = Price { send: 70_000, receive: 90_000, trip: 400_000, engine: 0, link: 0, rendezvous: false };

fn graph(text: &str) -> Result<Graph> {
    Graph::of_schedule(&goal::read(text.as_bytes())?, u32::MAX)
}

fn conditions(graph: &Graph, price: Price) -> Conditions {
    let of = |kind: &Kind| if kind.trips == 0 { Price { trip: 0, ..price } } else { price };
    Conditions::of(graph, Prices { kinds: graph.kinds.iter().map(of).collect() }, Progress::Calls)
}

/// Time and critical path of a graph, ps.
fn run(graph: &Graph, price: Price) -> (i64, Path) {
    let conditions = conditions(graph, price);
    let replayed = replay(graph, &conditions, Residuals::None).unwrap();
    let path = critical(graph, &conditions, &replayed);
    assert_eq!(path.parts.total(), replayed.total);
    (replayed.total, path)
}

/// Two ranks as a recorded thread each: blocking calls, and a wait for what was begun before computing.
const EXPORTED: &str = "num_ranks 2
rank 0 {
l0: calc 1000
l1: send 8b to 1 tag 0
l1 requires l0
l2: calc 500
l2 requires l1
l3: recv 8b from 1 tag 1
l3 requires l2
l4: calc 20
l4 requires l3
}
rank 1 {
l0: recv 8b from 0 tag 0
l1: calc 3000
l1 irequires l0
l2: send 8b to 0 tag 1
l2 requires l1
l2 requires l0
}
";

#[test]
fn a_schedule_of_recorded_threads_is_their_calls() {
    let graph = graph(EXPORTED).unwrap();
    let calls = |lane: usize| -> Vec<(&str, i64, usize)> {
        let lane = graph.lanes[lane];
        let of = |call| {
            let function = record::functions::function(graph.class(call).function).unwrap();
            (function.name, graph.calls.gap.get(call), graph.steps(call).count())
        };
        (lane.first..lane.end).map(of).collect()
    };
    assert_eq!(graph.lanes.len(), 2);
    assert_eq!(calls(0), [("Send", 1_000, 2), ("Recv", 500, 2), ("Finalize", 20, 0)]);
    assert_eq!(calls(1), [("Irecv", 0, 1), ("Waitall", 3_000, 1), ("Send", 0, 2)]);
    let (time, path) = run(&graph, PRICE);
    // The message has arrived before its receiver has computed.
    assert_eq!(time, 3_000 * PS + 90_000 + 400_000 + 20 * PS);
    assert_eq!((path.counts[0].trips, path.counts[0].ends), (1, 1));
    assert_eq!(path.parts.computing, 3_020 * PS);
    assert!(graph.notes.is_empty() && graph.scheduled);
}

#[test]
fn messages_that_begin_together_are_one_call() {
    let rank = |peer: u32| {
        format!(
            "c: calc 10\na: send 8b to {peer}\na requires c\nb: recv 8b from {peer}\nb requires c\nd: calc 5\nd requires a\nd requires b\n"
        )
    };
    let graph = graph(&format!("num_ranks 2\nrank 0 {{\n{}}}\nrank 1 {{\n{}}}\n", rank(1), rank(0))).unwrap();
    assert!(graph.lanes.len() == 2 && graph.notes.is_empty(), "{:?}", graph.lanes);
    assert_eq!(graph.steps(0).count(), 4);
    assert_eq!(run(&graph, PRICE).0, 15 * PS + 400_000);
}

#[test]
fn what_requires_nothing_of_each_other_runs_side_by_side() {
    // A receive that two operations wait for, and a computation that begins when another does.
    let text = "num_ranks 2
rank 0 {
a: recv 8b from 1
b: calc 100
c: calc 700
d: calc 10
e: calc 2000
b requires a
c requires a
d requires b
d requires c
e irequires c
}
rank 1 {
s: send 8b to 0
after: calc 50000
after requires s
}
";
    let graph = graph(text).unwrap();
    let rank = |rank| graph.lanes.iter().filter(|lane| lane.rank == rank).count();
    assert!(rank(0) > 1 && rank(1) == 1, "{:?}", graph.lanes);
    assert!(graph.notes[0].contains("share a cpu"), "{:?}", graph.notes);
    let conditions = conditions(&graph, PRICE);
    let replayed = replay(&graph, &conditions, Residuals::None).unwrap();
    let last = |rank: u32| {
        let lanes = graph.lanes.iter().filter(|lane| lane.rank == rank);
        lanes.map(|lane| replayed.exits[lane.end as usize - 1]).max().unwrap()
    };
    assert_eq!(last(0), 400_000 + 2_000 * PS);
    assert_eq!(last(1), 70_000 + 50_000 * PS);
    assert_eq!(run(&graph, PRICE).0, last(1));
}

#[test]
fn a_send_that_another_chain_waits_for_has_begun() {
    for rendezvous in [false, true] {
        let text = "num_ranks 2
rank 0 {
w: calc 1000
s: send 8b to 1
t: calc 10
u: calc 400
v: calc 300
s requires w
t irequires s
u requires s
v requires s
}
rank 1 {
c: calc 5000
r: recv 8b from 0
r requires c
}
";
        let graph = graph(text).unwrap();
        let price = Price { rendezvous, ..PRICE };
        let conditions = conditions(&graph, price);
        let replayed = replay(&graph, &conditions, Residuals::None).unwrap();
        let mine = graph.lanes.iter().filter(|lane| lane.rank == 0);
        let last = mine.map(|lane| replayed.exits[lane.end as usize - 1]).max().unwrap();
        let over = if rendezvous { 5_000 * PS + 400_000 } else { 1_000 * PS + 70_000 };
        assert_eq!(last, over + 400 * PS, "{rendezvous}");
    }
}

#[test]
fn impossible_schedules_are_told_of() {
    let one = |body: &str| {
        graph(&format!("num_ranks 2\nrank 0 {{\n{body}\n}}\nrank 1 {{\ncalc 1\n}}\n"))
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    let circle = one("a: calc 1\nb: calc 2\na requires b\nb requires a");
    assert!(circle.contains("2 operations of rank 0 require each other"), "{circle}");
    let lost = one("send 8b to 1 tag 4");
    assert!(lost.contains("from rank 0 to rank 1 with tag 4 go 1 message, of which 0 are received"), "{lost}");
    let any = one("recv 8b from -1");
    assert!(any.contains("rank 0 receives from any rank"), "{any}");
    let text = "num_ranks 2\nrank 0 {\na: recv 8b from 1\nb: send 8b to 1\nb requires a\n}\nrank 1 {\na: recv 8b from 0\nb: send 8b to 0\nb requires a\n}\n";
    let graph = graph(text).unwrap();
    let fault = replay(&graph, &conditions(&graph, PRICE), Residuals::None).unwrap_err().to_string();
    assert!(fault.contains("wait for each other") && fault.contains("write each send before"), "{fault}");
}
