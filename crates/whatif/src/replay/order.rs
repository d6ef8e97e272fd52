//! The order of service of another replay, imposed on the servers of this one.
//!
//! Engines' cores and links serve messages in the order in which these began to move in that replay, and wait for those that
//! come late. How the time differs from that of the order in which they come shows how much an answer depends on order.

use std::collections::HashMap;

use super::{Buffer, Conditions, Replay, WAITS};
use crate::graph::Graph;
use crate::model::Price;

/// A message that leaves its host (false), or reaches the other one (true).
type Job = (u32, bool);

/// Queues of jobs: of each host the messages that leave it, and those that reach it. How the two mix on an engine's core is
/// decided anew.
#[derive(Debug)]
pub struct Order {
    queues: Vec<Vec<Job>>,
    /// By queue: the index of its next job.
    next: Vec<usize>,
    /// Jobs that came before their turn, with the time.
    early: HashMap<Job, i64>,
}

fn queues(price: &Price) -> bool {
    price.engine > 0 || price.link > 0
}

fn queue(host: usize, arrives: bool) -> usize {
    2 * host + usize::from(arrives)
}

impl Order {
    /// `began`: when each message began to move in the replay whose order is kept, ps. `None`: nothing queues under
    /// `conditions`, or through finite buffers, which pass parcels that another replay has not.
    pub fn of(graph: &Graph, began: &[i64], conditions: &Conditions) -> Option<Order> {
        let prices = &conditions.prices.kinds;
        if conditions.buffer != Buffer::Unlimited || !prices.iter().any(queues) {
            return None;
        }
        let hosts = graph.hosts.iter().max().map_or(0, |host| *host as usize + 1);
        let mut order = Order { queues: vec![Vec::new(); 2 * hosts], next: vec![0; 2 * hosts], early: HashMap::new() };
        let queued = |message: &u32| queues(&prices[graph.messages[*message as usize].kind as usize]);
        let mut all: Vec<u32> = (0..graph.messages.len() as u32).filter(queued).collect();
        all.retain(|message| began[*message as usize] >= WAITS);
        all.sort_by_key(|message| began[*message as usize]);
        for message in all {
            let of = graph.messages[message as usize];
            for (call, arrives) in [(of.sender, false), (of.receiver, true)] {
                order.queues[queue(graph.host(call), arrives)].push((message, arrives));
            }
        }
        Some(order)
    }
}

impl Replay<'_, '_> {
    /// Serves a message that is there at `now`, or whose turn it is, and the jobs that waited for it.
    pub(super) fn serve(&mut self, message: u32, arrives: bool, now: i64) {
        if self.order.is_none() || !queues(&self.price(message)) {
            return self.served(message, arrives, now);
        }
        let Some(mut order) = self.order.take() else { return };
        let host = self.hosts(message)[usize::from(arrives)];
        let queue = queue(host, arrives);
        order.early.insert((message, arrives), now);
        while let Some(job) = order.queues[queue].get(order.next[queue]).copied() {
            let Some(came) = order.early.remove(&job) else { break };
            order.next[queue] += 1;
            self.served(job.0, job.1, came);
        }
        self.order = Some(order);
    }

    fn served(&mut self, message: u32, arrives: bool, at: i64) {
        let (price, [from, to]) = (self.price(message), self.hosts(message));
        if arrives {
            let received = self.servers.arrive(to, at, &price);
            return self.settle(message, received);
        }
        let gone = self.servers.depart(from, at, &price);
        let arrives = gone + (price.trip - 2 * price.engine - price.link).max(0);
        self.later(message as usize, arrives);
    }
}
