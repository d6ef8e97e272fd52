//! The thread that owns the agent's site: it carries out what clients ask for, one after the other, gives the site its
//! turns, and clears away what a client leaves.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Duration;

use linux::doorbell::Doorbell;
use machine::channel::Bell;
use machine::{Fault, FaultKind, Nanoseconds, Result, Site};
use offcode::{Activity, Channel, Specification, State};

use super::journal::Reason;
use super::limits::{Budgets, Shares};
use super::protocol::{Answer, Frame};
use super::session::Common;
use super::wire::Outbox;
use crate::site::residents::{Idle, Rest};
use crate::site::{Deployment, SiteDriver, Slot};

pub(crate) enum Task {
    /// At which of the sites; the shares are the offcode's while it is here.
    Deploy(u32, Box<Deployment>, Shares),
    Initialize,
    Start,
    /// The far end of a channel, and the UDP port that the answer tells.
    Connect {
        name: String,
        end: Box<dyn Channel>,
        port: u16,
    },
    /// A channel in memory to another offcode of the client; the shares are kept by the one that the job names.
    Join {
        name: String,
        to: u32,
        their_name: String,
        specification: Specification,
        shares: Shares,
    },
    SetAttribute {
        name: String,
        value: String,
    },
    Remove,
    Evidence,
    Suspend,
    Restore(State),
    Resume,
    Ends,
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
    /// A client is gone; the sender gets what it leaves.
    Clear {
        session: u64,
        removed: Sender<Left>,
    },
}

/// What a client leaves when it goes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Left {
    /// Offcodes that were removed.
    pub offcodes: usize,
    /// What all its offcodes took since it came, by what was timed of them.
    pub core_time: Nanoseconds,
}

/// Where orders go: to the thread of the sites, which may sleep.
#[derive(Clone)]
pub(crate) struct Orders {
    sender: Sender<Order>,
    // Dropped after the sender, so that the thread finds that it is gone.
    bell: Arc<Ringer>,
}

/// Rings when it goes.
pub(crate) struct Ringer(pub Arc<Doorbell>);

impl Drop for Ringer {
    fn drop(&mut self) {
        self.0.ring();
    }
}

impl Orders {
    pub fn new() -> Result<(Orders, Receiver<Order>)> {
        let (sender, orders) = std::sync::mpsc::channel();
        Ok((Orders { sender, bell: Arc::new(Ringer(Doorbell::new()?)) }, orders))
    }

    /// `false`: the thread has ended.
    pub fn send(&self, order: Order) -> bool {
        let sent = self.sender.send(order).is_ok();
        self.bell.0.ring();
        sent
    }

    pub fn bell(&self) -> Arc<Doorbell> {
        self.bell.0.clone()
    }
}

pub(crate) struct Host {
    sites: Vec<Box<dyn SiteDriver>>,
    /// Whose offcode has which number, and where it is.
    owners: BTreeMap<u32, Owner>,
    next: u32,
    /// Core time that removed offcodes took, by client.
    spent: BTreeMap<u64, u64>,
    common: Arc<Common>,
}

struct Owner {
    session: u64,
    site: usize,
    slot: Slot,
    shares: Shares,
}

impl Host {
    pub fn new(sites: Vec<Box<dyn SiteDriver>>, common: Arc<Common>) -> Host {
        Host { sites, owners: BTreeMap::new(), next: 0, spent: BTreeMap::new(), common }
    }

    /// Carries out orders until every sender of them is gone, which rings `bell` too.
    pub fn run(mut self, orders: &Receiver<Order>, bell: &Arc<Doorbell>) {
        let mut idle = Idle::new();
        loop {
            loop {
                match orders.try_recv() {
                    Ok(order) => {
                        idle = Idle::new();
                        self.obey(order);
                    }
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            for site in &mut self.sites {
                match site.turn() {
                    Ok(Activity::Worked) => idle = Idle::new(),
                    Ok(Activity::Idle) => {}
                    Err(fault) => self.common.journal.say(&fault.to_string()),
                }
            }
            // Those of a core have a thread of their own.
            let own = |owner: &Owner| *self.sites[owner.site].site() == Site::App;
            let rest = if self.owners.values().any(own) { idle.rest() } else { Rest::Sleep(Duration::MAX) };
            match rest {
                Rest::Turn => std::thread::yield_now(),
                Rest::Nap => std::thread::sleep(Idle::NAP),
                Rest::Sleep(turn) => {
                    let mut sleep = bell.sleep();
                    if self.sites.iter_mut().all(|site| site.arm(&mut sleep, turn)) {
                        sleep.begin();
                    } else {
                        std::thread::sleep(Idle::NAP);
                    }
                }
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
                let core_time = Nanoseconds(self.spent.remove(&session).unwrap_or(0));
                let _ = removed.send(Left { offcodes: theirs.len(), core_time });
            }
        }
    }

    fn remove(&mut self, slot: u32) {
        self.account(slot);
        let Some(owner) = self.owners.remove(&slot) else { return };
        if let Err(fault) = self.sites[owner.site].remove(owner.slot) {
            self.common.journal.say(&fault.to_string());
        }
    }

    /// Adds what an offcode took to the account of its client, before it goes.
    fn account(&mut self, number: u32) {
        let Some(owner) = self.owners.get(&number) else { return };
        let evidence = self.sites[owner.site].evidence(owner.slot).ok();
        if let Some((timed, uses)) = evidence.and_then(|evidence| Some((evidence.timed?, evidence.uses))) {
            *self.spent.entry(owner.session).or_default() += (timed.each() * uses as f64) as u64;
        }
    }

    /// Where an offcode of the client is.
    fn owned(&self, session: u64, number: u32) -> Result<(usize, Slot)> {
        let owner = self.owners.get(&number).filter(|owner| owner.session == session);
        let none = || Fault::new(format!("slot {number}"), "this client has no offcode there", "deploy one first");
        owner.map(|owner| (owner.site, owner.slot)).ok_or_else(none)
    }

    fn perform(&mut self, session: u64, number: u32, task: Task) -> Result<Answer> {
        let task = match task {
            Task::Deploy(site, deployment, shares) => return self.deploy(session, site as usize, *deployment, shares),
            Task::Remove if self.owned(session, number).is_err() => return Ok(Answer::Done),
            Task::Done => return Ok(Answer::Done),
            Task::Remove => {
                self.account(number);
                Task::Remove
            }
            task => task,
        };
        let (at, slot) = self.owned(session, number)?;
        let site = &mut self.sites[at];
        Ok(match task {
            Task::Initialize => site.initialize(slot).map(|()| Answer::Done)?,
            Task::Start => site.start(slot).map(|()| Answer::Done)?,
            Task::Connect { name, end, port } => {
                site.adopt(slot, &name, end)?;
                Answer::Connected { port }
            }
            Task::Join { name, to, their_name, specification, shares } => {
                let (there, their_slot) = self.owned(session, to)?;
                let (near, far) = ports::channel::unicast(&specification)?;
                self.sites[at].adopt(slot, &name, Box::new(near))?;
                self.sites[there].adopt(their_slot, &their_name, Box::new(far))?;
                self.owners.entry(number).and_modify(|owner| owner.shares.extend(shares));
                Answer::Done
            }
            Task::SetAttribute { name, value } => site.set_attribute(slot, &name, &value).map(|()| Answer::Done)?,
            Task::Remove => {
                self.owners.remove(&number);
                site.remove(slot).map(|()| Answer::Done)?
            }
            Task::Evidence => Answer::Evidence(site.evidence(slot)?),
            Task::Suspend => Answer::State(site.suspend(slot)?.encode()?),
            Task::Restore(state) => site.restore(slot, &state).map(|()| Answer::Done)?,
            Task::Resume => site.resume(slot).map(|()| Answer::Done)?,
            Task::Ends => Answer::Ends(site.ends(slot)?),
            Task::Deploy(..) | Task::Done => Answer::Done,
        })
    }

    fn deploy(&mut self, session: u64, site: usize, deployment: Deployment, shares: Shares) -> Result<Answer> {
        let there = self.sites.len();
        let at = self.sites.get_mut(site).ok_or_else(|| {
            let cause = format!("the agent has {there} sites, and this would be number {site}");
            Fault::new(format!("offcode {}", deployment.name), cause, "ask what it offers")
        })?;
        let slot = at.deploy(deployment)?;
        let number = self.next;
        self.next += 1;
        self.owners.insert(number, Owner { session, site, slot, shares });
        Ok(Answer::Deployed { slot: number })
    }
}
