//! Other mappings of ranks to hosts and cores.
//!
//! A mapped graph has the calls of the recorded one; messages and gatherings are within a host or between hosts as its ranks
//! are. How many trips a gathering takes stays, since its usual algorithm does not ask where ranks are.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use machine::{Fault, Result};

use crate::graph::{CallId, Class, Graph, Kind, Lane, NO_CALL, Reach, Step};
use crate::lever::Unknown;
use crate::model::Prices;

/// Places of the ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct Mapping {
    /// By rank: its host.
    pub hosts: Vec<u32>,
    /// By rank: which rank was recorded on its core; `None`: none was.
    pub cores: Vec<Option<u32>>,
    /// By rank: the speed of its core over that of the core it was recorded on.
    pub capability: Vec<f64>,
    /// By rank: network softirqs on the core that it was recorded on, ns; `None`: nobody sampled them. They stay with the core.
    pub softirqs: Vec<Option<f64>>,
    /// By rank: softirqs on the core that it gets, ns; empty: those of `cores`, since softirqs stay with their cores.
    pub steered: Vec<Option<f64>>,
    /// By rank: the share of its host's softirqs that is done on the core that it has ([`crate::sockets`]); empty: as recorded.
    pub shares: Vec<f64>,
    /// By rank, beside these: whether it is far from the cores that do its host's; empty: none is.
    pub far: Vec<bool>,
    /// The least and the most of the difference in capability that stays, as an exponent: the load of a core while it was
    /// sampled may be another in a later run. 1 and 1: it is known.
    pub stays: (f64, f64),
}

/// [`Mapping::stays`] of capabilities that were sampled in one run.
pub const SAMPLED: (f64, f64) = (0.5, 1.25);

/// Ranks by host, in the notation `0,2/1,3` or `0-3/4-7`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts(pub Vec<Vec<u32>>);

impl std::str::FromStr for Hosts {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Hosts> {
        let range = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let (first, last) = (first.trim().parse::<u32>().ok()?, last.trim().parse::<u32>().ok()?);
            (first <= last && last < MOST_RANKS).then_some(first..=last)
        };
        let host =
            |text: &str| Some(text.split(',').map(range).collect::<Option<Vec<_>>>()?.into_iter().flatten().collect());
        let hosts = text.split('/').map(host).collect::<Option<_>>();
        hosts.map(Hosts).ok_or_else(|| {
            let next = "write the ranks of each host and / between hosts: 0,2/1,3 or 0-3/4-7";
            Fault::new(format!("mapping '{text}'"), "it is no list of ranks by host", next)
        })
    }
}

impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = |ranks: &Vec<u32>| ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        f.write_str(&self.0.iter().map(host).collect::<Vec<_>>().join("/"))
    }
}

impl Hosts {
    /// Ranks by host, from the host of each rank; the host of rank 0 first.
    pub fn of(hosts: &[u32]) -> Hosts {
        let mut seen: Vec<u32> = Vec::new();
        let mut of: Vec<Vec<u32>> = Vec::new();
        for (rank, host) in (0u32..).zip(hosts) {
            let at = seen.iter().position(|seen| seen == host).unwrap_or_else(|| {
                seen.push(*host);
                of.push(Vec::new());
                of.len() - 1
            });
            of[at].push(rank);
        }
        Hosts(of)
    }
}

const MOST_RANKS: u32 = 1 << 24;

impl Mapping {
    /// The mapping of the recorded run.
    pub fn recorded(graph: &Graph) -> Mapping {
        let ranks = graph.hosts.len();
        Mapping {
            hosts: graph.hosts.clone(),
            cores: (0..ranks as u32).map(Some).collect(),
            capability: vec![1.0; ranks],
            softirqs: vec![None; ranks],
            steered: Vec::new(),
            shares: Vec::new(),
            far: Vec::new(),
            stays: (1.0, 1.0),
        }
    }

    /// A mapping of ranks by host. The n-th of a host has the core that its n-th rank was recorded on.
    ///
    /// # Errors
    /// A rank is not there, or twice.
    pub fn on(graph: &Graph, hosts: &Hosts) -> Result<Mapping> {
        let ranks = graph.hosts.len();
        let mut mapping = Mapping { cores: vec![None; ranks], ..Mapping::recorded(graph) };
        let mut seen = vec![false; ranks];
        for (host, of) in (0u32..).zip(&hosts.0) {
            let mut cores = (0u32..).zip(&graph.hosts).filter(|(_, recorded)| **recorded == host).map(|(rank, _)| rank);
            for rank in of {
                let at = *rank as usize;
                if at >= ranks || std::mem::replace(&mut seen[at], true) {
                    let cause =
                        if at >= ranks { format!("there are {ranks} ranks") } else { "it is there twice".into() };
                    return Err(Fault::new(
                        format!("rank {rank} of the mapping"),
                        cause,
                        "name each rank once, from 0",
                    ));
                }
                (mapping.hosts[at], mapping.cores[at]) = (host, cores.next());
            }
        }
        match seen.iter().position(|seen| !seen) {
            Some(rank) => {
                Err(Fault::new(format!("rank {rank}"), "the mapping has no host for it", "name each rank once, from 0"))
            }
            None => Ok(mapping),
        }
    }

    /// The mapping of another recording of the program, as [`Mapping::on`]; `None`: the same ranks share hosts in both, or
    /// it is of other ranks.
    pub fn like(graph: &Graph, other: &Graph) -> Option<Mapping> {
        let hosts = Hosts::of(&other.hosts);
        Mapping::on(graph, &hosts).ok().filter(|_| hosts != Hosts::of(&graph.hosts))
    }

    fn rank(&self, rank: u32) -> Result<usize> {
        let ranks = self.hosts.len();
        let known = (rank as usize) < ranks;
        known
            .then_some(rank as usize)
            .ok_or_else(|| Fault::new(format!("rank {rank}"), format!("there are {ranks} ranks"), "name one from 0"))
    }

    /// The mapping with two ranks exchanged.
    ///
    /// # Errors
    /// One of them is not there.
    pub fn swapped(mut self, one: u32, other: u32) -> Result<Mapping> {
        let (one, other) = (self.rank(one)?, self.rank(other)?);
        self.hosts.swap(one, other);
        self.cores.swap(one, other);
        Ok(self)
    }

    /// The mapping with a rank on a core of `capability` over that of its own.
    ///
    /// # Errors
    /// The rank is not there.
    pub fn capable(mut self, rank: u32, capability: f64) -> Result<Mapping> {
        let at = self.rank(rank)?;
        self.capability[at] = capability;
        Ok(self)
    }

    /// Ranks with another core, where no softirqs were sampled on it or on the recorded one.
    pub fn unsampled(&self) -> Vec<u32> {
        self.otherwise().filter(|(_, both)| both.is_none()).map(|(rank, _)| rank as u32).collect()
    }

    /// Ranks with other softirqs than recorded, on another core or by steering: those of the recorded core, and of the one
    /// that they have.
    fn otherwise(&self) -> impl Iterator<Item = (usize, Option<(f64, f64)>)> {
        (0..).zip(&self.cores).filter_map(|(rank, core)| {
            let has = match self.steered.get(rank) {
                Some(steered) => *steered,
                None if *core == Some(rank as u32) => return None,
                None => core.and_then(|core| self.softirqs[core as usize]),
            };
            Some((rank, self.softirqs[rank].zip(has)))
        })
    }

    /// By rank: what computing takes over what was recorded, where the part `inside` of softirqs fell into it, without those that
    /// messages account for, by host the part `of_messages`; empty: none.
    /// ```text
    /// c' = (c - inside x softirqs of its core) / capability + inside x softirqs of the other core
    /// ```
    pub(crate) fn computing(&self, graph: &Graph, of_messages: &[f64], unknown: &Unknown) -> Vec<f64> {
        let inside = unknown.softirqs_inside;
        let stays = self.stays.0 + unknown.capability_stays * (self.stays.1 - self.stays.0);
        let others = |host: u32| 1.0 - of_messages.get(host as usize).unwrap_or(&0.0);
        let mut factors: Vec<f64> = self.capability.iter().map(|capability| capability.powf(-stays)).collect();
        for (rank, both) in self.otherwise() {
            let Some((own, other)) = both else { continue };
            let (own, other) = (own * others(graph.hosts[rank]), other * others(self.hosts[rank]));
            let lanes = graph.lanes.iter().filter(|lane| lane.rank as usize == rank);
            let gaps = |lane: &Lane| (lane.first..lane.end).map(|call| graph.calls.gap.get(call)).sum::<i64>();
            let computing = lanes.map(gaps).sum::<i64>() as f64;
            if computing > 0.0 {
                let own = (inside * own).min(computing);
                factors[rank] = ((computing - own) * factors[rank] + inside * other) / computing;
            }
        }
        factors
    }

    /// The graph with its ranks in these places.
    pub fn of(&self, graph: &Graph) -> Graph {
        let mut kinds = Kinds { recorded: &graph.kinds, places: vec![[None; 2]; graph.kinds.len()], used: Vec::new() };
        let mut mapped = graph.clone();
        // Ends that were not recorded have no call.
        let there = |call: CallId| call != NO_CALL;
        let host = |call: CallId| self.hosts[graph.lanes[graph.lane(call)].rank as usize];
        for message in &mut mapped.messages {
            let apart =
                there(message.sender) && there(message.receiver) && host(message.sender) != host(message.receiver);
            message.kind = kinds.at(message.kind, apart);
        }
        for gathering in &mut mapped.gatherings {
            let first = gathering.first as usize;
            let members = graph.members[first..first + gathering.members as usize].iter();
            let mut hosts = members.filter(|call| there(**call)).map(|call| host(*call));
            let one = hosts.next();
            let apart = hosts.any(|host| Some(host) != one);
            gathering.kind = kinds.at(gathering.kind, apart);
        }
        mapped.kinds = kinds.used;
        mapped.hosts.clone_from(&self.hosts);
        mapped
    }

    /// The recorded and the mapped graph, with one class in both for all calls that are of one class in both.
    pub(crate) fn classified(&self, graph: &Graph) -> [Graph; 2] {
        let mut mapped = self.of(graph);
        let (mut places, mut classes) = (HashMap::new(), Vec::new());
        let class = |(call, was): (CallId, &u32)| {
            let reach = mapped.reach(call);
            *places.entry((*was, reach)).or_insert_with(|| {
                classes.push(Class { reach, ..graph.classes[*was as usize] });
                classes.len() as u32 - 1
            })
        };
        let class: Vec<u32> = (0..).zip(&graph.calls.class).map(class).collect();
        Arc::make_mut(&mut mapped.calls).class = class;
        mapped.classes = classes;
        let mut recorded = graph.clone();
        (recorded.calls, recorded.classes) = (mapped.calls.clone(), mapped.classes.clone());
        [recorded, mapped]
    }
}

/// The kinds that a mapped graph uses.
struct Kinds<'k> {
    recorded: &'k [Kind],
    /// By recorded kind: its place among the used kinds, within a host and between hosts.
    places: Vec<[Option<u32>; 2]>,
    used: Vec<Kind>,
}

impl Kinds<'_> {
    fn at(&mut self, kind: u32, apart: bool) -> u32 {
        let (recorded, used) = (self.recorded[kind as usize], &mut self.used);
        *self.places[kind as usize][usize::from(apart)].get_or_insert_with(|| {
            used.push(Kind { reach: if apart { Reach::Between } else { Reach::Host }, ..recorded });
            used.len() as u32 - 1
        })
    }
}

/// By class: the trips that its calls wait for in `after` over those in `before`; the graphs have the same calls.
pub(crate) fn ratios(before: (&Graph, &Prices), after: (&Graph, &Prices)) -> Vec<f64> {
    let (graph, sums) = (before.0, |(graph, prices): (&Graph, &Prices)| {
        let mut sums = vec![0i64; graph.classes.len()];
        for call in 0..graph.len() as u32 {
            let kind = |step| match step {
                Step::Sent(message) | Step::Received(message) => Some(graph.messages[message as usize].kind),
                Step::Leave(member) => Some(graph.gatherings[graph.gathering(member) as usize].kind),
                Step::Send(_) | Step::Post(_) | Step::Enter(_) => None,
            };
            let trips = graph.steps(call).filter_map(kind).map(|kind| prices.kinds[kind as usize].trip);
            sums[graph.calls.class[call as usize] as usize] += trips.sum::<i64>();
        }
        sums
    });
    let both = sums(before).into_iter().zip(sums(after)).zip(&graph.classes);
    both.map(|((before, after), class)| if class.opaque || before == 0 { 1.0 } else { after as f64 / before as f64 })
        .collect()
}

#[cfg(test)]
mod tests;
