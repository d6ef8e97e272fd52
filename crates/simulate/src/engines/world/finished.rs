//! The result of a run, or the operations that never ended in it.

use std::collections::VecDeque;

use engine::{Source, TagSelector};
use machine::count;
use machine::fault::{Fault, Result};

use super::super::Outcome;
use super::{Rank, World};
use crate::Operation;

impl World<'_> {
    pub(super) fn finished(mut self) -> Result<Outcome> {
        let fault = |rank: usize, cause: String, next: &str| Err(Fault::new(format!("rank {rank}"), cause, next));
        if let Some(rank) = self.ranks.iter().position(|rank| rank.engine.queue_lengths().0 > 0) {
            return fault(rank, "a receive of it gets no message".to_owned(), "add the send, or compare tags");
        }
        if let Some(rank) = self.ranks.iter().position(|rank| rank.engine.queue_lengths().1 > 0) {
            let Rank { engine, peers, .. } = &mut self.ranks[rank];
            let message = engine.probe(Source::Any, TagSelector::any());
            let from = message.map_or(0, |message| peers[message.peer.0 as usize].rank);
            let bytes = count::grouped(message.map_or(0, |message| message.length));
            let cause = format!("nothing receives the message of {bytes} B from rank {from}");
            return fault(rank, cause, "add the receive, or compare tags");
        }
        if let Some(rank) = self.program.stuck() {
            let cause = "an operation never begins, since operations require each other".to_owned();
            return fault(rank as usize, cause, "break the circle of requirements");
        }
        if self.outstanding > 0 || !self.is_quiet() {
            let cause = "its messages do not move any more";
            return Err(Fault::new("the program", cause, "report this as a bug of plimsoll"));
        }
        let busy: Vec<u64> = self.cores.iter().map(|core| core.busy).collect();
        let (ranks, engines) = busy.split_at(self.ranks.len() * self.cpus);
        let peers: usize = self.ranks.iter().map(|rank| rank.peers.len()).sum();
        let queues = self.cpus * size_of::<VecDeque<Operation>>();
        Ok(Outcome {
            busy: ranks.to_vec(),
            engines: engines.to_vec(),
            splits: self.ranks.iter().map(|rank| rank.account.split).collect(),
            counters: self.ranks.iter().map(|rank| rank.engine.counters()).collect(),
            memory: self.ranks.len() * (Outcome::IDLE_RANK + queues) + peers * Outcome::PEER,
            ..self.outcome
        })
    }
}
