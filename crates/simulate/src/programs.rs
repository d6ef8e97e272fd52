//! Programs defined by rules, for any number of ranks; only each rank's progress is stored.

use std::io::{self, Write};

use rounds::random::Random;

use super::{Kind, Operation, Program};

mod applications;
mod dynamics;
mod netpipe;
mod repeated;

pub use applications::{Fluent, Lulesh, Milc};
pub use dynamics::{Gromacs, Lammps};
pub use netpipe::{Bidirectional, Stream};
pub use repeated::Repeated;

/// A program whose ranks go through phases: the operations of a phase begin when all of the one before are over.
pub trait Phases {
    fn ranks(&self) -> u32;

    /// Appends the operations of phase `number` of `rank`, at least one. `false`: the program was over before.
    fn phase(&self, rank: u32, number: u32, operations: &mut Vec<Operation>) -> bool;

    /// The answer of [`Program::waits_for_network`].
    fn waits_for_network(&self) -> bool {
        false
    }
}

impl<P: Phases + ?Sized> Phases for &P {
    fn ranks(&self) -> u32 {
        (**self).ranks()
    }

    fn phase(&self, rank: u32, number: u32, operations: &mut Vec<Operation>) -> bool {
        (**self).phase(rank, number, operations)
    }

    fn waits_for_network(&self) -> bool {
        (**self).waits_for_network()
    }
}

/// A program that hands out phases as they become free; 8 bytes a rank.
#[derive(Debug, Clone)]
pub struct Lazy<P> {
    phases: P,
    /// By rank: its next phase, and how many operations of the present one are not over.
    ranks: Vec<(u32, u32)>,
}

impl<P: Phases> Lazy<P> {
    pub fn of(phases: P) -> Self {
        let ranks = vec![(0, 0); phases.ranks() as usize];
        Lazy { phases, ranks }
    }
}

impl<P: Phases> Program for Lazy<P> {
    fn ranks(&self) -> u32 {
        self.phases.ranks()
    }

    fn waits_for_network(&self) -> bool {
        self.phases.waits_for_network()
    }

    fn begin(&mut self, rank: u32, free: &mut Vec<Operation>) {
        let (next, left) = &mut self.ranks[rank as usize];
        let before = free.len();
        if self.phases.phase(rank, *next, free) {
            *next += 1;
            *left = (free.len() - before) as u32;
        }
    }

    fn started(&mut self, _: u32, _: u32, _: &mut Vec<Operation>) {}

    fn over(&mut self, rank: u32, _: u32, free: &mut Vec<Operation>) {
        let left = &mut self.ranks[rank as usize].1;
        *left -= 1;
        if *left == 0 {
            self.begin(rank, free);
        }
    }
}

/// Writes a program as GOAL.
///
/// # Errors
/// The errors of `out`.
pub fn write(program: &impl Phases, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "num_ranks {}", program.ranks())?;
    let mut operations = Vec::new();
    for rank in 0..program.ranks() {
        writeln!(out, "rank {rank} {{")?;
        let (mut before, mut next) = (0..0, 0);
        for number in 0.. {
            operations.clear();
            if !program.phase(rank, number, &mut operations) {
                break;
            }
            let begun = next;
            for Operation { kind, amount, peer, tag, .. } in &operations {
                match kind {
                    Kind::Send => writeln!(out, "l{next}: send {amount}b to {peer} tag {tag}")?,
                    Kind::Receive => writeln!(out, "l{next}: recv {amount}b from {peer} tag {tag}")?,
                    Kind::Compute => writeln!(out, "l{next}: calc {amount}")?,
                }
                for earlier in before.clone() {
                    writeln!(out, "l{next} requires l{earlier}")?;
                }
                next += 1;
            }
            before = begun..next;
        }
        writeln!(out, "}}")?;
    }
    Ok(())
}

fn operation(kind: Kind, amount: u64, peer: u32, tag: u32) -> Operation {
    Operation { kind, amount, peer, tag, number: 0, cpu: 0, nic: 0 }
}

/// Computing that takes up to `longer` more in a step of a rank, evenly distributed.
fn uneven(computing: u64, longer: u64, seed: u64, rank: u32, step: u32) -> Operation {
    let mut random = Random::stream(seed, u64::from(step) << 32 | u64::from(rank));
    operation(Kind::Compute, computing + random.below(longer as usize + 1) as u64, 0, 0)
}

/// Two ranks that answer each other.
#[derive(Debug, Clone, Copy)]
pub struct PingPong {
    pub bytes: u64,
    pub rounds: u32,
}

impl Phases for PingPong {
    fn ranks(&self) -> u32 {
        2
    }

    fn phase(&self, rank: u32, number: u32, operations: &mut Vec<Operation>) -> bool {
        let kind = if number % 2 == rank { Kind::Send } else { Kind::Receive };
        let more = number / 2 < self.rounds;
        operations.extend(more.then(|| operation(kind, self.bytes, 1 - rank, 0)));
        more
    }
}

/// A message that goes from rank to rank; `messages` of them follow each other.
#[derive(Debug, Clone, Copy)]
pub struct Pipeline {
    pub ranks: u32,
    pub bytes: u64,
    pub messages: u32,
}

impl Phases for Pipeline {
    fn ranks(&self) -> u32 {
        self.ranks
    }

    fn phase(&self, rank: u32, number: u32, operations: &mut Vec<Operation>) -> bool {
        let (receives, sends) = (rank > 0, rank + 1 < self.ranks);
        let each = u32::from(receives) + u32::from(sends);
        if each == 0 || number / each >= self.messages {
            return false;
        }
        operations.push(match receives && number.is_multiple_of(each) {
            true => operation(Kind::Receive, self.bytes, rank - 1, 0),
            false => operation(Kind::Send, self.bytes, rank + 1, 0),
        });
        true
    }
}

/// All ranks send to rank 0 at once.
#[derive(Debug, Clone, Copy)]
pub struct Gather {
    pub ranks: u32,
    pub bytes: u64,
}

impl Phases for Gather {
    fn ranks(&self) -> u32 {
        self.ranks
    }

    fn phase(&self, rank: u32, number: u32, operations: &mut Vec<Operation>) -> bool {
        if number > 0 || self.ranks < 2 {
            return false;
        }
        match rank {
            0 => operations.extend((1..self.ranks).map(|peer| operation(Kind::Receive, self.bytes, peer, 0))),
            _ => operations.push(operation(Kind::Send, self.bytes, 0, 0)),
        }
        true
    }
}

/// A torus of ranks: each step they compute, swap borders with both neighbours of each dimension, and may sum 8 bytes over
/// all: in pairs at doubling distances; ranks beyond the last power of two hand theirs to a partner first.
#[derive(Debug, Clone, Default)]
pub struct Halo {
    /// Ranks of each dimension.
    pub extents: Vec<u32>,
    pub steps: u32,
    /// Bytes of a border.
    pub bytes: u64,
    /// Computing of a step in nanoseconds, and the most by which some ranks compute longer in some steps: evenly
    /// distributed, by `seed`.
    pub computing: u64,
    pub uneven: u64,
    pub seed: u64,
    pub sum: bool,
}

impl Halo {
    /// `ranks` as `dimensions` factors, as near to each other as their prime factors allow by turns.
    pub fn extents(ranks: u32, dimensions: usize) -> Vec<u32> {
        let mut extents = vec![1; dimensions];
        let (mut left, mut factors) = (ranks, Vec::new());
        for factor in 2.. {
            if factor * factor > left {
                break;
            }
            while left.is_multiple_of(factor) {
                factors.push(factor);
                left /= factor;
            }
        }
        factors.extend((left > 1).then_some(left));
        for factor in factors.into_iter().rev() {
            if let Some(least) = extents.iter_mut().min() {
                *least *= factor;
            }
        }
        extents
    }

    /// The neighbours of a rank, first the lower one: one pair for each dimension of more than one rank.
    fn neighbours(&self, rank: u32) -> impl Iterator<Item = (u32, u32)> {
        let mut stride = 1;
        self.extents.iter().filter_map(move |extent| {
            let own = rank / stride % extent;
            let at = |place: u32| rank - own * stride + place * stride;
            let pair = (at((own + extent - 1) % extent), at((own + 1) % extent));
            stride *= extent;
            (*extent > 1).then_some(pair)
        })
    }

    fn compute(&self, rank: u32, step: u32) -> Operation {
        uneven(self.computing, self.uneven, self.seed, rank, step)
    }

    fn borders(&self, rank: u32, operations: &mut Vec<Operation>) {
        for (place, (lower, upper)) in self.neighbours(rank).enumerate() {
            let (up, down) = (2 * place as u32, 2 * place as u32 + 1);
            operations.push(operation(Kind::Receive, self.bytes, lower, up));
            operations.push(operation(Kind::Receive, self.bytes, upper, down));
            operations.push(operation(Kind::Send, self.bytes, lower, down));
            operations.push(operation(Kind::Send, self.bytes, upper, up));
        }
    }

    /// The number of phases of the sum for a rank.
    fn rounds(&self, rank: u32) -> u32 {
        let ranks = self.ranks();
        let doubling = ranks.ilog2();
        let beyond = ranks - (1 << doubling);
        match () {
            () if !self.sum => 0,
            () if rank >= 1 << doubling => 2,
            () if rank < beyond => doubling + 2,
            () => doubling,
        }
    }

    fn summing(&self, rank: u32, round: u32, operations: &mut Vec<Operation>) {
        let tag = 2 * self.extents.len() as u32;
        let doubling = self.ranks().ilog2();
        let within = 1 << doubling;
        let mut put = |kind, peer| operations.push(operation(kind, 8, peer, tag));
        let partnered = u32::from(rank + within < self.ranks());
        if rank >= within {
            put(if round == 0 { Kind::Send } else { Kind::Receive }, rank - within);
        } else if partnered == 1 && round == 0 {
            put(Kind::Receive, rank + within);
        } else if round - partnered == doubling {
            put(Kind::Send, rank + within);
        } else {
            let peer = rank ^ (1 << (round - partnered));
            put(Kind::Send, peer);
            put(Kind::Receive, peer);
        }
    }
}

impl Phases for Halo {
    fn ranks(&self) -> u32 {
        self.extents.iter().product()
    }

    fn phase(&self, rank: u32, number: u32, operations: &mut Vec<Operation>) -> bool {
        let borders = u32::from(self.ranks() > 1);
        let each = 1 + borders + self.rounds(rank);
        let (step, within) = (number / each, number % each);
        if step >= self.steps {
            return false;
        }
        if within == 0 {
            operations.push(self.compute(rank, step));
        } else if within <= borders {
            self.borders(rank, operations);
        } else {
            self.summing(rank, within - 1 - borders, operations);
        }
        true
    }
}
