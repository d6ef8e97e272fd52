//! LAMMPS- and GROMACS-like programs of eight ranks (paper 002, section 6).

use super::{Kind, Operation, Phases, operation};

const RANKS: u32 = 8;

/// A step computes, then exchanges `bytes` with each of three peers in turn, both ways of each dimension: receive posted,
/// `MPI_Send`, `MPI_Wait`. Ranks are at the corners of a cube; the peer in the first dimension is that on the other node.
#[derive(Debug, Clone, Copy)]
pub struct Lammps {
    pub steps: u32,
    /// Computing of a step, ns.
    pub computing: u64,
    /// Bytes of a message: 256 KB (6.2).
    pub bytes: u64,
}

impl Phases for Lammps {
    fn ranks(&self) -> u32 {
        RANKS
    }

    fn phase(&self, rank: u32, number: u32, operations: &mut Vec<Operation>) -> bool {
        let (step, within) = (number / 13, number % 13);
        if step >= self.steps {
            return false;
        }
        operations.push(match within.checked_sub(1) {
            None => operation(Kind::Compute, self.computing, 0, 0),
            Some(call) => {
                let kind = if call.is_multiple_of(2) { Kind::Send } else { Kind::Receive };
                operation(kind, self.bytes, rank ^ (1 << (call / 4)), 0)
            }
        });
        true
    }
}

/// A step computes in two halves, and after each passes data round the ring in `pulses`: `MPI_Isend`, and waits. Ranks 6 and 7,
/// which the paper finds idle (6.1), compute less.
#[derive(Debug, Clone, Copy)]
pub struct Gromacs {
    pub steps: u32,
    /// Computing of a step, ns.
    pub computing: u64,
    pub bytes: u64,
    pub pulses: u32,
    /// The share by which ranks 6 and 7 compute less than the others.
    pub idle: f64,
}

impl Phases for Gromacs {
    fn ranks(&self) -> u32 {
        RANKS
    }

    fn waits_for_network(&self) -> bool {
        true
    }

    fn phase(&self, rank: u32, number: u32, operations: &mut Vec<Operation>) -> bool {
        let half = 1 + self.pulses;
        if number / half >= 2 * self.steps {
            return false;
        }
        if number.is_multiple_of(half) {
            let load = if rank >= 6 { 1.0 - self.idle } else { 1.0 };
            operations.push(operation(Kind::Compute, (self.computing as f64 * load / 2.0) as u64, 0, 0));
        } else {
            operations.push(operation(Kind::Send, self.bytes, (rank + 1) % RANKS, 0));
            operations.push(operation(Kind::Receive, self.bytes, (rank + RANKS - 1) % RANKS, 0));
        }
        true
    }
}
