//! Servers of one message after the other: engines' cores, and the links of hosts.
//!
//! ```text
//! gone    = max(link out, max(engine, begun) + engine's work)          link out = gone + what the message occupies
//! arrives = gone + the rest of the trip
//! over    = max(engine, max(link in, arrives) + what it occupies) + engine's work
//! ```
//! A message that finds all of them free takes its trip, of which these are parts.

use crate::model::Price;
use crate::work::Work;

/// Times when each server is free, ps, by host.
#[derive(Debug, Clone)]
pub(super) struct Servers {
    engines: Vec<i64>,
    out: Vec<i64>,
    into: Vec<i64>,
    /// The servers' work so far.
    pub(super) done: Work,
}

fn serve(free: &mut i64, at: i64, work: i64) -> i64 {
    *free = at.max(*free) + work;
    *free
}

impl Servers {
    pub(super) fn of(hosts: usize) -> Servers {
        Servers { engines: vec![0; hosts], out: vec![0; hosts], into: vec![0; hosts], done: Work::default() }
    }

    /// When a message begins to leave host `from`.
    pub(super) fn depart(&mut self, from: usize, mut at: i64, price: &Price) -> i64 {
        self.count(price);
        if price.engine > 0 {
            at = serve(&mut self.engines[from], at, price.engine);
        }
        if price.link > 0 {
            at = serve(&mut self.out[from], at, price.link) - price.link;
        }
        at
    }

    /// When a message that reaches host `to` is received.
    pub(super) fn arrive(&mut self, to: usize, mut at: i64, price: &Price) -> i64 {
        self.count(price);
        if price.link > 0 {
            at = serve(&mut self.into[to], at, price.link);
        }
        if price.engine > 0 {
            at = serve(&mut self.engines[to], at, price.engine);
        }
        at
    }

    fn count(&mut self, price: &Price) {
        self.done.engines += price.engine;
        self.done.links += price.link;
    }
}
