//! One authenticated client at the agent: checks each request against the limits, finds the code, makes far ends of
//! channels, and passes the rest to the site's thread.

use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use machine::bounds::AGENT_ENTRIES;
use machine::{Bytes, Fault, FaultKind, Result, SiteKind};
use offcode::{Attributes, Channel, Manifest, Registry, Specification};

use super::Limits;
use super::code_cache::{CodeCache, Upload};
use super::compiler::Compiler;
use super::engine_channel::{self, Agreement, Inner, Link, Prepared};
use super::host::{Job, Order, Task};
use super::journal::{Journal, Reason};
use super::limits::{Budgets, limit};
use super::out_of_band::{self, Channels};
use super::protocol::{Answer, Body, Frame, Hash, Request, VERSION, Way};
use super::wire::{Handler, Outbox, Wire};
use crate::site::{Code, Deployment};

/// What all sessions of an agent share.
pub(crate) struct Common {
    pub limits: Limits,
    pub budgets: Budgets,
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
    compiler: Arc<Compiler>,
    outbox: Arc<Outbox>,
    budgets: Arc<Budgets>,
    channels: Channels,
    engine_channels: Vec<Weak<Mutex<Inner>>>,
    link: Arc<Link>,
    upload: Option<Upload>,
    /// The last that came whole: others' bodies may push it out of the cache before it is deployed.
    uploaded: Option<(Hash, Arc<[u8]>)>,
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
        compiler: Arc<Compiler>,
        outbox: Arc<Outbox>,
    ) -> Session {
        let budgets = Arc::new(common.budgets.of_client(&common.limits));
        Session {
            number,
            from,
            here,
            common,
            orders,
            compiler,
            outbox,
            budgets,
            channels: Channels::default(),
            engine_channels: Vec::new(),
            link: Arc::new(Link::default()),
            upload: None,
            uploaded: None,
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
        self.compiler.forget(self.number);
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

    fn request(&mut self, id: u32, request: Request<'_>, length: usize) {
        let budgets = self.budgets.clone();
        let outcome = budgets.request(length).and_then(|waiting| Ok((waiting, self.consider(request)?)));
        match outcome {
            Ok((waiting, Outcome::Task(slot, task))) => {
                let (session, from, outbox) = (self.number, self.from, self.outbox.clone());
                let compiled = matches!(&task, Task::Deploy(deployment, _) if matches!(deployment.code, Code::Wasm(_)));
                let job = Job { session, from, id, slot, task, outbox, budgets, waiting };
                if compiled {
                    self.compiler.put(job);
                } else if self.orders.send(Order::Do(job)).is_err() {
                    let fault = Fault::new("agent", "the thread of its site has ended", "start the agent again");
                    self.outbox.push(&Frame::Answer { id, outcome: Err((&fault).into()) });
                }
            }
            Ok((_, Outcome::Answer(answer))) => drop(self.outbox.push(&Frame::Answer { id, outcome: Ok(answer) })),
            Err(fault) => {
                if fault.kind() == FaultKind::Limit {
                    self.common.journal.refused(self.from, Reason::Limit, fault.cause());
                }
                self.outbox.push(&Frame::Answer { id, outcome: Err((&fault).into()) });
            }
        }
    }

    fn consider(&mut self, request: Request<'_>) -> Result<Outcome> {
        Ok(match request {
            Request::Deploy { name, manifest, body, attributes } => {
                check_entries(&manifest, attributes.len())?;
                let Some(code) = self.code(&manifest, body)? else { return Ok(Outcome::Answer(Answer::NeedsCode)) };
                let mut checked = Attributes::default();
                for (name, value) in &attributes {
                    checked.set(name, value)?;
                }
                let deployment = Deployment { name, manifest: Arc::new(*manifest), code, attributes: checked };
                Outcome::Task(0, Task::Deploy(Box::new(deployment), vec![self.budgets.offcode()?]))
            }
            Request::Upload { hash, length, offset, bytes } => {
                let most = self.common.limits.code.0;
                if length > most {
                    let cause = format!("a body of {length} bytes is beyond the {most} that this agent takes");
                    return Err(limit(cause, "make it smaller, or start the agent with --limit code=BYTES"));
                }
                if let Some(code) = Upload::take(&mut self.upload, hash, length, offset, bytes)? {
                    self.uploaded = Some((hash, code.clone()));
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
                if let Some((uploaded, code)) = &self.uploaded
                    && *uploaded == hash
                {
                    return Ok(Some(Code::Wasm(code.clone())));
                }
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
        match way {
            Way::OutOfBand { channel } => {
                engine_channel::check_buffers(&specification, limits.buffers)?;
                if specification.buffers.size.0 + FRAMING > limits.frame.0 {
                    let cause =
                        format!("buffers of {} do not fit a frame of {}", specification.buffers.size, limits.frame);
                    return Err(limit(
                        cause,
                        "make a channel with a name, or start the agent with --limit frame=BYTES",
                    ));
                }
                let shares = self.budgets.channel(out_of_band::memory(&specification))?;
                let end = self.channels.open(channel, specification, self.outbox.clone(), shares);
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
                let grant = |size: Bytes| self.budgets.channel(size);
                let end = prepared.join(peer, &agreement, specification, false, self.link.clone(), grant)?;
                self.engine_channels.push(end.life());
                Ok((Box::new(end), own))
            }
        }
    }
}

/// Bytes of a message's frame beside the message.
const FRAMING: u64 = 32;

/// A few bytes of a frame may stand for many entries, each of which takes tens of bytes here.
fn check_entries(manifest: &Manifest, attributes: usize) -> Result<()> {
    let Manifest { package, hardware, software } = manifest;
    let entries = attributes
        + package.attributes.len()
        + package.interfaces.iter().map(|interface| 1 + interface.methods.len()).sum::<usize>()
        + package.bodies.iter().map(|body| 1 + body.sites.len()).sum::<usize>()
        + hardware.iter().map(|target| 1 + target.modes.len()).sum::<usize>()
        + software.environment.len()
        + software.peers.len();
    let most = AGENT_ENTRIES.each.count();
    if entries > most {
        return Err(limit(
            format!("the manifest has {entries} entries, of which {most} are taken"),
            "shorten its lists",
        ));
    }
    Ok(())
}

impl Handler for Session {
    fn frame(&mut self, frame: Frame<'_>, length: usize) -> Result<(), (Reason, String)> {
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
            Frame::Request { id, request } => self.request(id, request, length),
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
