//! MILC-, LULESH- and FLUENT-like programs (papers 000 and 004).

use super::{Halo, Kind, Operation, Phases, operation};

/// Conjugate gradients on a 4-D lattice: an iteration gathers borders `gathers` times, each after its share of computing, and
/// sums over all. Paper 000's Table I has 21.5 sends for each sum: two to three gathers of 8 neighbours.
#[derive(Debug, Clone)]
pub struct Milc {
    /// The halo: `steps` are iterations, `computing` and `uneven` are of a gather.
    pub halo: Halo,
    pub gathers: u32,
}

impl Phases for Milc {
    fn ranks(&self) -> u32 {
        self.halo.ranks()
    }

    fn phase(&self, rank: u32, number: u32, operations: &mut Vec<Operation>) -> bool {
        let borders = u32::from(self.ranks() > 1);
        let gather = 1 + borders;
        let each = self.gathers * gather + self.halo.rounds(rank);
        let (step, within) = (number / each, number % each);
        match () {
            () if step >= self.halo.steps => return false,
            () if within >= self.gathers * gather => {
                self.halo.summing(rank, within - self.gathers * gather, operations);
            }
            () if within.is_multiple_of(gather) => {
                operations.push(self.halo.compute(rank, step * self.gathers + within / gather));
            }
            () => self.halo.borders(rank, operations),
        }
        true
    }
}

/// Explicit hydrodynamics on a cube of ranks: an iteration computes, exchanges faces, edges and corners with up to 26
/// neighbours `exchanges` times, and finds the least time step of all. Paper 000's Table I and its 356 calls an iteration of 8
/// ranks make 13.5 sends a rank, which two exchanges with 7 neighbours come near to.
#[derive(Debug, Clone, Copy)]
pub struct Lulesh {
    /// Ranks along an edge of the cube.
    pub edge: u32,
    pub iterations: u32,
    /// Elements along an edge of a rank's own cube: 60 where 8 ranks share 120^3.
    pub elements: u64,
    /// Computing of an iteration, ns.
    pub computing: u64,
    pub exchanges: u32,
}

impl Lulesh {
    fn exchange(&self, rank: u32, operations: &mut Vec<Operation>) {
        let (edge, at) = (self.edge as i64, i64::from(rank));
        let own = [at % edge, at / edge % edge, at / edge / edge];
        for direction in (0..27i64).filter(|direction| *direction != 13) {
            let by = [direction % 3 - 1, direction / 3 % 3 - 1, direction / 9 - 1];
            let other: [i64; 3] = std::array::from_fn(|axis| own[axis] + by[axis]);
            if other.iter().any(|place| !(0..edge).contains(place)) {
                continue;
            }
            let peer = (other[0] + edge * (other[1] + edge * other[2])) as u32;
            // Three fields of 8 bytes on a face, an edge or a corner.
            let along = by.iter().filter(|step| **step == 0).count() as u32;
            let bytes = self.elements.saturating_pow(along).saturating_mul(24);
            operations.push(operation(Kind::Send, bytes, peer, direction as u32));
            operations.push(operation(Kind::Receive, bytes, peer, 26 - direction as u32));
        }
    }
}

impl Phases for Lulesh {
    fn ranks(&self) -> u32 {
        self.edge.pow(3)
    }

    fn phase(&self, rank: u32, number: u32, operations: &mut Vec<Operation>) -> bool {
        let sum = Halo { extents: vec![self.ranks()], sum: true, ..Halo::default() };
        let exchanges = if self.edge > 1 { self.exchanges } else { 0 };
        let each = 1 + exchanges + sum.rounds(rank);
        let (step, within) = (number / each, number % each);
        match within {
            _ if step >= self.iterations => return false,
            0 => operations.push(operation(Kind::Compute, self.computing, 0, 0)),
            _ if within <= exchanges => self.exchange(rank, operations),
            _ => sum.summing(rank, within - 1 - exchanges, operations),
        }
        true
    }
}

/// Strong scaling of a solver: a step computes its cells and passes small messages, as many however few the cells, which is
/// the law of `claims::open` (paper 004's two models). Peers are at doubling distances, in turn.
#[derive(Debug, Clone, Copy)]
pub struct Fluent {
    pub ranks: u32,
    pub steps: u32,
    /// Cells of a rank: 1,070 of Eddy, 285,000 of Truck.
    pub cells: u64,
    /// Computing of a cell, ns; the paper has none.
    pub cell: u64,
    /// Messages of a step; the paper has none.
    pub messages: u32,
    pub bytes: u64,
}

impl Phases for Fluent {
    fn ranks(&self) -> u32 {
        self.ranks
    }

    fn phase(&self, rank: u32, number: u32, operations: &mut Vec<Operation>) -> bool {
        let messages = if self.ranks > 1 { self.messages.min(u32::MAX - 1) } else { 0 };
        let (step, within) = (number / (1 + messages), number % (1 + messages));
        if step >= self.steps {
            return false;
        }
        if within == 0 {
            operations.push(operation(Kind::Compute, self.cells.saturating_mul(self.cell), 0, 0));
            return true;
        }
        let reach = u32::BITS - (self.ranks - 1).leading_zeros();
        let far = (1u32 << ((within - 1) % reach)) % self.ranks;
        let (to, from) = ((rank + far) % self.ranks, (rank + self.ranks - far) % self.ranks);
        operations.push(operation(Kind::Send, self.bytes, to, within));
        operations.push(operation(Kind::Receive, self.bytes, from, within));
        true
    }
}
