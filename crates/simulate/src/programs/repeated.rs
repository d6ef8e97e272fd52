//! Ranks that repeat phases of their own.

use super::{Operation, Phases};

/// Each rank goes through its phases `steps` times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeated {
    /// By rank: its phases, each a list of operations.
    pub phases: Vec<Vec<Vec<Operation>>>,
    pub steps: u32,
    /// The answer of [`Phases::waits_for_network`].
    pub waits_for_network: bool,
}

impl Phases for Repeated {
    fn ranks(&self) -> u32 {
        self.phases.len() as u32
    }

    fn waits_for_network(&self) -> bool {
        self.waits_for_network
    }

    fn phase(&self, rank: u32, number: u32, operations: &mut Vec<Operation>) -> bool {
        let own = &self.phases[rank as usize];
        let more = number < self.steps * own.len() as u32;
        if more {
            operations.extend(&own[number as usize % own.len()]);
        }
        more
    }
}
