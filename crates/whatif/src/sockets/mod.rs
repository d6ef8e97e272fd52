//! Messages over the kernel's sockets, in pieces, each moved by a core: replays of ranks on other cores.
//!
//! A [`crate::replay`] prices a message as a whole, wherever its ends are. Here it is pieces of 16 KiB, and each passes
//! ```text
//! copied     = the sender's core, in a call: into the library's buffer, while there is room
//! handed     = the sender's core, in a call: into the connection's socket, while there is room
//! sent       = max(handed, link's last) + link                 one link of each direction a host; then the latency
//! delivered  = max(arrived, softirq core's last) + receive     before what else is on that core
//! taken      = the receiver's core, in a call
//! room       = max(taken + latency, softirq core's last) + acknowledge        on the sender's host
//! ```
//! The work of all stages together is the measured half trip of a piece without the latency. What softirqs took of the recorded
//! run is `receive` and `acknowledge`. How the rest is split, and how much longer `hand` and `take` are in another package than
//! the softirqs' core, are [`Figures`] that no cost says: those are taken under which a replay, whose calls begin when they
//! were recorded to, ends them when they were recorded to end. Draws have other figures that fit nearly as well.

mod fit;
mod measured;
mod plan;
mod run;
mod stages;

use std::borrow::Cow;

use machine::costs::Interval;
use machine::{Costs, Result};

use crate::graph::Graph;
use crate::lever::{Mapping, Unknown};
use crate::model::{Draw, Prices, Ways};
use crate::replay::{Buffer, PS};
use measured::Exchanges;
use plan::Plan;
use run::{Conditions, Gaps, Learned, Run, Seats};
pub(crate) use stages::Figures;
use stages::{Pieces, Stages, Trips};

/// Network softirqs of a recorded run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Softirqs {
    /// By host: softirq time on all of its cores, ns; all 0: a device receives.
    pub hosts: Vec<f64>,
    /// By rank: the share of its host's softirqs that is done on its core.
    pub shares: Vec<f64>,
    /// By rank: whether it is in another package than the cores that do most of its host's; empty: none is.
    pub far: Vec<bool>,
}

/// Draws by which a mapping is judged: what one of them cannot see another may.
const JUDGES: usize = 3;

/// Unknown figures in one draw.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drawn {
    pub draw: Draw,
    pub unknown: Unknown,
    pub figures: Figures,
}

/// A recorded program over sockets.
#[derive(Debug)]
pub(crate) struct Sockets<'a> {
    graph: &'a Graph,
    costs: &'a Costs,
    ways: Ways,
    buffer: Buffer,
    softirqs: Softirqs,
    plan: Plan,
    exchanges: Exchanges,
    /// The most likely first.
    draws: Vec<Drawn>,
    /// What the best of them leaves unexplained, as a share of the time in calls.
    pub misfit: f64,
}

impl<'a> Sockets<'a> {
    /// `drawn`: draws of what is not known beside the figures, those in the middle first.
    ///
    /// # Errors
    /// A cost was never measured here, or the recording contradicts itself.
    pub fn of(
        graph: &'a Graph,
        costs: &'a Costs,
        ways: Ways,
        buffer: Buffer,
        softirqs: Softirqs,
        drawn: &[(Draw, Unknown)],
    ) -> Result<Sockets<'a>> {
        let plan = Plan::of(graph);
        let (exchanges, draws) = (Exchanges::new(), Vec::new());
        let mut sockets = Sockets { graph, costs, ways, buffer, softirqs, plan, exchanges, draws, misfit: 0.0 };
        (sockets.misfit, sockets.draws) = sockets.fitted(drawn)?;
        Ok(sockets)
    }

    /// The times under mappings over that of the program as it is, over all draws.
    ///
    /// # Errors
    /// A cost was never measured here.
    pub fn times(&self, mappings: &[Mapping]) -> Result<Vec<Vec<f64>>> {
        rounds::parallel::in_parallel(&self.draws, |drawn| {
            let base = Base::of(self, drawn)?;
            mappings.iter().map(|mapping| base.time(mapping)).collect()
        })
    }

    /// The program in its first draws, by which mappings are judged.
    ///
    /// # Errors
    /// A cost was never measured here.
    pub fn bases(&self) -> Result<Vec<Base<'_>>> {
        self.draws.iter().take(JUDGES).map(|drawn| Base::of(self, drawn)).collect()
    }

    fn stages(&self, drawn: &Drawn) -> Result<(Stages, Pieces, Prices)> {
        let trips = Trips::of(self.costs, &self.ways, &drawn.draw);
        let pieces = Pieces::of(self.graph, &trips)?;
        let stages = Stages::of(self.graph, &self.plan, &pieces, &trips, &self.softirqs.hosts, &drawn.figures);
        Ok((stages, pieces, Prices::of(self.graph, self.costs, &self.ways, &drawn.draw)?))
    }

    /// Learns the work between calls; `calls`: as many of them at most.
    fn learn(&self, (stages, pieces, prices): &(Stages, Pieces, Prices), calls: usize) -> Result<Learned> {
        let mut learned = Learned::default();
        let seats = Seats { shares: &self.softirqs.shares, far: &self.softirqs.far };
        let Sockets { graph, plan, buffer, .. } = self;
        let of = Conditions { graph, plan, stages, pieces, prices, seats, buffer: *buffer, calls };
        Run::of(of, Gaps::Learn(&mut learned)).run()?;
        Ok(learned)
    }
}

/// A program in one draw, with the work between its calls.
#[derive(Debug)]
pub(crate) struct Base<'s> {
    sockets: &'s Sockets<'s>,
    drawn: Drawn,
    priced: (Stages, Pieces, Prices),
    learned: Learned,
    /// The present time of the program, without the overhead of recording, ps.
    now: i64,
}

impl<'s> Base<'s> {
    fn of(sockets: &'s Sockets<'s>, drawn: &Drawn) -> Result<Base<'s>> {
        let priced = sockets.stages(drawn)?;
        let learned = sockets.learn(&priced, usize::MAX)?;
        let mut base = Base { sockets, drawn: *drawn, priced, learned, now: 1 };
        base.now = base.run(&Mapping::recorded(sockets.graph))?.max(1);
        Ok(base)
    }

    /// The time under a mapping over that of the program as it is.
    ///
    /// # Errors
    /// A cost was never measured here.
    pub fn time(&self, mapping: &Mapping) -> Result<f64> {
        Ok(self.run(mapping)? as f64 / self.now as f64)
    }

    fn run(&self, mapping: &Mapping) -> Result<i64> {
        let Sockets { graph: recorded, costs, ways, plan, softirqs, buffer, .. } = self.sockets;
        let (stages, pieces, prices) = &self.priced;
        let moved = mapping.hosts != recorded.hosts;
        let graph = if moved { Cow::Owned(mapping.of(recorded)) } else { Cow::Borrowed(*recorded) };
        let other = moved.then(|| {
            let trips = Trips::of(costs, ways, &self.drawn.draw);
            Ok::<_, machine::Fault>((Pieces::of(&graph, &trips)?, Prices::of(&graph, costs, ways, &self.drawn.draw)?))
        });
        let other = other.transpose()?;
        let (pieces, prices) = other.as_ref().map_or((pieces, prices), |(pieces, prices)| (pieces, prices));
        let seats = match mapping.shares.is_empty() {
            true => Seats { shares: &softirqs.shares, far: &softirqs.far },
            false => Seats { shares: &mapping.shares, far: &mapping.far },
        };
        let work = self.work(mapping);
        let buffer = *buffer;
        let of = Conditions { graph: &graph, plan, stages, pieces, prices, seats, buffer, calls: usize::MAX };
        Run::of(of, Gaps::Known(&work)).run()
    }

    /// By call: the work before it under a mapping, ps.
    fn work(&self, mapping: &Mapping) -> Vec<i64> {
        let graph = self.sockets.graph;
        let factors = mapping.computing(graph, &self.priced.0.of_messages, &self.drawn.unknown);
        let mut work = vec![0; graph.len()];
        for lane in &graph.lanes {
            let rank = lane.rank as usize;
            let stays = if mapping.cores[rank] == Some(lane.rank) { 1.0 } else { self.drawn.unknown.residual_stays };
            for call in lane.first..lane.end {
                let at = call as usize;
                let gap = (graph.calls.gap.get(call) - lane.recording).max(0) * PS;
                let computing = (gap - self.learned.taken[at]).max(0) as f64 * factors[rank];
                work[at] = (computing + self.learned.residuals[at] as f64 * stays).round() as i64;
            }
        }
        work
    }
}

/// The interval of `times`, of which the first is the most likely: that of 95 % of them.
pub(crate) fn interval(mut times: Vec<f64>) -> Interval {
    let middle = times[0];
    times.sort_by(f64::total_cmp);
    let quantile = |part: f64| times[((times.len() - 1) as f64 * part).round() as usize];
    Interval { low: quantile(0.025).min(middle), middle, high: quantile(0.975).max(middle) }
}

#[cfg(test)]
mod tests;
