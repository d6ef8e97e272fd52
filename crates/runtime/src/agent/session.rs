//! One authenticated client at the agent: checks each request against the limits, finds the code, makes far ends of
//! channels, and passes the rest to the site's thread.

use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use linux::interface_usage::InterfaceUsage;
use machine::bounds::{AGENT_ENTRIES, AGENT_STATE};
use machine::budget::Share;
use machine::{Bytes, Fault, FaultKind, Result, SiteKind};
use offcode::{Attributes, Channel, Constructor, Manifest, Specification, State};

use super::code_cache::Upload;
use super::compiler::Compiler;
use super::engine_channel::{Agreement, Prepared};
use super::engine_end::{EngineEnd, Link};
use super::host::{Job, Order, Orders, Task};
use super::journal::Reason;
use super::limits::{Budgets, limit};
use super::out_of_band::{self, Channels};
use super::protocol::{Answer, Body, ChannelCarrier, Frame, Hash, Request, Survey, VERSION};
use super::state::AgentState;
use super::wire::{Handler, Outbox, Wire};
use crate::code::{Code, Libraries, libraries_of, library_for_this_machine};
use crate::possible::{self, Hook};
use crate::site::{Client, Deployment, Names};

pub(crate) struct Session {
    pub number: u64,
    pub from: SocketAddr,
    pub here: SocketAddr,
    pub common: Arc<AgentState>,
    pub orders: Orders,
    compiler: Arc<Compiler>,
    outbox: Arc<Outbox>,
    budgets: Arc<Budgets>,
    client: Client,
    channels: Channels,
    /// Shared words of the client's offcodes.
    names: Names,
    engine_channels: Vec<Weak<Mutex<EngineEnd>>>,
    link: Arc<Link>,
    upload: Option<Upload>,
    /// The last body that came whole: others' bodies may push it out of the cache before it is deployed.
    uploaded: Option<(Hash, Arc<[u8]>)>,
    /// The state to be restored, as far as it has come.
    state: Vec<u8>,
    greeted: bool,
}

/// The result of a request: its answer, or a job for the site.
enum Outcome {
    Answer(Answer),
    Task(u32, Task),
}

impl Session {
    pub fn new(
        number: u64,
        (from, here): (SocketAddr, SocketAddr),
        common: Arc<AgentState>,
        orders: Orders,
        compiler: Arc<Compiler>,
        outbox: Arc<Outbox>,
    ) -> Session {
        let budgets = Arc::new(common.budgets.of_client(&common.limits));
        let client = Client::new(number, common.limits.cpu_per_client);
        Session {
            number,
            from,
            here,
            common,
            orders,
            compiler,
            outbox,
            budgets,
            client,
            channels: Channels::default(),
            names: Names::default(),
            engine_channels: Vec::new(),
            link: Arc::new(Link::default()),
            upload: None,
            uploaded: None,
            state: Vec::new(),
            greeted: false,
        }
    }

    /// Serves the client until it goes, then removes all that it had here.
    pub fn run(mut self, wire: Wire) {
        let begun = Instant::now();
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
        self.orders.send(Order::Clear { session: self.number, removed });
        let mut removed = match count.recv().unwrap_or_default() {
            0 => "no offcode was left".to_owned(),
            1 => "its offcode was stopped and removed".to_owned(),
            n => format!("its {n} offcodes were stopped and removed"),
        };
        let taken = self.client.taken();
        if taken.0 > 0 {
            let share = taken.0 as f64 / begun.elapsed().as_nanos().max(1) as f64;
            removed += &format!("; in all its offcodes took {taken}, {:.2} % of a core", share * 100.0);
        }
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
                let compiled = matches!(&task, Task::Deploy(_, deployment, _) if matches!(deployment.code, Code::Wasm(_) | Code::Library(_)));
                let client = self.client.clone();
                let job = Job { session, from, id, slot, task, outbox, budgets, client, waiting };
                if compiled {
                    self.compiler.put(job);
                } else if !self.orders.send(Order::Do(job)) {
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
            Request::Survey => {
                let core_time = self.client.taken();
                Outcome::Answer(Answer::Survey(Survey { core_time, ..self.common.survey.clone() }))
            }
            Request::InterfaceUsage { site } => Outcome::Answer(Answer::InterfaceUsage(self.interface_usage(site)?)),
            Request::Deploy { site, name, manifest, body, attributes } => {
                check_entries(&manifest, attributes.len())?;
                let manifest = Arc::new(*manifest);
                let code = match self.code(&manifest, body)? {
                    Ok(code) => code,
                    Err(needed) => return Ok(Outcome::Answer(needed)),
                };
                let mut checked = Attributes::default();
                for (name, value) in &attributes {
                    checked.set(name, value)?;
                }
                let kind = if matches!(code, Code::Bpf(_)) { SiteKind::Xdp } else { SiteKind::Agent };
                let memory = self.names.granted(&manifest, kind);
                let deployment = Deployment { name, manifest, code, attributes: checked, memory };
                let mut shares = vec![self.budgets.offcode()?];
                if let Code::Bpf(object) = &deployment.code {
                    shares.push(self.guest(&deployment, object)?);
                }
                Outcome::Task(0, Task::Deploy(site, Box::new(deployment), shares))
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
                let (end, port) = self.agent_end(specification, way)?;
                Outcome::Task(slot, Task::Connect { name, end, port })
            }
            Request::Join { ends: [from, to], specification } => {
                possible::within(&specification, self.common.limits.buffers)
                    .map_err(|why| why.fault("channel within the agent"))?;
                let shares = self.budgets.channel(out_of_band::memory(&specification))?;
                Outcome::Task(from.0, Task::Join { name: from.1, to: to.0, their_name: to.1, specification, shares })
            }
            Request::SetAttribute { slot, name, value } => Outcome::Task(slot, Task::SetAttribute { name, value }),
            Request::Remove { slot } => Outcome::Task(slot, Task::Remove),
            Request::Evidence { slot } => Outcome::Task(slot, Task::Evidence),
            Request::Map { slot, name } => Outcome::Task(slot, Task::Map(name)),
            Request::Suspend { slot } => Outcome::Task(slot, Task::Suspend),
            Request::Restore { slot, length, offset, bytes } => self.state(slot, length, offset, bytes)?,
            Request::Resume { slot } => Outcome::Task(slot, Task::Resume),
            Request::Ends { slot } => Outcome::Task(slot, Task::Ends),
        })
    }

    /// Keeps a part of a state; the last one is for the site.
    fn state(&mut self, slot: u32, length: u64, offset: u64, bytes: &[u8]) -> Result<Outcome> {
        let most = AGENT_STATE.each.bytes().0;
        if length > most {
            let cause = format!("a state of {length} bytes is beyond the {most} that an agent takes");
            return Err(limit(cause, "let the offcode keep less"));
        }
        if offset == 0 {
            self.state.clear();
        }
        let after = self.state.len() as u64 + bytes.len() as u64;
        if offset != self.state.len() as u64 || after > length {
            let cause = format!("{} bytes at {offset}, and {} of {length} are here", bytes.len(), self.state.len());
            return Err(Fault::new("part of a state", cause, "send the parts in order, from the first byte on"));
        }
        self.state.extend_from_slice(bytes);
        if after < length {
            return Ok(Outcome::Answer(Answer::Done));
        }
        Ok(Outcome::Task(slot, Task::Restore(State::decode(&std::mem::take(&mut self.state))?)))
    }

    /// The code, or what the client has to send first.
    fn code(&self, manifest: &Arc<Manifest>, body: Body) -> Result<Result<Code, Answer>> {
        match body {
            Body::Wasm(hash) => Ok(self.sent(&hash).map(Code::Wasm).ok_or(Answer::NeedsCode)),
            Body::Bpf(hash) => Ok(self.sent(&hash).map(Code::Bpf).ok_or(Answer::NeedsCode)),
            Body::Native => match self.linked(manifest)? {
                Some(constructor) => Ok(Ok(Code::Native(constructor))),
                None if !libraries_of(manifest).is_empty() => self.library(manifest),
                None => Err(Fault::new(
                    format!("{} ({})", manifest.package.name, manifest.package.guid),
                    "no body of this GUID and version is linked into the agent",
                    "build an agent that registers it (`runtime::agent::serve`), or bring a wasm body",
                )),
            },
        }
    }

    /// The constructor of the linked-in native body of the version asked for.
    fn linked(&self, manifest: &Manifest) -> Result<Option<Constructor>> {
        let (registry, package) = (&self.common.registry, &manifest.package);
        let is =
            |linked: &Arc<Manifest>| (linked.package.guid, &linked.package.version) == (package.guid, &package.version);
        let linked = registry.manifests()?.iter().any(is);
        Ok(registry.constructor(&package.guid, SiteKind::Agent)?.filter(|_| linked))
    }

    /// Checks an object for a driver hook, and draws the shares of its maps.
    fn guest(&self, deployment: &Deployment, object: &[u8]) -> Result<Share> {
        let subject = || format!("offcode {}", deployment.name);
        let refused = |why: possible::Why| why.fault(subject());
        let hook = Hook::read(&deployment.manifest, SiteKind::Xdp, object).map_err(refused)?;
        possible::guest(&deployment.manifest, &hook).map_err(refused)?;
        self.budgets.maps(hook.memory(self.common.survey.cores.into())).map_err(|fault| fault.within(subject()))
    }

    /// The use of the interface of a driver hook on this host.
    fn interface_usage(&self, site: u32) -> Result<InterfaceUsage> {
        let listed = self.common.survey.sites.get(site as usize);
        let hook = listed.and_then(|site| site.strip_prefix("xdp:")?.rsplit_once(':'));
        let Some((interface, _)) = hook else {
            return Err(Fault::new(format!("site {site}"), "it is no driver hook of this agent", "ask what it offers"));
        };
        InterfaceUsage::live(interface)
    }

    /// A body that a client has sent, by hash.
    fn sent(&self, hash: &Hash) -> Option<Arc<[u8]>> {
        match &self.uploaded {
            Some((uploaded, code)) if uploaded == hash => Some(code.clone()),
            _ => self.common.cache.lock().unwrap_or_else(PoisonError::into_inner).get(hash),
        }
    }

    fn library(&self, manifest: &Arc<Manifest>) -> Result<Result<Code, Answer>> {
        let wanted = library_for_this_machine(manifest)?;
        let digest = wanted.digest;
        if !self.common.limits.native.contains(&digest) {
            let name = &manifest.package.name;
            let cause = format!("the native library {digest} of {name} is not among those that may load here");
            let next = format!(
                "start the agent with --native {digest}, if it may run there with all rights of the agent; or bring a wasm body"
            );
            return Err(limit(cause, &next));
        }
        let Some(bytes) = self.sent(&digest.0) else { return Ok(Err(Answer::NeedsLibrary { hash: digest.0 })) };
        Ok(Ok(Code::Library(Libraries::one(manifest.clone(), wanted.clone(), bytes))))
    }

    /// Makes the agent's end of a channel that the client asked for, with the UDP port of that end: 0 out of band.
    fn agent_end(&mut self, specification: Specification, way: ChannelCarrier) -> Result<(Box<dyn Channel>, u16)> {
        let limits = &self.common.limits;
        // Channels that have ended count no longer.
        self.engine_channels.retain(|channel| channel.strong_count() > 0);
        match way {
            ChannelCarrier::OutOfBand { channel } => {
                possible::within(&specification, limits.buffers).map_err(|why| why.fault("channel out of band"))?;
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
            ChannelCarrier::Engine { port, session, to_agent, to_client } => {
                let fits = possible::to_another_host(&specification, limits.buffers);
                fits.map_err(|why| why.fault("channel to another host"))?;
                // Packets go only to the client's own address: an agent sends nothing to third parties.
                let mut peer = self.from;
                peer.set_port(port);
                let agreement = Agreement { session, outward: to_client, inward: to_agent };
                let prepared = Prepared::open(self.here)?;
                let own_port = prepared.port();
                let grant = |size: Bytes| self.budgets.channel(size);
                let end = prepared.join(peer, &agreement, specification, false, self.link.clone(), grant)?;
                self.engine_channels.push(end.life());
                Ok((Box::new(end), own_port))
            }
        }
    }
}

/// Time between two looks at forged and replayed packets of channels.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of a message's frame beside the message.
const FRAMING: u64 = 32;

/// Bounds the entries: a few bytes of a frame may stand for many, each of which takes tens of bytes here.
fn check_entries(manifest: &Manifest, attributes: usize) -> Result<()> {
    let Manifest { package, hardware, software } = manifest;
    let entries = attributes
        + package.attributes.len()
        + package.interfaces.iter().map(|interface| 1 + interface.methods.len()).sum::<usize>()
        + package.bodies.iter().map(|body| 1 + body.sites.len() + body.libraries.len()).sum::<usize>()
        + hardware.iter().map(|target| 1 + target.modes.len()).sum::<usize>()
        + software.environment.len()
        + software
            .peers
            .iter()
            .map(|peer| 1 + peer.version.as_ref().map_or(0, |asked| asked.comparators.len()))
            .sum::<usize>();
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

    fn tick_every(&self) -> Option<Duration> {
        (!self.engine_channels.is_empty()).then_some(POLL_INTERVAL)
    }

    fn tick(&mut self) -> Result<(), (Reason, String)> {
        for channel in self.engine_channels.iter().filter_map(Weak::upgrade) {
            // A channel that is busy is looked at the next time.
            let dropped = channel.try_lock().map(|mut end| end.take_dropped()).unwrap_or_default();
            for (count, reason, what) in [
                (dropped.forged, Reason::Forged, "were not made with its key"),
                (dropped.replayed, Reason::Replayed, "had come before, or came too late to tell"),
            ] {
                if count > 0 {
                    self.common.journal.refused(self.from, reason, &format!("{count} packets on a channel {what}"));
                }
            }
        }
        Ok(())
    }
}
