//! One authenticated client at the agent: checks each request against the limits, finds the code, makes far ends of
//! channels, and passes the rest to the site's thread.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use machine::{Fault, Result, SiteKind};
use offcode::{Attributes, Channel, Manifest, Registry, Specification};

use super::Limits;
use super::code_cache::{CodeCache, Upload};
use super::engine_channel::{self, Agreement, Inner, Link, Prepared};
use super::host::{Job, LIMIT, Order, Task};
use super::journal::{Journal, Reason};
use super::out_of_band::Channels;
use super::protocol::{Answer, Body, Frame, Request, VERSION, Way};
use super::wire::{Handler, Outbox, Wire};
use crate::site::{Code, Deployment};

/// What all sessions of an agent share.
pub(crate) struct Common {
    pub limits: Limits,
    pub registry: Registry,
    pub cache: Mutex<CodeCache>,
    pub journal: Journal,
}

pub(crate) struct Session {
    pub number: u64,
    pub from: SocketAddr,
    pub here: SocketAddr,
    pub common: Arc<Common>,
    pub orders: Sender<Order>,
    outbox: Arc<Outbox>,
    outstanding: Arc<AtomicUsize>,
    channels: Channels,
    engine_channels: Vec<Weak<Mutex<Inner>>>,
    link: Arc<Link>,
    upload: Option<Upload>,
    greeted: bool,
}

/// A request that is answered here, or one for the site.
enum Outcome {
    Answer(Answer),
    Task(u32, Task),
}

impl Session {
    pub fn new(
        number: u64,
        (from, here): (SocketAddr, SocketAddr),
        common: Arc<Common>,
        orders: Sender<Order>,
        outbox: Arc<Outbox>,
    ) -> Session {
        Session {
            number,
            from,
            here,
            common,
            orders,
            outbox,
            outstanding: Arc::new(AtomicUsize::new(0)),
            channels: Channels::default(),
            engine_channels: Vec::new(),
            link: Arc::new(Link::default()),
            upload: None,
            greeted: false,
        }
    }

    /// Serves the client until it goes, then clears away all that it had here.
    pub fn run(mut self, wire: Wire) {
        let common = self.common.clone();
        common.journal.say(&format!("{} authenticated", self.from));
        let outbox = self.outbox.clone();
        let largest = common.limits.frame.0 as usize;
        let ended = wire.run(&outbox, largest, common.limits.idle, &mut self);
        self.link.lose();
        self.channels.close_all();
        let (removed, count) = channel();
        // Without a host thread there is nothing left to remove.
        let _ = self.orders.send(Order::Clear { session: self.number, removed });
        let removed = match count.recv().unwrap_or(0) {
            0 => "no offcode was left".to_owned(),
            1 => "its offcode was stopped and removed".to_owned(),
            n => format!("its {n} offcodes were stopped and removed"),
        };
        if let super::wire::Ended::Broken(reason, why) = &ended {
            common.journal.refused(self.from, *reason, why);
        }
        common.journal.say(&format!("{} ended: {}; {removed}", self.from, ended.sentence()));
    }

    fn request(&mut self, id: u32, request: Request<'_>) {
        let outcome = if self.outstanding.load(Ordering::Acquire) >= self.common.limits.requests {
            let cause = format!("{} requests wait for their answers", self.common.limits.requests);
            Err(Fault::new(LIMIT, cause, "wait for answers before asking for more"))
        } else {
            self.consider(request)
        };
        match outcome {
            Ok(Outcome::Task(slot, task)) => {
                self.outstanding.fetch_add(1, Ordering::AcqRel);
                let (outbox, outstanding) = (self.outbox.clone(), self.outstanding.clone());
                let job = Job { session: self.number, from: self.from, id, slot, task, outbox, outstanding };
                if self.orders.send(Order::Do(job)).is_err() {
                    let fault = Fault::new("agent", "the thread of its site has ended", "start the agent again");
                    self.outbox.push(&Frame::Answer { id, outcome: Err((&fault).into()) });
                }
            }
            Ok(Outcome::Answer(answer)) => drop(self.outbox.push(&Frame::Answer { id, outcome: Ok(answer) })),
            Err(fault) => {
                if fault.subject() == LIMIT {
                    self.common.journal.refused(self.from, Reason::Limit, fault.cause());
                }
                self.outbox.push(&Frame::Answer { id, outcome: Err((&fault).into()) });
            }
        }
    }

    fn consider(&mut self, request: Request<'_>) -> Result<Outcome> {
        Ok(match request {
            Request::Deploy { name, manifest, body, attributes } => {
                let Some(code) = self.code(&manifest, body)? else { return Ok(Outcome::Answer(Answer::NeedsCode)) };
                let mut checked = Attributes::default();
                for (name, value) in &attributes {
                    checked.set(name, value)?;
                }
                let deployment = Deployment { name, manifest: Arc::new(*manifest), code, attributes: checked };
                Outcome::Task(0, Task::Deploy(Box::new(deployment)))
            }
            Request::Upload { hash, length, offset, bytes } => {
                let most = self.common.limits.code.0;
                if length > most {
                    let cause = format!("a body of {length} bytes is beyond the {most} that this agent takes");
                    return Err(Fault::new(
                        LIMIT,
                        cause,
                        "make it smaller, or start the agent with --limit code=BYTES",
                    ));
                }
                if let Some(code) = Upload::take(&mut self.upload, hash, length, offset, bytes)? {
                    self.common.cache.lock().unwrap_or_else(PoisonError::into_inner).put(hash, code);
                }
                Outcome::Answer(Answer::Done)
            }
            Request::Initialize { slot } => Outcome::Task(slot, Task::Initialize),
            Request::Start { slot } => Outcome::Task(slot, Task::Start),
            Request::Connect { slot, name, specification, way } => {
                let (end, port) = self.far_end(specification, way)?;
                Outcome::Task(slot, Task::Connect { name, end, port })
            }
            Request::SetAttribute { slot, name, value } => Outcome::Task(slot, Task::SetAttribute { name, value }),
            Request::Remove { slot } => Outcome::Task(slot, Task::Remove),
            Request::Evidence { slot } => Outcome::Task(slot, Task::Evidence),
        })
    }

    /// `None` where the client has to send it first.
    fn code(&self, manifest: &Manifest, body: Body) -> Result<Option<Code>> {
        match body {
            Body::Wasm(hash) => {
                let mut cache = self.common.cache.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(cache.get(&hash).map(Code::Wasm))
            }
            Body::Native => match self.common.registry.constructor(&manifest.package.guid, SiteKind::Agent)? {
                Some(constructor) => Ok(Some(Code::Native(constructor))),
                None => Err(Fault::new(
                    format!("{} ({})", manifest.package.name, manifest.package.guid),
                    "no body of this GUID is linked into the agent",
                    "build an agent that registers it (`runtime::agent::serve`), or bring a wasm body",
                )),
            },
        }
    }

    fn far_end(&mut self, specification: Specification, way: Way) -> Result<(Box<dyn Channel>, u16)> {
        let limits = &self.common.limits;
        self.engine_channels.retain(|channel| channel.strong_count() > 0);
        if self.engine_channels.len() + self.channels.count() >= limits.channels {
            let cause = format!("the client has {} channels, the most that this agent takes", limits.channels);
            return Err(Fault::new(LIMIT, cause, "close some, or start the agent with --limit channels=N"));
        }
        match way {
            Way::OutOfBand { channel } => {
                engine_channel::check_buffers(&specification, limits.buffers)?;
                let end = self.channels.open(channel, specification, self.outbox.clone());
                let taken = || Fault::new(format!("channel {channel}"), "its number is taken", "choose another");
                Ok((Box::new(end.ok_or_else(taken)?), 0))
            }
            Way::Engine { port, session, to_agent, to_client } => {
                engine_channel::check(&specification, limits.buffers)?;
                // Only where the client itself is: an agent sends nothing to third parties.
                let mut peer = self.from;
                peer.set_port(port);
                let agreement = Agreement { session, outward: to_client, inward: to_agent };
                let prepared = Prepared::open(self.here)?;
                let own = prepared.port();
                let end = prepared.join(peer, &agreement, specification, false, self.link.clone())?;
                self.engine_channels.push(end.life());
                Ok((Box::new(end), own))
            }
        }
    }
}

impl Handler for Session {
    fn frame(&mut self, frame: Frame<'_>) -> Result<(), (Reason, String)> {
        let unexpected = |what: &str| Err((Reason::Protocol, format!("{what} at the wrong moment")));
        let broken = |why| (Reason::Protocol, why);
        match frame {
            Frame::Hello { version: VERSION } if !self.greeted => {
                self.greeted = true;
                let (frame, code) = (self.common.limits.frame.0, self.common.limits.code.0);
                self.outbox.push(&Frame::Welcome { version: VERSION, process: std::process::id(), frame, code });
            }
            Frame::Hello { version } if !self.greeted => {
                let cause = format!("the client speaks version {version}, this agent {VERSION}");
                let fault = Fault::new("agent", cause.clone(), "install the same plimsoll on both hosts");
                self.outbox.push(&Frame::Refused((&fault).into()));
                self.outbox.close();
                self.common.journal.refused(self.from, Reason::Version, &cause);
            }
            _ if !self.greeted => return unexpected("a frame before the greeting"),
            Frame::Request { id, request } => self.request(id, request),
            Frame::Message { channel, payload } => self.channels.message(channel, payload).map_err(broken)?,
            Frame::Credit { channel, read } => self.channels.credit(channel, read).map_err(broken)?,
            Frame::Close { channel } => self.channels.close(channel),
            Frame::Ping => drop(self.outbox.push(&Frame::Pong)),
            Frame::Hello { .. } => return unexpected("a greeting"),
            Frame::Welcome { .. } | Frame::Refused(_) | Frame::Answer { .. } | Frame::Pong => {
                return unexpected("a frame that only agents send");
            }
        }
        Ok(())
    }

    fn tick(&mut self) -> Result<(), (Reason, String)> {
        for channel in self.engine_channels.iter().filter_map(Weak::upgrade) {
            // One that is busy is looked at the next time.
            let forged = channel.try_lock().map_or(0, |mut inner| inner.take_forged());
            if forged > 0 {
                let why = format!("{forged} packets on a channel were not made with its key");
                self.common.journal.refused(self.from, Reason::Forged, &why);
            }
        }
        Ok(())
    }
}
