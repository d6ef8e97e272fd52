//! NetPIPE's patterns other than its ping-pong ([`super::PingPong`]).

use super::{Kind, Operation, Phases, operation};

/// Rank 0 sends messages one after the other to rank 1, which answers the last, as OSU's bandwidth test has it.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    pub bytes: u64,
    pub messages: u32,
}

impl Phases for Stream {
    fn ranks(&self) -> u32 {
        2
    }

    fn phase(&self, rank: u32, number: u32, operations: &mut Vec<Operation>) -> bool {
        let sends = (rank == 0) == (number < self.messages);
        let kind = if sends { Kind::Send } else { Kind::Receive };
        let bytes = if number < self.messages { self.bytes } else { 1 };
        operations.extend((number <= self.messages).then(|| operation(kind, bytes, 1 - rank, 0)));
        number <= self.messages
    }
}

/// Both ranks send and receive at once, with the receive posted before.
#[derive(Debug, Clone, Copy)]
pub struct Bidirectional {
    pub bytes: u64,
    pub rounds: u32,
}

impl Phases for Bidirectional {
    fn ranks(&self) -> u32 {
        2
    }

    fn phase(&self, rank: u32, number: u32, operations: &mut Vec<Operation>) -> bool {
        let more = number < self.rounds;
        let both = [Kind::Receive, Kind::Send].map(|kind| operation(kind, self.bytes, 1 - rank, 0));
        operations.extend(both.into_iter().filter(|_| more));
        more
    }
}
