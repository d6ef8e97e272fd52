//! Paper 002 on this machine: the effect on two ranks of the core that does their hosts' receive work.
//!
//! One rank on each host of a lab, each on a core of its own, over the kernel's TCP. A host's receive work is steered to a
//! core (RPS), ranks stay: a [`Mapping`] says which ranks share a core with it.

mod page;
mod start;

use std::path::PathBuf;

use launch::installation::Installation;
use linux::lab::{Lab, Options};
use machine::accounting::CoreCost;
use machine::{Bytes, CoreId, Fault, Probe, Result};
use rounds::blocks::{self, Blocks, Plan, Series};
use rounds::clocks::Clocks;
use rounds::estimate::Estimate;
use rounds::statistics::median_interval;
use serde::Serialize;

use start::Starts;

pub use page::page;

machine::named! {
    /// The ranks on a core that does receive work. With two cores there is none without a rank: work that one is spared the
    /// other bears.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Mapping {
        /// Both, each on the core of its own host's receive work.
        On = "both on",
        /// Each on the core of the other host's receive work: equal too, but off its own.
        Off = "both off",
        /// Rank 0 on the core of both hosts' receive work, rank 1 on the other core.
        Mismatched = "one on, one off",
    }
}

impl Mapping {
    /// The core of each host's receive work, where rank 0 is on the first of `cores` and rank 1 on the second.
    fn steering(self, (one, other): (CoreId, CoreId)) -> [CoreId; 2] {
        match self {
            Mapping::On => [one, other],
            Mapping::Off => [other, one],
            Mapping::Mismatched => [one, one],
        }
    }
}

/// Messages one after the other, or one that is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Rate of messages one way, MB/s.
    Stream,
    /// Half a round trip of a message, ns.
    PingPong,
}

/// A pattern at a size, and whether the receiver computes on its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Task {
    pub pattern: Pattern,
    pub works: bool,
    pub size: Bytes,
}

/// Parts of a rank's step, ns.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Times {
    pub computing: f64,
    pub sending: f64,
    pub waiting: f64,
}

impl Times {
    pub fn communication(&self) -> f64 {
        self.sending + self.waiting
    }

    pub fn total(&self) -> f64 {
        self.computing + self.communication()
    }
}

/// A step of a program that computes and exchanges, as LAMMPS does: `MPI_Irecv`, `MPI_Send`, `MPI_Wait`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Exchange {
    /// Extra computing of rank 0, as a share of rank 1's.
    pub imbalance: f64,
    pub ranks: [Times; 2],
}

impl Exchange {
    fn mean(&self, of: fn(&Times) -> f64) -> f64 {
        (of(&self.ranks[0]) + of(&self.ranks[1])) / 2.0
    }
}

/// Results of one start of the ranks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Block {
    pub values: Vec<(Task, f64)>,
    pub exchanges: Vec<Exchange>,
    /// Softirqs of both hosts by core, over the whole start; empty if no meter could be opened.
    pub cores: Vec<CoreCost>,
}

impl Block {
    fn of(&self, task: &Task) -> Option<f64> {
        self.values.iter().find(|(of, _)| of == task).map(|(_, value)| *value)
    }

    fn exchange(&self, imbalance: f64) -> Option<&Exchange> {
        self.exchanges.iter().find(|of| of.imbalance == imbalance)
    }

    /// The share of receiving softirqs' time that `core` bore.
    fn received_on(&self, core: CoreId) -> Option<f64> {
        let time = |cost: &CoreCost| cost.net_rx.value().map(|softirq| softirq.time.0 as f64);
        let all: f64 = self.cores.iter().map(time).sum::<Option<f64>>()?;
        let here = self.cores.iter().find(|cost| cost.core == core).and_then(time)?;
        (all > 0.0).then_some(here / all)
    }
}

#[derive(Debug, Clone)]
pub struct Request {
    /// The Open MPI to measure with.
    pub installation: Installation,
    pub rounds: u32,
    /// Cores of rank 0 and of rank 1.
    pub cores: (CoreId, CoreId),
    pub imbalances: Vec<f64>,
    /// This program, whose hidden command enters the hosts of a lab.
    pub command: PathBuf,
}

/// One mapping with all its blocks.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    pub mapping: Mapping,
    /// The core of each host's receive work.
    pub steered: [CoreId; 2],
    #[serde(flatten)]
    pub series: Series<Block>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Findings {
    pub library: String,
    pub rounds: u32,
    pub cores: [CoreId; 2],
    pub imbalances: Vec<f64>,
    /// Bytes of a message of the exchange.
    pub exchanged: Bytes,
    pub mappings: Vec<Measured>,
    pub notes: Vec<String>,
}

impl Findings {
    fn of(&self, mapping: Mapping) -> &Series<Block> {
        let found = self.mappings.iter().find(|measured| measured.mapping == mapping);
        &found.expect("each mapping is measured").series
    }

    /// Median of a value under a mapping.
    fn median(&self, mapping: Mapping, value: impl Fn(&Block) -> Option<f64>) -> Option<Estimate> {
        median_interval(&self.of(mapping).values(value))
    }

    /// Ratio of a value under one mapping to that under another, round by round.
    fn over(&self, one: Mapping, other: Mapping, value: impl Fn(&Block) -> Option<f64>) -> Option<Estimate> {
        self.of(one).over(self.of(other), value).interval()
    }
}

const SEED: u64 = 0x0051_1A11_0000_0009;

/// Sizes of streams and ping-pongs.
pub const SIZES: [Bytes; 4] = [Bytes(8), Bytes(4 << 10), Bytes(64 << 10), Bytes(256 << 10)];

/// Bytes of a message of the exchange (paper 002, 6.2).
pub const EXCHANGED: Bytes = Bytes(256 << 10);

/// Computing of rank 1 per step, ns.
pub const COMPUTING: f64 = 1e6;

/// Measures all, or as much as a signal leaves time for; `progress` is told of each start.
///
/// # Errors
/// No lab can be made, or there is no compiler; a signal came before anything was measured.
pub fn measure(request: &Request, progress: impl FnMut(&str)) -> Result<Findings> {
    let lab = Lab::owned(&Options::default())?;
    let mut starts = Measuring { starts: Starts::new(request, &lab)?, progress };
    let plan = Plan { groups: vec![Mapping::ALL.len()], rounds: request.rounds, seed: SEED };
    let (all, _) = blocks::conduct(&mut starts, &plan, |_, _| true);
    if all.iter().all(|series| series.blocks.is_empty() && series.failures.is_empty()) {
        let cause = "a signal ended it before anything was measured";
        return Err(Fault::new("plimsoll bench mapping", cause, "run it again"));
    }
    let measured = |(mapping, series): (Mapping, Series<Block>)| Measured {
        mapping,
        steered: mapping.steering(request.cores),
        series,
    };
    Ok(Findings {
        library: request.installation.to_string(),
        rounds: request.rounds,
        cores: request.cores.into(),
        imbalances: request.imbalances.clone(),
        exchanged: EXCHANGED,
        mappings: Mapping::ALL.into_iter().zip(all).map(measured).collect(),
        notes: starts.starts.notes,
    })
}

struct Measuring<'a, P> {
    starts: Starts<'a>,
    progress: P,
}

impl<P: FnMut(&str)> Blocks for Measuring<'_, P> {
    type Block = Block;

    fn block(&mut self, mapping: usize, round: u32) -> Result<Block> {
        let (mapping, rounds) = (Mapping::ALL[mapping], self.starts.request.rounds);
        (self.progress)(&format!("{}, round {} of {rounds}", mapping.name(), round + 1));
        self.starts.run(mapping)
    }

    fn probe(&mut self, _: usize) -> Option<Probe> {
        let (one, other) = self.starts.request.cores;
        crate::probe(one, other)
    }

    fn clocks(&mut self, _: usize) -> Clocks {
        let (one, other) = self.starts.request.cores;
        crate::clocks([one, other])
    }

    fn stopped(&self) -> bool {
        linux::signal::interrupted()
    }
}
