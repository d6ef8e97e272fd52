//! The exchanges by which costs were measured, to be replayed: figures have to explain them too.

use machine::{Bytes, Result};

use super::plan::Plan;
use super::run::{Conditions, Gaps, Run, Seats};
use super::stages::{Pieces, Stages, Trips};
use crate::graph::{Adding, Builder, Graph, Kind, Reach, Step, called};
use crate::model::Prices;
use crate::replay::Buffer;

/// Sizes whose half trips, and whose messages of a stream, are replayed; smaller trips are what pieces cost.
const TRIPS: [u64; 2] = [64 << 10, 256 << 10];
const STREAMS: [u64; 2] = [16 << 10, 64 << 10];

/// Messages of the shorter stream; the longer one has twice as many.
const MESSAGES: u32 = 8;
const ROUNDS: u32 = 2;

/// An exchange between two ranks, one on each of two hosts.
#[derive(Debug)]
struct Exchange {
    graph: Graph,
    plan: Plan,
}

/// Exchanges between hosts, and what was measured.
#[derive(Debug)]
pub(super) struct Exchanges {
    /// Pairs of exchanges whose difference was measured, and by what it is divided; one of a pair may be missing.
    pairs: Vec<(Exchange, Option<Exchange>, f64)>,
}

impl Exchange {
    /// Messages in turn; `answers`: each is answered by one of its size, else only the last, by one byte.
    fn of(bytes: u64, messages: u32, answers: bool) -> Exchange {
        let all = if answers { 2 * messages } else { messages + 1 };
        let is_back = |message: u32| if answers { message % 2 == 1 } else { message == messages };
        let mut builder = Builder::new(vec![0, 1], all);
        for message in 0..all {
            let bytes = if is_back(message) && !answers { 1 } else { bytes };
            builder.message(message, Kind { bytes, reach: Reach::Between, trips: 1 });
        }
        for rank in 0..2 {
            builder.lane(rank, 0);
            for message in 0..all {
                let steps = match is_back(message) == (rank == 1) {
                    true => [Step::Send(message), Step::Sent(message)],
                    false => [Step::Post(message), Step::Received(message)],
                };
                builder.call(Adding { function: called(&steps), gap: 0, inside: 0, opaque: false }, &steps);
            }
        }
        let graph = builder.finish();
        Exchange { plan: Plan::of(&graph), graph }
    }

    /// The time of its replay, ps.
    fn time(&self, stages: &Stages, trips: &Trips, buffer: Buffer) -> Result<f64> {
        let pieces = Pieces::of(&self.graph, trips)?;
        let prices = Prices { kinds: vec![Default::default(); self.graph.kinds.len()] };
        let seats = Seats { shares: &[0.0; 2], far: &[] };
        let Exchange { graph, plan } = self;
        let of = Conditions { graph, plan, stages, pieces: &pieces, prices: &prices, seats, buffer, calls: usize::MAX };
        let work = vec![0; graph.len()];
        Ok(Run::of(of, Gaps::Known(&work)).run()? as f64)
    }
}

impl Exchanges {
    pub(super) fn new() -> Exchanges {
        let trip = |bytes| (Exchange::of(bytes, ROUNDS, true), None, f64::from(2 * ROUNDS));
        let stream = |bytes| {
            let longer = Exchange::of(bytes, 2 * MESSAGES, false);
            (longer, Some(Exchange::of(bytes, MESSAGES, false)), f64::from(MESSAGES))
        };
        Exchanges { pairs: TRIPS.into_iter().map(trip).chain(STREAMS.into_iter().map(stream)).collect() }
    }

    /// By exchange: how much longer the replay is than what was measured, as a share of it.
    pub(super) fn missed(&self, stages: &Stages, trips: &Trips, buffer: Buffer) -> Result<Vec<f64>> {
        let stages = stages.where_measured();
        let measured = TRIPS.into_iter().map(|bytes| trips.half(Bytes(bytes)));
        let measured = measured.chain(STREAMS.into_iter().map(|bytes| trips.stream(Bytes(bytes))));
        let of = |((one, other, parts), measured): (&(Exchange, Option<Exchange>, f64), Result<f64>)| {
            let less = other.as_ref().map_or(Ok(0.0), |other| other.time(&stages, trips, buffer))?;
            let replayed = (one.time(&stages, trips, buffer)? - less) / parts;
            Ok(replayed / measured?.max(1.0) - 1.0)
        };
        self.pairs.iter().zip(measured).map(of).collect()
    }
}
