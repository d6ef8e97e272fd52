//! The driver of an agent's site: each step is a request over its connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use linux::doorbell::Sleep;
use linux::xdp::{Dump, SharedWords};
use machine::{Fault, Result, Site};
use offcode::manifest::Digest;
use offcode::{Activity, Channel, ChannelId, Specification, State};

use super::{AgentSite, BUFFERS, Connection, lock, random};
use crate::agent::engine_channel::{Agreement, Prepared};
use crate::agent::protocol::{Answer, Body, ChannelCarrier, Request};
use crate::code::{Code, digest};
use crate::ground::Ground;
use crate::possible;
use crate::site::{Deployment, EndAt, Evidence, SiteDriver, Slot};

impl SiteDriver for AgentSite {
    fn site(&self) -> &Site {
        &self.site
    }

    fn ground(&self) -> Ground {
        let usual = Ground::of(self.site.clone());
        let closed = self.lost().map(|fault| fault.cause().to_owned());
        Ground { closed, mode: usual.mode.and(self.mode).or(usual.mode), ..usual }
    }

    fn deploy(&mut self, deployment: Deployment) -> Result<Slot> {
        let body = match &deployment.code {
            Code::Native(_) | Code::Library(_) => Body::Native,
            Code::Wasm(code) => Body::Wasm(digest(code).0),
            Code::Compiled(_) => {
                let cause = "a body that was compiled for this host does not run on another";
                return Err(Fault::new(
                    format!("{}: {}", self.site, deployment.name),
                    cause,
                    "give the module's bytes",
                ));
            }
            Code::Bpf(code) => Body::Bpf(digest(code).0),
        };
        let attributes: Vec<(String, String)> =
            deployment.attributes.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let mut uploaded = false;
        loop {
            let (name, attributes) = (deployment.name.clone(), attributes.clone());
            let manifest = Box::new((*deployment.manifest).clone());
            let site = self.number;
            match (self.ask(Request::Deploy { site, name, manifest, body, attributes })?, &deployment.code, body) {
                (Answer::Deployed { slot }, code, _) => {
                    self.spared += u64::from(!uploaded && matches!(code, Code::Wasm(_) | Code::Bpf(_)));
                    lock(&self.connection.names).insert(slot, deployment.name.clone());
                    return Ok(Slot(slot));
                }
                (Answer::NeedsCode, Code::Wasm(code) | Code::Bpf(code), Body::Wasm(hash) | Body::Bpf(hash))
                    if !uploaded =>
                {
                    uploaded = true;
                    self.upload(hash, code)?;
                }
                (Answer::NeedsLibrary { hash }, Code::Library(libraries), _) if !uploaded => {
                    let bytes = libraries.bytes(&Digest(hash)).ok_or_else(|| {
                        self.connection.unexpected("it asks for a library that is not in the package")
                    })?;
                    uploaded = true;
                    self.upload(hash, &bytes.clone())?;
                }
                // Also of an agent whose cache is smaller than the body.
                _ => {
                    let cause = format!("the agent did not keep the code of {}", deployment.name);
                    let next = "start the agent with a larger --limit cache=BYTES";
                    return Err(Fault::new(self.site.to_string(), cause, next));
                }
            }
        }
    }

    fn initialize(&mut self, slot: Slot) -> Result<()> {
        self.done(Request::Initialize { slot: slot.0 })
    }

    fn start(&mut self, slot: Slot) -> Result<()> {
        self.done(Request::Start { slot: slot.0 })
    }

    /// The empty name: a channel over the control connection. Any other: over the message engine.
    fn connect(&mut self, slot: Slot, name: &str, specification: Specification) -> Result<Box<dyn Channel>> {
        let (slot, name) = (slot.0, name.to_owned());
        let Connection { shared, next, .. } = &*self.connection;
        let unexpected = |what| self.connection.unexpected(what);
        if name.is_empty() {
            possible::within(&specification, BUFFERS).map_err(|why| why.fault(self.site.to_string()))?;
            let channel = next.fetch_add(1, Ordering::Relaxed);
            let end = shared.channels.open(channel, specification, shared.outbox.clone(), Vec::new());
            let end = end.ok_or_else(|| unexpected("the numbers of its channels have run out"))?;
            self.done(Request::Connect { slot, name, specification, way: ChannelCarrier::OutOfBand { channel } })?;
            return Ok(Box::new(end));
        }
        possible::to_another_host(&specification, BUFFERS).map_err(|why| why.fault(self.site.to_string()))?;
        let prepared = Prepared::open(self.connection.here)?;
        let (to_agent, to_client) = (random()?, random()?);
        let session = u32::from_le_bytes(random()?);
        let way = ChannelCarrier::Engine { port: prepared.port(), session, to_agent, to_client };
        let Answer::Connected { port } = self.ask(Request::Connect { slot, name, specification, way })? else {
            return Err(unexpected("the agent answered a request for a channel with something else"));
        };
        let mut peer = self.address();
        peer.set_port(port);
        let agreement = Agreement { session, outward: to_agent, inward: to_client };
        // What the application asks for here is its own.
        let grant = |_| Ok(Vec::new());
        Ok(Box::new(prepared.join(peer, &agreement, specification, true, shared.link.clone(), grant)?))
    }

    fn adopt(&mut self, _slot: Slot, _name: &str, _end: Box<dyn Channel>) -> Result<ChannelId> {
        let cause = "an endpoint of this process cannot be used from another host";
        Err(Fault::new(self.site.to_string(), cause, "let the agent's site connect, and the other site adopt"))
    }

    fn shared(&self, _slot: Slot, map: &str) -> Result<SharedWords> {
        let cause = "it is memory of another host, which this process cannot map";
        let next = "read it by calls of the offcode, or place the offcode at a driver hook of this host";
        Err(Fault::new(format!("memory {map} at {}", self.site), cause, next))
    }

    fn connection(&self) -> Option<usize> {
        Some(Arc::as_ptr(&self.connection).addr())
    }

    fn join_here(&mut self, ends: [(Slot, &str); 2], specification: Specification) -> Result<()> {
        possible::to_another_host(&specification, BUFFERS).map_err(|why| why.fault(self.site.to_string()))?;
        self.done(Request::Join { ends: ends.map(|(slot, name)| (slot.0, name.to_owned())), specification })
    }

    fn set_attribute(&mut self, slot: Slot, name: &str, value: &str) -> Result<()> {
        self.done(Request::SetAttribute { slot: slot.0, name: name.into(), value: value.into() })
    }

    fn remove(&mut self, slot: Slot) -> Result<()> {
        // What is gone with its agent is removed.
        if self.lost().is_none() {
            self.done(Request::Remove { slot: slot.0 })?;
        }
        lock(&self.connection.names).remove(&slot.0);
        Ok(())
    }

    fn suspend(&mut self, slot: Slot) -> Result<State> {
        match self.ask(Request::Suspend { slot: slot.0 })? {
            Answer::State(state) => State::decode(&state),
            _ => Err(self.connection.unexpected("the agent answered a request for a state with something else")),
        }
    }

    fn restore(&mut self, slot: Slot, state: &State) -> Result<()> {
        let state = state.encode()?;
        let (part, length) = (self.connection.largest_part(), state.len() as u64);
        for (n, bytes) in state.chunks(part).enumerate() {
            self.done(Request::Restore { slot: slot.0, length, offset: (n * part) as u64, bytes })?;
        }
        Ok(())
    }

    fn resume(&mut self, slot: Slot) -> Result<()> {
        self.done(Request::Resume { slot: slot.0 })
    }

    fn ends(&mut self, slot: Slot) -> Result<Vec<EndAt>> {
        match self.ask(Request::Ends { slot: slot.0 })? {
            Answer::Ends(ends) => Ok(ends),
            _ => {
                Err(self.connection.unexpected("the agent answered a request for ends of channels with something else"))
            }
        }
    }

    fn evidence(&mut self, slot: Slot) -> Result<Evidence> {
        match self.ask(Request::Evidence { slot: slot.0 })? {
            Answer::Evidence(mut evidence) => {
                let agent = format!("agent at {}, process {}", self.address(), self.connection.welcome.process);
                evidence.whereabouts = format!("{agent}: {}", evidence.whereabouts);
                Ok(evidence)
            }
            _ => Err(self.connection.unexpected("the agent answered a request for evidence with something else")),
        }
    }

    fn map(&mut self, slot: Slot, name: &str) -> Result<Dump> {
        match self.ask(Request::Map { slot: slot.0, name: name.to_owned() })? {
            Answer::Map(dump) => Ok(dump),
            _ => Err(self.connection.unexpected("the agent answered a request for a map with something else")),
        }
    }

    fn lost(&self) -> Option<Fault> {
        AgentSite::lost(self)
    }

    fn arm(&mut self, sleep: &mut Sleep, _turn: Duration) -> bool {
        self.connection.shared.link.arm(sleep)
    }

    /// Checks that the agent is still there.
    fn turn(&mut self) -> Result<Activity> {
        if self.connection.shared.link.is_lost()
            && let Some(fault) = self.lost()
        {
            return Err(fault);
        }
        Ok(Activity::Idle)
    }
}
