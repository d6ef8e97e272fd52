//! The result of a run, or the operations that never ended in it.

use std::cmp::Reverse;

use machine::count;
use machine::fault::{Fault, Result};

use super::super::super::ANY;
use super::super::channel::Part;
use super::super::matching::Half;
use super::super::resources::Resources;
use super::super::{Finished, Time};
use super::{Engine, Event, Rank};

impl Engine<'_> {
    pub(super) fn finished(mut self) -> Result<Finished> {
        for rank in 0..self.ranks.len() as u32 {
            self.does(rank, None);
        }
        let peer = |peer: u32| if peer == ANY { "any rank".to_owned() } else { format!("rank {peer}") };
        for (rank, of) in self.ranks.iter().enumerate() {
            if let Some(half) = of.matching.posted.first() {
                let cause = format!("its receive from {} gets no message", peer(half.peer));
                return Err(Fault::new(format!("rank {rank}"), cause, "add the send, or compare tags"));
            }
            if let Some(half) = of.matching.unexpected.first() {
                let bytes = count::grouped(self.messages[half.which].bytes);
                let cause = format!("nothing receives the message of {bytes} B from {}", peer(half.peer));
                return Err(Fault::new(format!("rank {rank}"), cause, "add the receive, or compare tags"));
            }
        }
        if let Some(rank) = self.program.stuck() {
            let cause = "an operation never begins, since operations require each other";
            return Err(Fault::new(format!("rank {rank}"), cause, "break the circle of requirements"));
        }
        let of_rank = |of: &Rank| {
            of.computes.capacity() * size_of::<(u32, Time, u32)>()
                + of.posting.capacity() * size_of::<u32>()
                + (of.sending.capacity() + of.arrived.capacity()) * size_of::<(u32, u32, Part)>()
                + (of.matching.posted.capacity() + of.matching.unexpected.capacity()) * size_of::<Half>()
        };
        let hosts: usize = self.hosts.iter().map(|host| size_of_val(host.cores.as_slice())).sum();
        self.memory = self.ranks.capacity() * size_of::<Rank>()
            + self.ranks.iter().map(of_rank).sum::<usize>()
            + self.hosts.capacity() * size_of::<Resources>()
            + hosts
            + self.messages.memory()
            + self.connections.memory()
            + self.events.capacity() * size_of::<Reverse<(Time, u64, Event)>>();
        Ok(Finished {
            ranks: self.ranks.iter().map(|of| of.end).collect(),
            splits: self.ranks.iter().map(|of| of.split).collect(),
            cores: self.hosts.iter().map(|host| host.cores.iter().map(|core| core.busy).collect()).collect(),
            devices: self.hosts.iter().map(|host| host.device_busy).collect(),
            charged: self.charged,
            messages: self.sent_messages,
            sent: self.sent,
            received: self.received,
            memory: self.memory,
        })
    }
}
