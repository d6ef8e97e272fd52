//! Random programs and clusters, small enough to try all mappings: tests for a mapper.

use std::collections::BTreeMap;

use machine::{Bytes, CoreId, Result};
use rounds::random::Random;

use super::super::programs::{Halo, Lazy, Phases, Repeated};
use super::super::{Kind, Operation};
use super::profile::{Cost, Place, Profile};
use super::recording::{Recording, record};
use super::{Cluster, Core, Host, Link, Seat, Time, simulate};

/// A program on two hosts, with the mapping under which it is recorded.
#[derive(Debug, Clone)]
pub struct Case {
    /// Pattern, number of ranks, size and place.
    pub name: String,
    pub program: Repeated,
    pub cluster: Cluster,
    /// Whether nothing takes part of a core, all ranks compute alike, and no mapping is better.
    pub balanced: bool,
}

/// The pairs of ranks that exchange messages in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pattern {
    /// With one other rank: `MPI_Send`, then `MPI_Recv`.
    Pairs,
    /// With the ranks at doubling distances, both ways in turn, as LAMMPS does ([`super::super::programs::Lammps`]).
    Cube,
    /// With the next rank of a ring, as GROMACS does ([`super::super::programs::Gromacs`]).
    Ring,
    /// With the neighbours on a line or a plane, all at once.
    Halo,
}

const PATTERNS: [Pattern; 4] = [Pattern::Pairs, Pattern::Cube, Pattern::Ring, Pattern::Halo];

/// One in this number of cases is balanced.
const ONE_OF: usize = 5;

const STEPS: u32 = 8;
const PULSES: usize = 2;

impl Case {
    /// The case of a seed: two hosts of two to four cores, a rank on each.
    ///
    /// # Errors
    /// As [`simulate`].
    pub fn of(seed: u64) -> Result<Case> {
        let mut random = Random::stream(seed, 1);
        let balanced = random.below(ONE_OF) == 0;
        let cores = 2 + random.below(3);
        let ranks = 2 * cores as u32;
        let pattern = PATTERNS[random.below(PATTERNS.len())];
        let bytes = 4096 << random.below(7);
        let computing = logarithmic(&mut random, 2e5, 4e6);
        let loads = loads(&mut random, ranks, balanced);
        let phases = |rank: u32| {
            let load = (computing * loads[rank as usize]) as u64;
            let compute = Operation { kind: Kind::Compute, amount: load, peer: 0, ..message(Kind::Send, 0, 0) };
            let mut phases = vec![vec![compute]];
            phases.extend(exchange(pattern, rank, ranks, bytes));
            phases
        };
        let program = Repeated {
            phases: (0..ranks).map(phases).collect(),
            steps: STEPS,
            waits_for_network: pattern == Pattern::Ring,
        };
        let place = if balanced || random.below(6) == 0 { Place::Device } else { Place::Softirq };
        let mut seats: Vec<Seat> = (0..2 * cores).map(|at| Seat { host: at / cores, core: at % cores }).collect();
        random.shuffle(&mut seats);
        let named = Profile::named("mpich-tcp", &BTreeMap::new()).expect("it is one of PROFILES");
        let profile = Profile {
            place,
            library: logarithmic(&mut random, 65_536.0, 1_048_576.0) as u64,
            socket: logarithmic(&mut random, 32_768.0, 524_288.0) as u64,
            // The acknowledgement of a receiving device is handled by a device.
            acknowledge: if place == Place::Device { Cost::default() } else { named.acknowledge },
            receive: Cost { byte: named.receive.byte * logarithmic(&mut random, 0.2, 1.0), ..named.receive },
            ..named
        };
        let host = |name: &str| Host {
            name: name.into(),
            cores: (0..cores as u32).map(|id| Core { id: CoreId(id), package: id % 2, dilation: 1.0 }).collect(),
            interrupts: 0,
            engines: Vec::new(),
        };
        let name = format!("{pattern:?} of {ranks}, {}, {place:?}", Bytes(bytes)).to_lowercase();
        let hosts = vec![host("a"), host("b")];
        let link = Link { latency: 10_000_000, byte: 0.8 };
        let cluster = Cluster { hosts, link, profile, seats, slice: 3_000_000_000, clocked: 1.0 };
        let mut case = Case { name, program, cluster, balanced };
        if balanced {
            case.cluster.seats = case.best()?.0;
        }
        Ok(case)
    }

    /// A recording of the run, as a profile would tell it.
    ///
    /// # Errors
    /// As [`record`].
    pub fn record(&self) -> Result<Recording> {
        record(&self.program, &self.cluster)
    }

    /// The time of the program with its ranks on other seats.
    ///
    /// # Errors
    /// As [`simulate`].
    pub fn time(&self, seats: &[Seat]) -> Result<Time> {
        let cluster = Cluster { seats: seats.to_vec(), ..self.cluster.clone() };
        Ok(simulate(&mut Lazy::of(&self.program), &cluster)?.total())
    }

    /// The mapping with the least time, of all that differ.
    ///
    /// # Errors
    /// As [`simulate`].
    pub fn best(&self) -> Result<(Vec<Seat>, Time)> {
        let mut best = (self.cluster.seats.clone(), self.time(&self.cluster.seats)?);
        for seats in mappings(&self.cluster) {
            let time = self.time(&seats)?;
            if time < best.1 {
                best = (seats, time);
            }
        }
        Ok(best)
    }
}

/// All mappings of a rank a core that the simulation can tell apart: of cores that are alike the first takes the lower rank,
/// of hosts that are alike too.
pub fn mappings(cluster: &Cluster) -> Vec<Vec<Seat>> {
    let mut found = Vec::new();
    place(cluster, &mut Vec::new(), &mut found);
    found
}

fn place(cluster: &Cluster, seats: &mut Vec<Seat>, found: &mut Vec<Vec<Seat>>) {
    if seats.len() == cluster.seats.len() {
        return found.push(seats.clone());
    }
    // Hosts without a rank and cores without one, of which the first of each kind has been tried.
    let mut tried = Vec::new();
    for (at, host) in cluster.hosts.iter().enumerate() {
        let kinds: Vec<_> = (0..host.cores.len()).map(|core| kind(cluster, host, core)).collect();
        let empty = seats.iter().all(|seat| seat.host != at);
        for (core, kind) in kinds.iter().enumerate() {
            let seat = Seat { host: at, core };
            let alike = (if empty { None } else { Some(at) }, kinds.clone(), *kind);
            let engine = cluster.profile.place == Place::Engine && host.engines.contains(&core);
            if engine || seats.contains(&seat) || tried.contains(&alike) {
                continue;
            }
            tried.push(alike);
            seats.push(seat);
            place(cluster, seats, found);
            seats.pop();
        }
    }
}

/// Attributes that distinguish cores: clock, distance, and work that takes part of them.
fn kind(cluster: &Cluster, host: &Host, core: usize) -> (u64, bool, usize, u32) {
    let Profile { place, acknowledge, .. } = cluster.profile;
    let interrupts = core == host.interrupts && (place == Place::Softirq || !acknowledge.is_free());
    let (engine, package) = match place {
        Place::Softirq => (0, host.cores[core].package),
        // Each rank has its own engine.
        Place::Engine => (core, host.cores[core].package),
        Place::Rank | Place::Device => (0, 0),
    };
    (host.cores[core].dilation.to_bits(), interrupts, engine, package)
}

/// A value between both, even in the logarithm.
fn logarithmic(random: &mut Random, low: f64, high: f64) -> f64 {
    low * (high / low).powf(random.unit())
}

/// By rank: its computing over the longest one.
fn loads(random: &mut Random, ranks: u32, balanced: bool) -> Vec<f64> {
    let uneven = if balanced { 0.0 } else { 0.7 * random.unit() };
    let few_idle = random.below(2) == 0;
    let idle: Vec<usize> = (0..2).map(|_| random.below(ranks as usize)).collect();
    let of = |rank: u32| match few_idle {
        true => f64::from(u8::from(idle.contains(&(rank as usize)))),
        false => random.unit(),
    };
    (0..ranks).map(of).map(|less| 1.0 - uneven * less).collect()
}

fn message(kind: Kind, bytes: u64, peer: u32) -> Operation {
    Operation { kind, amount: bytes, peer, tag: 0, number: 0, cpu: 0, nic: 0 }
}

/// The phases of a rank after its computing.
fn exchange(pattern: Pattern, rank: u32, ranks: u32, bytes: u64) -> Vec<Vec<Operation>> {
    let blocking = |peer: u32| [Kind::Send, Kind::Receive].map(|kind| vec![message(kind, bytes, peer)]);
    match pattern {
        Pattern::Pairs => blocking(rank ^ 1).into(),
        Pattern::Cube => {
            let distances = (0..).map(|bit| 1 << bit).take_while(|distance| *distance < ranks);
            let peers = distances.map(|distance| rank ^ distance).filter(|peer| *peer < ranks);
            peers.flat_map(|peer| [blocking(peer), blocking(peer)]).flatten().collect()
        }
        Pattern::Ring => {
            let (right, left) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
            vec![vec![message(Kind::Send, bytes, right), message(Kind::Receive, bytes, left)]; PULSES]
        }
        Pattern::Halo => {
            let dimensions = if ranks == 6 { 1 } else { 2 };
            let halo = Halo { extents: Halo::extents(ranks, dimensions), steps: 1, bytes, ..Halo::default() };
            let mut borders = Vec::new();
            halo.phase(rank, 1, &mut borders);
            vec![borders]
        }
    }
}

#[cfg(test)]
mod tests;
