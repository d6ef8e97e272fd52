//! How well one recording predicts another: the model's accuracy.
//!
//! Of the recording that is judged only the computing between calls, and what its calls begin and complete, are taken. What its
//! calls take comes from the first recording: the mean residual of their class, scaled by what the lever changes. So nothing
//! of the judged time flows into what is predicted of it but the computing.
//!
//! Where its ranks were on other hosts, the first recording is mapped so before its calls are learned from; and the time that
//! it then has, with its own computing, is held against the judged one too: of that nothing flows into it.

use std::collections::{HashMap, HashSet};

use machine::costs::Interval;
use machine::{Fault, Result};

use super::{Program, in_parallel, interval, scaled, typical};
use crate::graph::{Class, Graph};
use crate::lever::mapping::Hosts;
use crate::lever::{Lever, Scale};
use crate::path::{Path, critical};
use crate::replay::{PS, Residuals, replay};

/// A recorded time, and its prediction from another recording.
#[derive(Debug, Clone)]
pub struct Against {
    /// The recorded time, ns.
    pub recorded: f64,
    /// The predicted time over the recorded one.
    pub predicted: Interval,
    /// The time of the first recording over it: the naive prediction.
    pub unchanged: f64,
    /// With a mapping: the predicted time of the first recording under it, with its own computing, over the recorded one.
    pub mapped: Option<Interval>,
    /// The share of calls whose class the first recording lacks; the class nearest in size stands in.
    pub unseen: f64,
    /// The critical path as predicted, all costs in the middle of their intervals.
    pub path: Path,
}

/// The time of a class's calls in the first recording, ps.
#[derive(Debug, Clone, Copy)]
struct Learned {
    residual: f64,
    /// Mean time from entry to exit.
    inside: f64,
}

impl Program<'_> {
    /// Predicts the time of `other`, which was recorded with `lever` pulled.
    ///
    /// # Errors
    /// `other` is no recording of as many ranks, or has them on other hosts than a mapping says. A cost was never measured here.
    pub fn against(&self, other: &Graph, lever: &Lever) -> Result<Against> {
        let ranks = (self.graph.hosts.len(), other.hosts.len());
        if ranks.0 != ranks.1 {
            let cause = format!("it is of {} ranks, the other one of {}", ranks.1, ranks.0);
            return Err(Fault::new("the second recording", cause, "record the same program with as many ranks"));
        }
        let theirs = Hosts::of(&other.hosts);
        if let Some(asked) = lever.mapping.as_ref().map(|mapping| Hosts::of(&mapping.hosts)).filter(|of| *of != theirs)
        {
            let cause = format!("its ranks were at {theirs}, and not at {asked}");
            return Err(Fault::new("the second recording", cause, "leave --map and --swap out, or name these hosts"));
        }
        let both = lever.mapping.as_ref().map(|mapping| mapping.classified(self.graph));
        let [recorded, mapped] = both.as_ref().map_or([self.graph; 2], |[recorded, mapped]| [recorded, mapped]);
        let drawn = in_parallel(&self.draws, |draw| {
            let (of_recorded, unknown) = draw;
            let before = self.conditions_of(self.graph, of_recorded)?;
            let (residuals, first) = self.learn(&before)?;
            let (lifted, scale) = self.pull(lever, (recorded, &before), mapped, draw)?;
            let classes = learned(mapped, &residuals, &scale);
            let (mut after, _) = lever.pull(other, self.costs, &self.conditions_of(other, of_recorded)?, unknown)?;
            // The gaps were recorded under the clock and the mapping in question.
            after.computing.fill(1.0);
            let mut measured = Vec::new();
            let time = replay(other, &after, Residuals::Learn(&mut measured))?.total.max(1) as f64;
            let whole = || -> Result<i64> {
                let residuals = scaled(&residuals, &typical(mapped, &residuals), mapped, &scale);
                Ok(replay(mapped, &lifted, Residuals::Own(&residuals))?.total)
            };
            let whole = both.is_some().then(whole).transpose()?;
            let residuals: Vec<i64> = (0..other.len() as u32).map(|call| residual(&classes, other, call)).collect();
            let predicted = replay(other, &after, Residuals::Own(&residuals))?;
            let path = critical(other, &after, &predicted);
            Ok((predicted.total as f64 / time, whole.map(|whole| whole as f64 / time), first.total, time, path))
        })?;
        let (_, _, first, time, path) = &drawn[0];
        let known: HashSet<&Class> = mapped.classes.iter().collect();
        let unseen = (0..other.len() as u32).filter(|call| !known.contains(&other.class(*call))).count();
        let whole: Option<Vec<f64>> = drawn.iter().map(|of| of.1).collect();
        Ok(Against {
            recorded: time / 1e3,
            predicted: interval(drawn.iter().map(|of| of.0).collect()),
            unchanged: *first as f64 / time,
            mapped: whole.map(interval),
            unseen: unseen as f64 / other.len().max(1) as f64,
            path: path.clone(),
        })
    }
}

/// By class: means of a recording's calls, residuals multiplied by the `scale` of their class.
fn learned(graph: &Graph, residuals: &[i64], scale: &[Scale]) -> HashMap<Class, Learned> {
    let mut sums = vec![(0.0, 0.0, 0.0); graph.classes.len()];
    for (call, residual) in residuals.iter().enumerate() {
        let of = &mut sums[graph.calls.class[call] as usize];
        let inside = (graph.calls.inside.get(call as u32) * PS) as f64;
        *of = (of.0 + *residual as f64, of.1 + inside, of.2 + 1.0);
    }
    // Classes that a mapping made equal are merged.
    let mut alike: HashMap<Class, (f64, f64, f64)> = HashMap::new();
    for ((class, (residual, inside, count)), scale) in graph.classes.iter().zip(sums).zip(scale) {
        let of = alike.entry(*class).or_default();
        let mean = residual / f64::max(count, 1.0);
        let residual = count * scale.of(mean, mean);
        *of = (of.0 + residual, of.1 + inside, of.2 + count);
    }
    let mean = |(class, (residual, inside, count)): (Class, (f64, f64, f64))| {
        let count = f64::max(count, 1.0);
        (class, Learned { residual: residual / count, inside: inside / count })
    };
    alike.into_iter().map(mean).collect()
}

/// The residual of a call of `graph`, by its class or the one nearest in size; 0 where no class is like it.
fn residual(classes: &HashMap<Class, Learned>, graph: &Graph, call: u32) -> i64 {
    let class = graph.class(call);
    let like = |other: &&Class| Class { bits: class.bits, completes: class.completes, ..**other } == class;
    let far = |other: &&Class| (other.bits.abs_diff(class.bits), other.completes.abs_diff(class.completes), other.bits);
    let nearest = || classes.keys().filter(like).min_by_key(far);
    let learned = classes.get(&class).or_else(|| classes.get(nearest()?));
    let inside = graph.calls.inside.get(call) * PS;
    match learned {
        // A call that is not modelled takes its time of the first recording.
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
    use crate::lever::Mapping;
    use crate::model::Ways;

    const ROUNDS: i64 = 50;
    const TRIPS: [f64; 2] = [1_000.0, 3_000.0];
    /// The unexplained part of a receive, ns.
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

    /// Ranks that send to each other in turn: `gap` ns of computing before each send, each receive `trip` and an extra
    /// after the send; at the end, unsuccessful tests for `vain` ns.
    fn ping_pong(gap: i64, trip: i64, vain: i64, bytes: u64) -> Graph {
        ping_pong_on([0, 0], gap, trip, vain, bytes)
    }

    fn ping_pong_on(hosts: [u32; 2], gap: i64, trip: i64, vain: i64, bytes: u64) -> Graph {
        let mut builder = Builder::new(hosts.to_vec(), 2 * ROUNDS as u32);
        let reach = if hosts[0] == hosts[1] { Reach::Host } else { Reach::Between };
        (0..2 * ROUNDS as u32).for_each(|number| builder.message(number, Kind { bytes, reach, trips: 1 }));
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
    fn ranks_on_other_hosts_are_mapped_before_they_are_judged() {
        let (costs, first) = (costs(), ping_pong(500, 1_000, 0, 8));
        let ways = Ways { between: ways("far").between, ..ways("near") };
        let program = Program::new(&first, &costs, ways).unwrap();
        let apart = |gap| ping_pong_on([0, 1], gap, 3_000, 0, 8);
        let mapping = Mapping::like(&first, &apart(500)).unwrap();
        let held = |other: &Graph, mapping: &Mapping| {
            program.against(other, &Lever { mapping: Some(mapping.clone()), ..Lever::default() })
        };
        let near = |interval: Interval, low: f64, high: f64| {
            assert!(
                (interval.low / low - 1.0).abs() < 0.03 && (interval.high / high - 1.0).abs() < 0.03,
                "{interval:?}"
            );
        };
        // The residual may grow as the trip does, or not; here it did not.
        let [least, most] = [200.0, 600.0].map(|extra| 3_000.0 + extra);
        let same = held(&apart(500), &mapping).unwrap();
        near(same.predicted, 1.0, (500.0 + most) / (500.0 + least));
        near(same.mapped.unwrap(), 1.0, (500.0 + most) / (500.0 + least));
        assert_eq!(same.unseen, 0.0);
        // Another computing is taken from the judged one, and in the whole it is that of the first: twice as long on one rank's core.
        let slow = held(&apart(2_000), &mapping.clone().capable(1, 0.5).unwrap()).unwrap();
        near(slow.predicted, 1.0, (2_000.0 + most) / (2_000.0 + least));
        near(slow.mapped.unwrap(), (750.0 + least) / (2_000.0 + least), (750.0 + most) / (2_000.0 + least));
        let fault = held(&apart(500), &Mapping::recorded(&first)).unwrap_err().to_string();
        assert!(fault.contains("its ranks were at 0/1, and not at 0,1"), "{fault}");
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
