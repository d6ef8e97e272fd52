//! The thread that owns the agent's site: it carries out what clients ask for, one after the other, gives the site its
//! turns, and clears away what a client leaves.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Duration;

use linux::doorbell::Doorbell;
use machine::channel::Bell;
use machine::{Fault, FaultKind, Nanoseconds, Result, Site, SiteKind};
use offcode::{Activity, Channel, Specification, State};

use super::journal::Reason;
use super::limits::{Budgets, Shares};
use super::protocol::{Answer, Frame};
use super::state::AgentState;
use super::wire::Outbox;
use crate::site::evidence::Counter;
use crate::site::residents::{Idle, Rest};
use crate::site::{Client, Deployment, SiteDriver, Slot};
use crate::switchboard::Switchboard;

pub(crate) enum Task {
    /// The number of the site; the shares are the offcode's while it is here.
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
    Map(String),
    Suspend,
    Restore(State),
    Resume,
    Ends,
    /// The job has been carried out.
    Done,
}

/// One request, with the destination of its answer.
pub(crate) struct Job {
    pub session: u64,
    pub from: SocketAddr,
    pub id: u32,
    pub slot: u32,
    pub task: Task,
    pub outbox: Arc<Outbox>,
    /// The client's budgets.
    pub budgets: Arc<Budgets>,
    /// The client that pays for what is deployed.
    pub client: Client,
    /// Shares that the request holds while it waits.
    pub waiting: Shares,
}

impl Job {
    pub fn answer(self, outcome: Result<Answer>, common: &AgentState) {
        if let Err(fault) = &outcome
            && fault.kind() == FaultKind::Limit
        {
            common.journal.refused(self.from, Reason::Limit, fault.cause());
        }
        // Given back before the answer, as the client may ask again at once.
        drop(self.waiting);
        self.outbox.push(&Frame::Answer { id: self.id, outcome: outcome.map_err(|fault| (&fault).into()) });
    }
}

pub(crate) enum Order {
    Do(Job),
    /// A client is gone; the sender gets the number of offcodes that were removed.
    Clear {
        session: u64,
        removed: Sender<usize>,
    },
}

/// The sender of orders to the thread of the sites, which may sleep.
#[derive(Clone)]
pub(crate) struct Orders {
    sender: Sender<Order>,
    // Dropped after the sender, so that the thread finds the sender gone.
    bell: Arc<Ringer>,
}

/// Rings when it is dropped.
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

    /// Sends an order; `false`: the thread has ended.
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
    /// The offcodes by number, with client and place.
    owners: BTreeMap<u32, Owner>,
    next: u32,
    /// Relays messages of driver hooks, where there are any: programs in the kernel hold no ends of channels.
    switchboard: Option<Switchboard>,
    common: Arc<AgentState>,
}

struct Owner {
    session: u64,
    site: usize,
    slot: Slot,
    shares: Shares,
    client: Client,
    /// Whether the site charges the client for what the offcode takes.
    charged: bool,
}

impl Host {
    pub fn new(sites: Vec<Box<dyn SiteDriver>>, common: Arc<AgentState>) -> Result<Host> {
        let hooks = sites.iter().any(|site| !site.site().kind().maps_memory());
        let said = common.clone();
        let switchboard = hooks.then(|| Switchboard::start(Arc::new(move |line| said.journal.say(line))));
        Ok(Host { sites, owners: BTreeMap::new(), next: 0, switchboard: switchboard.transpose()?, common })
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
            // Offcodes of a core have a thread of their own.
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
                let outcome = self.perform((job.session, &job.client), job.slot, task);
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
        self.account(slot);
        let Some(owner) = self.owners.remove(&slot) else { return };
        if let Err(fault) = self.sites[owner.site].remove(owner.slot) {
            self.common.journal.say(&fault.to_string());
        }
        self.end_relays();
    }

    /// Ends the relays of an offcode at a driver hook, which no message tells that it has gone.
    fn end_relays(&self) {
        if let Some(switchboard) = &self.switchboard {
            switchboard.ring();
        }
    }

    /// Adds what an offcode took to what its client has taken, before it goes, where its site has not.
    fn account(&mut self, number: u32) {
        let Some(owner) = self.owners.get(&number).filter(|owner| !owner.charged) else { return };
        let evidence = self.sites[owner.site].evidence(owner.slot).ok();
        if let Some((timed, uses)) = evidence.and_then(|evidence| Some((evidence.timed?, evidence.uses))) {
            owner.client.took(Nanoseconds((timed.each() * uses as f64) as u64));
        }
    }

    /// The place of an offcode of the client.
    fn owned(&self, session: u64, number: u32) -> Result<(usize, Slot)> {
        let owner = self.owners.get(&number).filter(|owner| owner.session == session);
        let none = || Fault::new(format!("slot {number}"), "this client has no offcode there", "deploy one first");
        owner.map(|owner| (owner.site, owner.slot)).ok_or_else(none)
    }

    fn perform(&mut self, (session, client): (u64, &Client), number: u32, task: Task) -> Result<Answer> {
        let task = match task {
            Task::Deploy(site, deployment, shares) => {
                return self.deploy((session, client), site as usize, *deployment, shares);
            }
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
                self.give((at, slot), &name, end)?;
                Answer::Connected { port }
            }
            Task::Join { name, to, their_name, specification, shares } => {
                let (there, their_slot) = self.owned(session, to)?;
                let (mut one, mut other) = ((at, slot, name), (there, their_slot, their_name));
                if !self.maps_memory(at) {
                    std::mem::swap(&mut one, &mut other);
                }
                // An end that a driver hook's site makes is held by the other one.
                let end = match self.maps_memory(other.0) {
                    true => {
                        let (near, far) = ports::channel::unicast(&specification)?;
                        self.sites[other.0].adopt(other.1, &other.2, Box::new(far))?;
                        Box::new(near)
                    }
                    false => self.sites[other.0].connect(other.1, &other.2, specification)?,
                };
                self.give((one.0, one.1), &one.2, end)?;
                self.owners.entry(number).and_modify(|owner| owner.shares.extend(shares));
                Answer::Done
            }
            Task::SetAttribute { name, value } => site.set_attribute(slot, &name, &value).map(|()| Answer::Done)?,
            Task::Remove => {
                self.owners.remove(&number);
                let removed = site.remove(slot);
                self.end_relays();
                removed.map(|()| Answer::Done)?
            }
            Task::Evidence => {
                let mut evidence = site.evidence(slot)?;
                let name = "ns of core time of all offcodes of this client at the agent".to_owned();
                evidence.counters.push(Counter { name, value: client.taken().0 });
                Answer::Evidence(evidence)
            }
            Task::Map(name) => Answer::Map(site.map(slot, &name)?),
            Task::Suspend => Answer::State(site.suspend(slot)?.encode()?),
            Task::Restore(state) => site.restore(slot, &state).map(|()| Answer::Done)?,
            Task::Resume => site.resume(slot).map(|()| Answer::Done)?,
            Task::Ends => Answer::Ends(site.ends(slot)?),
            Task::Deploy(..) | Task::Done => Answer::Done,
        })
    }

    fn maps_memory(&self, site: usize) -> bool {
        self.sites[site].site().kind().maps_memory()
    }

    /// Gives an offcode its end of a channel; one at a driver hook has it behind maps.
    fn give(&mut self, (site, slot): (usize, Slot), name: &str, end: Box<dyn Channel>) -> Result<()> {
        match &self.switchboard {
            Some(switchboard) if !self.maps_memory(site) => {
                let near = self.sites[site].connect(slot, name, *end.specification())?;
                switchboard.relay(end, near, None);
                Ok(())
            }
            _ => self.sites[site].adopt(slot, name, end).map(drop),
        }
    }

    fn deploy(
        &mut self,
        (session, client): (u64, &Client),
        site: usize,
        deployment: Deployment,
        shares: Shares,
    ) -> Result<Answer> {
        let (there, subject) = (self.sites.len(), format!("offcode {}", deployment.name));
        let others = self.owners.values().any(|owner| owner.site == site && owner.session != session);
        let at = self.sites.get_mut(site).ok_or_else(|| {
            let cause = format!("the agent has {there} sites, and this would be number {site}");
            Fault::new(&*subject, cause, "ask what it offers")
        })?;
        if others && at.site().kind() == SiteKind::Xdp {
            // What the programs of one let through would be what those of the other see.
            let cause =
                format!("another client has offcodes at {}, and a driver hook is one client's at a time", at.site());
            let next = "wait until it has ended, or name the hook of another interface";
            return Err(Fault::new(subject, cause, next).of_kind(FaultKind::Limit));
        }
        let slot = at.deploy(deployment)?;
        let charged = at.charge(slot, client).inspect_err(|_| drop(at.remove(slot)))?;
        let number = self.next;
        self.next += 1;
        self.owners.insert(number, Owner { session, site, slot, shares, client: client.clone(), charged });
        Ok(Answer::Deployed { slot: number })
    }
}
