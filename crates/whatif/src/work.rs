//! Work of messages by what does it. A lever that takes work from the ranks' cores puts it on engines' cores, or another cost
//! was measured for it: the difference of two sums shows which.

use crate::graph::{Graph, Step};
use crate::model::Prices;

/// The work for all messages, ps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Work of ranks in calls, for messages from one rank to another.
    pub ranks: i64,
    /// Work of engines' cores at both ends.
    pub engines: i64,
    /// How long links are occupied, out and in.
    pub links: i64,
}

impl Work {
    /// The work for all messages of a graph under `prices`.
    pub fn of(graph: &Graph, prices: &Prices) -> Work {
        let mut work = Work::default();
        let price = |message: u32| prices.kinds[graph.messages[message as usize].kind as usize];
        for call in (0..graph.len() as u32).filter(|call| !graph.class(*call).opaque) {
            for step in graph.steps(call) {
                match step {
                    Step::Send(message) => work.ranks += price(message).send,
                    Step::Received(message) => work.ranks += price(message).receive,
                    _ => {}
                }
            }
        }
        for message in 0..graph.messages.len() as u32 {
            work.engines += 2 * price(message).engine;
            work.links += 2 * price(message).link;
        }
        work
    }
}

#[cfg(test)]
mod tests {
    use machine::costs::{Interval, Item, Row, Way};
    use machine::{Bytes, Costs, Nanoseconds, Reading, SiteKind};
    use record::functions::named;

    use super::*;
    use crate::graph::{Adding, Builder, Kind, Reach};
    use crate::lever::{Lever, Unknown};
    use crate::model::{Draw, Progress, Ways};
    use crate::replay::{Buffer, Conditions};

    /// The engine in the application and on a core of its own, with messages of equal measured cost.
    #[test]
    fn what_a_placement_takes_from_the_ranks_comes_to_the_engines() {
        let way = |placement, network: Option<&str>| Way {
            carrier: machine::costs::ENGINE.into(),
            mpi: "Open MPI 5".into(),
            placement,
            network: network.map(Into::into),
        };
        let ways = |placement| Ways {
            within: way(placement, None),
            between: way(placement, Some("udp")),
            shared_links: false,
            eager: None,
        };
        let row = |item, ns: f64| Row {
            item,
            size: Some(Bytes(8)),
            cost: Reading::Measured(Interval::exactly(ns)),
            source: "test".into(),
            taken: Nanoseconds(1),
        };
        let (app, core) = (ways(SiteKind::App), ways(SiteKind::Core));
        let all = [&app.within, &app.between, &core.within, &core.between];
        let of_way =
            |way: &&Way| [row(Item::HalfTrip((*way).clone()), 10_000.0), row(Item::Message((*way).clone()), 900.0)];
        let handover = Row { size: None, ..row(Item::Handover, 30.0) };
        let costs = Costs::of(all.iter().flat_map(of_way).chain([handover]).collect());
        for reach in [Reach::Host, Reach::Between] {
            let mut builder = Builder::new(vec![0, u32::from(reach == Reach::Between)], 1);
            builder.message(0, Kind { bytes: 8, reach, trips: 1 });
            let call = |name| Adding { function: named(name).unwrap().id, gap: 0, inside: 9_000, opaque: false };
            builder.lane(0, 0);
            builder.call(call("Send"), &[Step::Send(0), Step::Sent(0)]);
            builder.lane(1, 0);
            builder.call(call("Recv"), &[Step::Post(0), Step::Received(0)]);
            let graph = builder.finish();
            let before = Conditions {
                prices: Prices::of(&graph, &costs, &app, &Draw::default()).unwrap(),
                computing: vec![1.0; 2],
                progress: Progress::Calls,
                unrecorded: false,
                buffer: Buffer::Unlimited,
            };
            let lever = Lever { ways: Some(core.clone()), ..Lever::default() };
            let (after, _) = lever.pull(&graph, &costs, &before, &Unknown::default()).unwrap();
            let (before, after) = (Work::of(&graph, &before.prices), Work::of(&graph, &after.prices));
            assert_eq!(before, Work { ranks: 1_800_000, ..Work::default() });
            // Within a host one core has both ends: the time per message of a stream is the work of both.
            let moved = if reach == Reach::Host { 900_000 } else { 1_800_000 };
            assert_eq!(after, Work { ranks: 2 * 2 * 30_000, engines: moved, links: 0 });
        }
    }
}
