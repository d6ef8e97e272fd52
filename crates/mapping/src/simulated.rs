//! A simulated cluster as a problem, with its simulation as the judge: mappings are evaluated without a real machine.

use std::collections::BTreeMap;

use machine::Result;
use simulate::cluster::profile::Place;
use simulate::cluster::{Cluster, Finished, Seat, simulate};
use simulate::{Kind, Operation, Program};

use crate::problem::{Load, Problem, Spot, Talk};
use crate::search::Judge;

/// Most messages that a search simulates, over all mappings.
const SIMULATED_MESSAGES: u64 = 4_000_000;

/// A program on a cluster. `start` returns the program from its beginning.
pub struct Simulated<'p> {
    cluster: Cluster,
    start: Box<dyn Fn() -> Box<dyn Program + 'p> + Sync + 'p>,
    /// The result under the cluster's own mapping.
    finished: Finished,
    sent: BTreeMap<(u32, u32), (u64, u64)>,
    seats: Vec<Seat>,
}

impl<'p> Simulated<'p> {
    /// Runs the program under the mapping of `cluster`.
    ///
    /// # Errors
    /// As [`simulate`].
    pub fn of(cluster: Cluster, start: impl Fn() -> Box<dyn Program + 'p> + Sync + 'p) -> Result<Simulated<'p>> {
        let mut counted = Counted { program: start(), sent: BTreeMap::new() };
        let finished = simulate(&mut counted, &cluster)?;
        let engine = |host: &simulate::cluster::Host, core: &usize| {
            cluster.profile.place == Place::Engine && host.engines.contains(core)
        };
        let cores = |(at, host): (usize, &simulate::cluster::Host)| {
            (0..host.cores.len())
                .filter(|core| !engine(host, core))
                .map(|core| Seat { host: at, core })
                .collect::<Vec<_>>()
        };
        let seats = cluster.hosts.iter().enumerate().flat_map(cores).collect();
        let sent = counted.sent;
        Ok(Simulated { cluster, start: Box::new(start), finished, sent, seats })
    }

    /// The mapping problem of the program.
    pub fn problem(&self, across: bool) -> Problem {
        let Simulated { cluster, finished, .. } = self;
        let total = finished.total().max(1) as f64;
        let spot = |seat: &Seat| {
            let core = &cluster.hosts[seat.host].cores[seat.core];
            let softirq = finished.cores[seat.host][seat.core].protocol as f64 / total;
            let interrupts = cluster.hosts[seat.host].interrupts;
            let far = cluster.profile.place == Place::Softirq
                && core.package != cluster.hosts[seat.host].cores[interrupts].package;
            Spot { host: seat.host as u32, core: core.id, softirq, free: 1.0 / core.dilation, far }
        };
        let spots: Vec<Spot> = self.seats.iter().map(spot).collect();
        let seats = self.spots(&cluster.seats);
        let load = |(split, seat): (&simulate::cluster::Split, &u32)| {
            let [computing, sending, _] =
                [split.computing, split.sending, split.waiting].map(|time| time as f64 / total);
            Load { computing: computing / spots[*seat as usize].dilation(), fixed: sending }
        };
        let ranks = finished.splits.iter().zip(&seats).map(load).collect();
        let all = self.sent.values().map(|(_, bytes)| *bytes as f64).sum::<f64>().max(1.0);
        let talk = |(&(one, other), &(messages, bytes)): (&(u32, u32), &(u64, u64))| Talk {
            one,
            other,
            share: bytes as f64 / all,
            mean: bytes as f64 / f64::max(messages as f64, 1.0),
        };
        Problem {
            hosts: cluster.hosts.iter().map(|host| host.name.clone()).collect(),
            talks: self.sent.iter().map(talk).collect(),
            blocked: Vec::new(),
            distances: Vec::new(),
            spots,
            ranks,
            seats,
            across,
            sampled: true,
        }
    }

    /// The spots of these seats in [`Simulated::problem`].
    pub fn spots(&self, seats: &[Seat]) -> Vec<u32> {
        let place = |seat: &Seat| self.seats.iter().position(|of| of == seat).unwrap_or(0) as u32;
        seats.iter().map(place).collect()
    }

    /// The result under the cluster's own mapping.
    pub fn finished(&self) -> &Finished {
        &self.finished
    }

    /// The cluster with its ranks on these spots.
    pub fn cluster(&self, seats: &[u32]) -> Cluster {
        Cluster { seats: seats.iter().map(|spot| self.seats[*spot as usize]).collect(), ..self.cluster.clone() }
    }

    /// Runs the program with its ranks on these spots.
    ///
    /// # Errors
    /// As [`simulate`].
    pub fn run(&self, seats: &[u32]) -> Result<Finished> {
        simulate(&mut *(self.start)(), &self.cluster(seats))
    }
}

impl Judge for Simulated<'_> {
    fn time(&self, seats: &[u32]) -> Result<f64> {
        Ok(self.run(seats)?.total() as f64 / self.finished.total().max(1) as f64)
    }

    fn affordable(&self) -> usize {
        (SIMULATED_MESSAGES / self.finished.messages.max(1)).clamp(8, 4096) as usize
    }
}

/// A wrapper that counts a program's messages by pair of ranks: their number and bytes.
struct Counted<'p> {
    program: Box<dyn Program + 'p>,
    sent: BTreeMap<(u32, u32), (u64, u64)>,
}

impl Counted<'_> {
    fn count(&mut self, rank: u32, new: &[Operation]) {
        for operation in new.iter().filter(|operation| operation.kind == Kind::Send && operation.peer != rank) {
            let pair = (rank.min(operation.peer), rank.max(operation.peer));
            let (messages, bytes) = self.sent.entry(pair).or_default();
            (*messages, *bytes) = (*messages + 1, *bytes + operation.amount);
        }
    }
}

impl Program for Counted<'_> {
    fn ranks(&self) -> u32 {
        self.program.ranks()
    }

    fn places(&self) -> (usize, usize) {
        self.program.places()
    }

    fn begin(&mut self, rank: u32, free: &mut Vec<Operation>) {
        let before = free.len();
        self.program.begin(rank, free);
        self.count(rank, &free[before..]);
    }

    fn started(&mut self, rank: u32, number: u32, free: &mut Vec<Operation>) {
        let before = free.len();
        self.program.started(rank, number, free);
        self.count(rank, &free[before..]);
    }

    fn over(&mut self, rank: u32, number: u32, free: &mut Vec<Operation>) {
        let before = free.len();
        self.program.over(rank, number, free);
        self.count(rank, &free[before..]);
    }

    fn waits_for_network(&self) -> bool {
        self.program.waits_for_network()
    }

    fn stuck(&self) -> Option<u32> {
        self.program.stuck()
    }
}
