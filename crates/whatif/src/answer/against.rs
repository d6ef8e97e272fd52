//! How well one recording predicts another: the model's accuracy.
//!
//! Of the recording that is judged only the computing between calls, and what its calls begin and complete, are taken. What its
//! calls take comes from the first recording: the mean residual of their class, scaled by what the lever changes. So nothing
//! of the judged time flows into what is predicted of it but the computing.

use std::collections::{HashMap, HashSet};

use machine::costs::Interval;
use machine::{Fault, Result};

use super::{Program, in_parallel, interval};
use crate::graph::{Class, Graph};
use crate::lever::{Lever, Scale};
use crate::path::{Path, critical};
use crate::replay::{PS, Residuals, replay};

/// A recorded time, and what another recording makes of it.
#[derive(Debug, Clone)]
pub struct Against {
    /// The time that is judged, ns.
    pub recorded: f64,
    /// The predicted time over it.
    pub predicted: Interval,
    /// The time of the recording that was learned from over it: what one would say who knows nothing.
    pub unchanged: f64,
    /// The share of its calls whose class the first recording has not; those nearest in size stand in for them.
    pub unseen: f64,
    /// The critical path as predicted, all costs in the middle of their intervals.
    pub path: Path,
}

/// What calls of a class take in the recording that is learned from, ps.
#[derive(Debug, Clone, Copy)]
struct Learned {
    residual: f64,
    /// From entry to exit.
    inside: f64,
}

impl Program<'_> {
    /// Predicts the time of `other`, which was recorded with `lever` pulled.
    ///
    /// # Errors
    /// It is no recording of as many ranks. A cost was never measured here.
    pub fn against(&self, other: &Graph, lever: &Lever) -> Result<Against> {
        let ranks = (self.graph.hosts.len(), other.hosts.len());
        if ranks.0 != ranks.1 {
            let cause = format!("it is of {} ranks, the other one of {}", ranks.1, ranks.0);
            return Err(Fault::new("the second recording", cause, "record the same program with as many ranks"));
        }
        let drawn = in_parallel(&self.draws, |(of_recorded, unknown)| {
            let before = self.conditions(of_recorded)?;
            let (residuals, learned) = self.learn(&before)?;
            let (_, scale) = lever.pull(self.graph, self.costs, &before, unknown)?;
            let classes = self.learned(&residuals, &scale);
            let (mut after, _) = lever.pull(other, self.costs, &self.conditions_of(other, of_recorded)?, unknown)?;
            // Its gaps were recorded under the clock that is asked for.
            after.computing.fill(1.0);
            let mut measured = Vec::new();
            let recorded = replay(other, &after, Residuals::Learn(&mut measured))?.total;
            let residuals: Vec<i64> = (0..other.len() as u32).map(|call| residual(&classes, other, call)).collect();
            let predicted = replay(other, &after, Residuals::Own(&residuals))?;
            let path = critical(other, &after, &predicted);
            Ok((predicted.total as f64 / recorded.max(1) as f64, learned.total, recorded, path))
        })?;
        let (_, first, recorded, path) = &drawn[0];
        let known: HashSet<&Class> = self.graph.classes.iter().collect();
        let unseen = (0..other.len() as u32).filter(|call| !known.contains(&other.class(*call))).count();
        Ok(Against {
            recorded: *recorded as f64 / 1e3,
            predicted: interval(drawn.iter().map(|of| of.0).collect()),
            unchanged: *first as f64 / (*recorded).max(1) as f64,
            unseen: unseen as f64 / other.len().max(1) as f64,
            path: path.clone(),
        })
    }

    /// By class: means of this recording, the residuals times `scale`.
    fn learned(&self, residuals: &[i64], scale: &[Scale]) -> HashMap<Class, Learned> {
        let mut sums = vec![(0.0, 0.0, 0.0); self.graph.classes.len()];
        for (call, residual) in residuals.iter().enumerate() {
            let of = &mut sums[self.graph.calls.class[call] as usize];
            let inside = (self.graph.calls.inside.get(call as u32) * PS) as f64;
            *of = (of.0 + *residual as f64, of.1 + inside, of.2 + 1.0);
        }
        let mean = |((sum, inside, count), scale): ((f64, f64, f64), &Scale)| Learned {
            residual: scale.of(sum / f64::max(count, 1.0)),
            inside: inside / f64::max(count, 1.0),
        };
        let means = sums.into_iter().zip(scale).map(mean);
        self.graph.classes.iter().copied().zip(means).collect()
    }
}

/// What a call of `graph` takes beyond the model, by its class or that of the nearest size; 0 where no call is like it.
fn residual(classes: &HashMap<Class, Learned>, graph: &Graph, call: u32) -> i64 {
    let class = graph.class(call);
    let like = |other: &&Class| Class { bits: class.bits, completes: class.completes, ..**other } == class;
    let far = |other: &&Class| (other.bits.abs_diff(class.bits), other.completes.abs_diff(class.completes), other.bits);
    let nearest = || classes.keys().filter(like).min_by_key(far);
    let learned = classes.get(&class).or_else(|| classes.get(nearest()?));
    let inside = graph.calls.inside.get(call) * PS;
    match learned {
        // What is not modelled takes what it took in the first recording, not in this one.
        Some(learned) if class.opaque => learned.inside as i64 - inside,
        Some(learned) => learned.residual as i64,
        None if class.opaque => -inside,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use machine::costs::{Item, Row, Way};
    use machine::{Bytes, Costs, Nanoseconds, Reading, SiteKind};
    use record::functions::named;

    use super::*;
    use crate::graph::{Adding, Builder, Kind, Reach, Step};
    use crate::model::Ways;

    const ROUNDS: i64 = 50;
    const TRIPS: [f64; 2] = [1_000.0, 3_000.0];
    /// What no cost explains of a receive, ns.
    const EXTRA: i64 = 200;

    fn ways(carrier: &str) -> Ways {
        let way = Way { carrier: carrier.into(), mpi: "an MPI".into(), placement: SiteKind::App, network: None };
        Ways { within: way.clone(), between: way, shared_links: false, eager: None }
    }

    fn costs() -> Costs {
        let rows = ["near", "far"].into_iter().zip(TRIPS).flat_map(|(carrier, ns)| {
            let way = ways(carrier).within;
            let row = |item, ns, size| Row {
                item,
                size: Some(Bytes(size)),
                cost: Reading::Measured(Interval::exactly(ns)),
                source: String::new(),
                taken: Nanoseconds(1),
            };
            let of =
                move |size| [row(Item::HalfTrip(way.clone()), ns, size), row(Item::Message(way.clone()), 100.0, size)];
            [8, 1 << 20].into_iter().flat_map(of)
        });
        Costs::of(rows.collect())
    }

    /// Ranks that send to each other in turn: `gap` ns of computing before each send, each receive `trip` and something more
    /// after the send, and at the end asking in vain for `vain` ns.
    fn ping_pong(gap: i64, trip: i64, vain: i64, bytes: u64) -> Graph {
        let mut builder = Builder::new(vec![0, 0], 2 * ROUNDS as u32);
        (0..2 * ROUNDS as u32).for_each(|number| builder.message(number, Kind { bytes, reach: Reach::Host, trips: 1 }));
        let call = |name: &str, gap, inside| Adding { function: named(name).unwrap().id, gap, inside, opaque: false };
        for rank in 0..2u32 {
            builder.lane(rank, 0);
            for round in 0..ROUNDS as u32 {
                let (out, back) = (2 * round + rank, 2 * round + 1 - rank);
                let send = |builder: &mut Builder| {
                    builder.call(call("Send", gap, 100), &[Step::Send(out), Step::Sent(out)]);
                };
                let first = rank == 1 && round == 0;
                let inside = if first { gap + trip + EXTRA } else { gap + 2 * (trip + EXTRA) - 100 };
                let receive = |builder: &mut Builder| {
                    builder.call(call("Recv", 0, inside), &[Step::Post(back), Step::Received(back)]);
                };
                if rank == 0 {
                    send(&mut builder);
                    receive(&mut builder);
                } else {
                    receive(&mut builder);
                    send(&mut builder);
                }
            }
            if rank == 0 {
                builder.call(Adding { opaque: true, ..call("Test", 0, vain) }, &[]);
            }
        }
        builder.finish()
    }

    fn other_way() -> Lever {
        Lever { ways: Some(ways("far")), ..Lever::default() }
    }

    #[test]
    fn what_one_recording_teaches_foretells_another() {
        let (costs, first) = (costs(), ping_pong(500, 1_000, 0, 8));
        let program = Program::new(&first, &costs, ways("near")).unwrap();
        let same = program.against(&ping_pong(2_000, 1_000, 0, 8), &Lever::default()).unwrap();
        let Interval { low, high, .. } = same.predicted;
        assert!((low - 1.0).abs() < 1e-3 && (high - 1.0).abs() < 1e-3, "{same:?}");
        assert!((same.unchanged - 1_700.0 / 3_200.0).abs() < 0.01 && same.unseen == 0.0, "{same:?}");
        // Over another carrier so small a residual most likely grows threefold, as the trip does; here it did not.
        let over = program.against(&ping_pong(2_000, 3_000, 0, 8), &other_way()).unwrap();
        let most = (2_000.0 + 3_000.0 + 600.0) / 5_200.0;
        assert!((over.predicted.low - 1.0).abs() < 0.03 && (over.predicted.high - most).abs() < 0.01, "{over:?}");
    }

    #[test]
    fn nothing_of_the_judged_time_but_computing_is_used() {
        let (costs, first) = (costs(), ping_pong(500, 1_000, 700, 8));
        let program = Program::new(&first, &costs, ways("near")).unwrap();
        let said = |trip, vain| {
            let against = program.against(&ping_pong(2_000, trip, vain, 8), &other_way()).unwrap();
            [against.predicted.low, against.predicted.high].map(|over| over * against.recorded)
        };
        let (one, other) = (said(3_000, 700), said(90_000, 1));
        assert!((one[0] - other[0]).abs() < 0.01 && (one[1] - other[1]).abs() < 0.01, "{one:?} {other:?}");
    }

    #[test]
    fn calls_that_were_not_seen_are_counted_and_other_programs_refused() {
        let (costs, first) = (costs(), ping_pong(500, 1_000, 0, 8));
        let program = Program::new(&first, &costs, ways("near")).unwrap();
        let larger = program.against(&ping_pong(500, 1_000, 0, 16), &Lever::default()).unwrap();
        let calls = 4.0 * ROUNDS as f64;
        assert_eq!(larger.unseen, calls / (calls + 1.0));
        // The class nearest in size stands in.
        assert!((larger.predicted.middle - 1.0).abs() < 1e-3, "{larger:?}");
        let fault = program.against(&Builder::new(vec![0; 3], 0).finish(), &Lever::default()).unwrap_err().to_string();
        assert!(fault.contains("it is of 3 ranks, the other one of 2"), "{fault}");
    }
}
