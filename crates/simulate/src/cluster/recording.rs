//! A simulated run as a profile would record it: calls with their times, and the interrupts' share of each core.
//!
//! Times are those of the simulation, cut to nanoseconds. A phase that computes is a gap, interrupts on its core included; any
//! other is one call, which is left when all of the phase is over.

use std::collections::{HashMap, VecDeque};

use machine::fault::{Fault, Result};
use machine::{CoreCapability, Reading};
use whatif::graph::{Adding, Builder, Graph, Kind, Reach, Step, called};

use super::super::programs::{Lazy, Phases};
use super::super::{Kind as Sort, Operation};
use super::profile::{Place, Progress};
use super::{Busy, Cluster, Finished, Seen, Time, observe};

/// A simulated run as it would have been recorded.
#[derive(Debug, Clone)]
pub struct Recording {
    pub graph: Graph,
    /// By rank: interrupt work on its core, ns.
    pub softirqs: Vec<f64>,
    /// The capability of every core, host by host.
    pub capability: Vec<CoreCapability>,
    pub finished: Finished,
}

/// Runs a program and records it.
///
/// # Errors
/// As [`super::simulate`]; a phase that computes beside its messages, a receive that does not name its sender and tag, a protocol
/// whose work is over when it begins.
pub fn record(program: &(impl Phases + ?Sized), cluster: &Cluster) -> Result<Recording> {
    if cluster.profile.progress == Progress::Between {
        let cause = "its work is over when it begins, so that calls have no lengths";
        return Err(Fault::new(format!("profile {}", cluster.profile.name), cause, "record another profile"));
    }
    let mut ends = vec![Vec::new(); program.ranks() as usize];
    let finished = observe(&mut Lazy::of(program), cluster, &mut |seen| {
        if let Seen::Over { rank, at } = seen {
            ends[rank as usize].push(at);
        }
    })?;
    let graph = graph(program, cluster, &ends)?;
    let softirqs = cluster.seats.iter().map(|seat| interrupts(cluster, &finished.cores[seat.host][seat.core]));
    Ok(Recording { graph, softirqs: softirqs.collect(), capability: capability(cluster, &finished), finished })
}

/// A rank's phases in their order.
fn phases(program: &(impl Phases + ?Sized), rank: u32) -> impl Iterator<Item = Vec<Operation>> {
    (0..).map_while(move |number| {
        let mut operations = Vec::new();
        program.phase(rank, number, &mut operations).then_some(operations)
    })
}

/// `ends`: of each rank's operations, in their order.
fn graph(program: &(impl Phases + ?Sized), cluster: &Cluster, ends: &[Vec<Time>]) -> Result<Graph> {
    let host = |rank: u32| cluster.seats[rank as usize].host as u32;
    let mut kinds = Vec::new();
    // By sender, receiver and tag: messages without a receive so far.
    let mut sent: HashMap<(u32, u32, u32), VecDeque<u32>> = HashMap::new();
    for rank in 0..program.ranks() {
        for operation in phases(program, rank).flatten().filter(|operation| operation.kind == Sort::Send) {
            let reach = if host(rank) == host(operation.peer) { Reach::Host } else { Reach::Between };
            sent.entry((rank, operation.peer, operation.tag)).or_default().push_back(kinds.len() as u32);
            kinds.push(Kind { bytes: operation.amount, reach, trips: 1 });
        }
    }
    let mut builder = Builder::new((0..program.ranks()).map(host).collect(), kinds.len() as u32);
    (0..).zip(kinds).for_each(|(number, kind)| builder.message(number, kind));
    let mut sends = 0..;
    for (rank, ends) in (0..).zip(ends) {
        builder.lane(rank, 0);
        let mut ends = ends.iter().map(|end| (end / 1000) as i64);
        // The end of the last call, and of the last phase.
        let (mut left, mut over) = (0, 0);
        for operations in phases(program, rank) {
            let entered = over;
            over = ends.by_ref().take(operations.len()).max().unwrap_or(over);
            if operations.iter().all(|operation| operation.kind == Sort::Compute) {
                continue;
            }
            let mut begun = Vec::with_capacity(2 * operations.len());
            for Operation { kind, peer, tag, .. } in operations {
                begun.push(match kind {
                    Sort::Send => Step::Send(sends.next().unwrap_or(0)),
                    Sort::Receive => {
                        let message = sent.get_mut(&(peer, rank, tag)).and_then(VecDeque::pop_front);
                        Step::Post(message.ok_or_else(|| {
                            Fault::new(format!("rank {rank}"), "it receives from anywhere", "name sender and tag")
                        })?)
                    }
                    Sort::Compute => {
                        let cause = "it computes beside its messages";
                        return Err(Fault::new(format!("rank {rank}"), cause, "compute in a phase of its own"));
                    }
                });
            }
            let completed = begun.clone().into_iter().map(|step| match step {
                Step::Send(message) => Step::Sent(message),
                Step::Post(message) => Step::Received(message),
                other => other,
            });
            let steps: Vec<Step> = begun.into_iter().chain(completed).collect();
            let (gap, inside) = (entered - left, over - entered);
            builder.call(Adding { function: called(&steps), gap, inside, opaque: false }, &steps);
            left = over;
        }
        builder.call(Adding { function: called(&[]), gap: over - left, inside: 0, opaque: true }, &[]);
    }
    Ok(builder.finish())
}

/// Interrupt work on a core, ns.
fn interrupts(cluster: &Cluster, busy: &Busy) -> f64 {
    if cluster.profile.place == Place::Softirq { busy.protocol as f64 / 1e3 } else { 0.0 }
}

fn capability(cluster: &Cluster, finished: &Finished) -> Vec<CoreCapability> {
    let total = finished.total().max(1) as f64 / 1e3;
    let fastest = cluster.hosts.iter().flat_map(|host| &host.cores).map(|core| core.dilation).fold(f64::MAX, f64::min);
    let engines = cluster.profile.place == Place::Engine;
    let of_host = cluster.hosts.iter().zip(&finished.cores).flat_map(|(host, busy)| {
        host.cores.iter().zip(busy).enumerate().map(move |(at, (core, busy))| {
            let softirq = interrupts(cluster, busy) / total;
            CoreCapability {
                host: host.name.clone(),
                core: core.id,
                taken: Reading::Modelled(if engines && host.engines.contains(&at) { 1.0 } else { softirq }),
                softirq: Reading::Modelled(softirq),
                clock: Reading::Modelled(fastest / core.dilation),
                sibling: Reading::Modelled(0.0),
            }
        })
    });
    of_host.collect()
}

#[cfg(test)]
mod tests;
