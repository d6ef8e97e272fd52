//! LAMMPS- and GROMACS-like programs of eight ranks (paper 002, section 6).

use super::{Kind, Operation, Phases, operation, uneven};

const RANKS: u32 = 8;

/// A step computes, sends forces home and atoms' places out. Ranks are at the corners of a cube in the order of `MPI_Cart_create`,
/// so that each has one peer a dimension, and that of the last on the other node. Forces go from the last dimension to the
/// first, places from the first to the last, `bytes` twice a dimension, once each way: receive posted, `MPI_Send`, `MPI_Wait`.
/// The cheap integration between forces and places is left out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lammps {
    pub steps: u32,
    /// Computing of a step in nanoseconds, and the most by which a rank computes longer in a step: evenly distributed.
    pub computing: u64,
    pub uneven: u64,
    /// Bytes of a message: 256 KB (6.2).
    pub bytes: u64,
}

impl Lammps {
    /// Phases of a step: computing, then send and receive of twelve exchanges.
    pub const PHASES: u32 = 25;
}

impl Phases for Lammps {
    fn ranks(&self) -> u32 {
        RANKS
    }

    fn phase(&self, rank: u32, number: u32, operations: &mut Vec<Operation>) -> bool {
        let (step, within) = (number / Lammps::PHASES, number % Lammps::PHASES);
        if step >= self.steps {
            return false;
        }
        operations.push(match within.checked_sub(1) {
            None => uneven(self.computing, self.uneven, 0, rank, step),
            Some(call) => {
                let kind = if call.is_multiple_of(2) { Kind::Send } else { Kind::Receive };
                // Dimensions 2, 1, 0 and back, two exchanges each; the stride of the last is 1.
                let stride = [1, 2, 4, 4, 2, 1][(call / 4) as usize];
                operation(kind, self.bytes, rank ^ stride, 0)
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
