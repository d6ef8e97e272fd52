//! The thread that owns the agent's site: it carries out what clients ask for, one after the other, gives the site its
//! turns, and clears away what a client leaves.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::Duration;

use machine::{Fault, Result, Site};
use offcode::{Activity, Channel};

use super::journal::Reason;
use super::protocol::{Answer, Frame};
use super::session::Common;
use super::wire::Outbox;
use crate::site::{Deployment, SiteDriver, Slot};

/// Turns without work after which the thread of an `app` site sleeps between turns.
const IDLE_TURNS: u32 = 4096;
/// Between two turns of an idle `app` site that hosts something.
const NAP: Duration = Duration::from_micros(200);
/// Between two turns of a site that has a thread of its own, or hosts nothing.
const REST: Duration = Duration::from_millis(100);

pub(crate) enum Task {
    Deploy(Box<Deployment>),
    Initialize,
    Start,
    /// The far end of a channel, and the UDP port that the answer tells.
    Connect {
        name: String,
        end: Box<dyn Channel>,
        port: u16,
    },
    SetAttribute {
        name: String,
        value: String,
    },
    Remove,
    Evidence,
}

/// One request, and where its answer goes.
pub(crate) struct Job {
    pub session: u64,
    pub from: SocketAddr,
    pub id: u32,
    pub slot: u32,
    pub task: Task,
    pub outbox: Arc<Outbox>,
    /// Requests of that client that wait.
    pub outstanding: Arc<AtomicUsize>,
}

pub(crate) enum Order {
    Do(Job),
    /// A client is gone; the sender gets how many offcodes were removed.
    Clear {
        session: u64,
        removed: Sender<usize>,
    },
}

pub(crate) struct Host {
    site: Box<dyn SiteDriver>,
    /// Whose offcode is in which slot.
    owners: BTreeMap<u32, u64>,
    common: Arc<Common>,
}

impl Host {
    pub fn new(site: Box<dyn SiteDriver>, common: Arc<Common>) -> Host {
        Host { site, owners: BTreeMap::new(), common }
    }

    /// Until every sender of orders is gone.
    pub fn run(mut self, orders: &Receiver<Order>) {
        let mut idle = 0u32;
        loop {
            loop {
                match orders.try_recv() {
                    Ok(order) => {
                        idle = 0;
                        self.obey(order);
                    }
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            match self.site.turn() {
                Ok(Activity::Worked) => idle = 0,
                Ok(Activity::Idle) => idle = idle.saturating_add(1),
                Err(fault) => {
                    self.common.journal.say(&fault.to_string());
                    idle = IDLE_TURNS;
                }
            }
            let shares = *self.site.site() == Site::App && !self.owners.is_empty();
            if shares && idle < IDLE_TURNS {
                std::thread::yield_now();
                continue;
            }
            match orders.recv_timeout(if shares { NAP } else { REST }) {
                Ok(order) => {
                    idle = 0;
                    self.obey(order);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Do(Job { session, from, id, slot, task, outbox, outstanding }) => {
                let outcome = self.perform(session, slot, task);
                if let Err(fault) = &outcome
                    && fault.subject() == LIMIT
                {
                    self.common.journal.refused(from, Reason::Limit, fault.cause());
                }
                let outcome = outcome.as_ref().map_err(Into::into);
                // Before the answer: who has it may ask again.
                outstanding.fetch_sub(1, Ordering::AcqRel);
                outbox.push(&Frame::Answer { id, outcome: outcome.cloned() });
            }
            Order::Clear { session, removed } => {
                let theirs: Vec<u32> =
                    self.owners.iter().filter(|(_, owner)| **owner == session).map(|(slot, _)| *slot).collect();
                for slot in &theirs {
                    self.remove(*slot);
                }
                let _ = removed.send(theirs.len());
            }
        }
    }

    fn remove(&mut self, slot: u32) {
        self.owners.remove(&slot);
        if let Err(fault) = self.site.remove(Slot(slot)) {
            self.common.journal.say(&fault.to_string());
        }
    }

    fn perform(&mut self, session: u64, number: u32, task: Task) -> Result<Answer> {
        let slot = Slot(number);
        let owned = self.owners.get(&number) == Some(&session);
        if !owned && !matches!(task, Task::Deploy(_) | Task::Remove) {
            return Err(Fault::new(format!("slot {number}"), "this client has no offcode there", "deploy one first"));
        }
        Ok(match task {
            Task::Deploy(_) if self.owners.len() >= self.common.limits.offcodes => {
                let most = self.common.limits.offcodes;
                let cause = format!("{most} offcodes are here, the most that this agent takes");
                let next = "remove some, or start the agent with a larger --limit offcodes=N";
                return Err(Fault::new(LIMIT, cause, next));
            }
            Task::Deploy(deployment) => {
                let slot = self.site.deploy(*deployment)?;
                self.owners.insert(slot.0, session);
                Answer::Deployed { slot: slot.0 }
            }
            Task::Initialize => self.site.initialize(slot).map(|()| Answer::Done)?,
            Task::Start => self.site.start(slot).map(|()| Answer::Done)?,
            Task::Connect { name, end, port } => {
                self.site.adopt(slot, &name, end)?;
                Answer::Connected { port }
            }
            Task::SetAttribute { name, value } => {
                self.site.set_attribute(slot, &name, &value).map(|()| Answer::Done)?
            }
            Task::Remove => {
                if owned {
                    self.owners.remove(&number);
                    self.site.remove(slot)?;
                }
                Answer::Done
            }
            Task::Evidence => Answer::Evidence(self.site.evidence(slot)?),
        })
    }
}

/// The subject of a fault that a limit of the agent caused.
pub(crate) const LIMIT: &str = "limit of the agent";
