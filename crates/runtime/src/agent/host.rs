//! The thread that owns the agent's site: it carries out what clients ask for, one after the other, gives the site its
//! turns, and clears away what a client leaves.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::Duration;

use machine::{Fault, FaultKind, Result, Site};
use offcode::{Activity, Channel};

use super::journal::Reason;
use super::limits::{Budgets, Shares};
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
    /// The shares are the offcode's while it is here.
    Deploy(Box<Deployment>, Shares),
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
    /// Carried out.
    Done,
}

/// One request, and where its answer goes.
pub(crate) struct Job {
    pub session: u64,
    pub from: SocketAddr,
    pub id: u32,
    pub slot: u32,
    pub task: Task,
    pub outbox: Arc<Outbox>,
    /// What the client may use.
    pub budgets: Arc<Budgets>,
    /// What the request takes while it waits.
    pub waiting: Shares,
}

impl Job {
    pub fn answer(self, outcome: Result<Answer>, common: &Common) {
        if let Err(fault) = &outcome
            && fault.kind() == FaultKind::Limit
        {
            common.journal.refused(self.from, Reason::Limit, fault.cause());
        }
        // Before the answer: who has it may ask again.
        drop(self.waiting);
        self.outbox.push(&Frame::Answer { id: self.id, outcome: outcome.map_err(|fault| (&fault).into()) });
    }
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
    owners: BTreeMap<u32, Owner>,
    common: Arc<Common>,
}

struct Owner {
    session: u64,
    _shares: Shares,
}

impl Host {
    pub fn new(site: Box<dyn SiteDriver>, common: Arc<Common>) -> Host {
        Host { site, owners: BTreeMap::new(), common }
    }

    /// Carries out orders until every sender of them is gone.
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
            Order::Do(mut job) => {
                let task = std::mem::replace(&mut job.task, Task::Done);
                let outcome = self.perform(job.session, job.slot, task);
                job.answer(outcome, &self.common);
            }
            Order::Clear { session, removed } => {
                let theirs: Vec<u32> =
                    self.owners.iter().filter(|(_, owner)| owner.session == session).map(|(slot, _)| *slot).collect();
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
        let owned = self.owners.get(&number).is_some_and(|owner| owner.session == session);
        if !owned && !matches!(task, Task::Deploy(..) | Task::Remove) {
            return Err(Fault::new(format!("slot {number}"), "this client has no offcode there", "deploy one first"));
        }
        Ok(match task {
            Task::Deploy(deployment, shares) => {
                let slot = self.site.deploy(*deployment)?;
                self.owners.insert(slot.0, Owner { session, _shares: shares });
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
            Task::Done => Answer::Done,
        })
    }
}
