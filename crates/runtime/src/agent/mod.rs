//! The agent: a small daemon that gives another host, or a DPU's cores, to offcodes. [`crate::site::agent::AgentSite`]
//! is its client.
//!
//! # What is protected, and what is not
//! - Control (requests, code, the out-of-band channel) travels over TLS 1.3; both sides show a certificate of the user's
//!   own authority ([`keys`]). Whoever has no such certificate gets no further than the handshake.
//! - Specialized channels travel over UDP by the message engine. Each has two keys of its own, agreed over TLS, by
//!   which every packet is encrypted and authenticated (AES-256-GCM); what was not made with the key is dropped
//!   and counted. An observer still sees addresses, sizes and times, and one who can drop packets can stop a channel.
//! - An authenticated client is trusted with the agent's processor time, up to [`Limits::cpu_per_client`], with what its
//!   native bodies can do, and with all frames of the driver hooks that the agent was given. A wasm
//!   body is bounded in memory and time, and compiled beside the site's thread, one client's after another's; what a
//!   client asks for is bounded by [`Limits`], alone and together with all others.
//!
//! # Who may end whom
//! A client that closes, dies or falls silent loses its offcodes: they are stopped and removed. An agent that dies is
//! seen by its client within seconds as a fault that names the agent and the offcodes lost.
//!
//! An agent with native bodies of one's own is a program that calls [`serve`] with a [`Registry`] of them.

mod code_cache;
mod compiler;
pub(crate) mod engine_channel;
pub(crate) mod engine_end;
mod flow;
mod frame;
mod gate;
mod host;
pub(crate) mod journal;
pub mod keys;
mod limits;
pub(crate) mod out_of_band;
pub(crate) mod protocol;
mod pump;
mod replay;
mod sealed;
mod session;
mod state;
pub(crate) mod wire;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use linux::doorbell::Doorbell;
use machine::channel::Bell;
use machine::{Fault, Machine, Nanoseconds, Result, Source};
use offcode::Registry;
use rustls::ServerConfig;

pub use journal::{Reason, sparing};
pub use limits::Limits;
pub use protocol::{DEFAULT_PORT, Survey};

use code_cache::CodeCache;
use compiler::Compiler;
use gate::Gate;
use host::{Host, Orders, Ringer};
use journal::Journal;
use limits::Budgets;
use protocol::{Frame, Trouble};
use session::Session;
use state::AgentState;
use wire::{Outbox, Wire};

use crate::ground::NativeBodies;
use crate::site::{Preparation, SiteDriver};

/// Options of an agent.
#[derive(Debug, Clone)]
pub struct Options {
    pub listen: SocketAddr,
    /// The folder that [`keys::make`] made for this host.
    pub keys: PathBuf,
    pub limits: Limits,
}

/// An agent that listens.
pub struct Agent {
    listener: TcpListener,
    config: Arc<ServerConfig>,
    common: Arc<AgentState>,
    sites: Vec<Box<dyn SiteDriver>>,
    bell: Arc<Doorbell>,
}

/// Summary of an agent's run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    pub clients: u64,
    /// Number of refusals, by reason.
    pub refused: BTreeMap<Reason, u64>,
}

/// Listens and serves until `stop` says so: for programs that link bodies of their own. `sites` run the bodies; the first
/// is `agent:HOST`, and no driver hook. `log` gets a line for each client, and one for each that was refused.
pub fn serve(
    options: &Options,
    registry: Registry,
    sites: Vec<Box<dyn SiteDriver>>,
    stop: impl Fn() -> bool,
    log: impl Fn(&str) + Send + Sync + 'static,
) -> Result<Summary> {
    Agent::bind(options, registry, sites, log)?.run(stop)
}

impl Agent {
    pub fn bind(
        options: &Options,
        registry: Registry,
        sites: Vec<Box<dyn SiteDriver>>,
        log: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Agent> {
        let config = keys::server(&options.keys)?;
        let survey = survey(&options.limits, &registry, &sites)?;
        let failed =
            |e| Fault::because(format!("address {}", options.listen), e, "choose another --listen ADDRESS:PORT");
        let listener = TcpListener::bind(options.listen).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let common = AgentState {
            limits: options.limits.clone(),
            budgets: Budgets::of_all(&options.limits),
            registry,
            cache: Mutex::new(CodeCache::new(options.limits.cache)),
            journal: Journal::new(Box::new(log)),
            survey,
        };
        Ok(Agent { listener, config, common: Arc::new(common), sites, bell: Doorbell::new()? })
    }

    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(|e| Fault::because("listener", e, "start the agent again"))
    }

    /// A bell that makes the agent ask whether it is to stop.
    pub fn bell(&self) -> Arc<dyn Bell> {
        self.bell.clone()
    }

    /// Serves until `stop` says so, which is asked with every signal ([`linux::signal::watch`]) and ring of
    /// [`Agent::bell`], then ends all clients and removes their offcodes.
    pub fn run(self, stop: impl Fn() -> bool) -> Result<Summary> {
        let Agent { listener, config, common, sites, bell } = self;
        let (orders, obeyed) = Orders::new()?;
        // The sites are threads of one host, which prepare code alike.
        let prepare = sites.first().map_or(Ok as Preparation, |site| site.preparation());
        let compiler = Arc::new(Compiler::start(prepare, common.clone(), orders.clone())?);
        let host = Host::new(sites, common.clone())?;
        let failed = |e| Fault::because("thread of the agent's site", e, "raise the limit on processes (ulimit -u)");
        let (own, ended) = (orders.bell(), Ringer(bell.clone()));
        let host = move || {
            let _ended = ended;
            host.run(&obeyed, &own);
        };
        let host = thread::Builder::new().name("agent site".into()).spawn(host).map_err(failed)?;
        let mut gate = Gate::new(listener, config, common.clone());
        let mut hall = Hall { common: common.clone(), orders, compiler, served: Vec::new(), admitted: 0 };
        let mut outcome = Ok(());
        while !stop() && outcome.is_ok() {
            outcome = gate.turn(&bell, |wire, from| hall.admit(wire, from));
            if host.is_finished() {
                let cause = "the thread of the agent's site has ended: a native body panicked";
                outcome =
                    Err(Fault::new("agent", cause, "read its message above, mend the body, start the agent again"));
            }
        }
        let clients = hall.admitted;
        hall.clear();
        // The hall held the last sender of orders, and its compiler another.
        let _ = host.join();
        outcome.map(|()| Summary { clients, refused: common.journal.counts() })
    }
}

/// The agent's offer to one client.
fn survey(limits: &Limits, registry: &Registry, sites: &[Box<dyn SiteDriver>]) -> Result<Survey> {
    let machine = Machine::read(&Source::live())?;
    Ok(Survey {
        architecture: std::env::consts::ARCH.to_owned(),
        cores: machine.topology.cpus.len() as u32,
        interfaces: machine.interfaces.into_iter().map(|interface| interface.name).collect(),
        sites: sites.iter().map(|site| protocol::listed(site.site(), site.ground().mode)).collect(),
        services: sites.iter().map(|site| site.ground().environment).collect(),
        offcodes: limits.offcodes_per_client as u64,
        memory: limits.sandboxes_per_client,
        buffers: limits.buffers,
        native: NativeBodies {
            linked: registry.manifests()?.iter().map(|manifest| manifest.package.guid).collect(),
            libraries: limits.native.clone(),
        },
        maps: limits.maps_per_client,
        cpu_share: limits.cpu_per_client,
        core_time: Nanoseconds(0),
    })
}

/// A client that is being served.
struct Served {
    address: IpAddr,
    outbox: Arc<Outbox>,
    thread: JoinHandle<()>,
}

/// Where authenticated clients are served, one thread each.
struct Hall {
    common: Arc<AgentState>,
    orders: Orders,
    compiler: Arc<Compiler>,
    served: Vec<Served>,
    admitted: u64,
}

impl Hall {
    fn admit(&mut self, wire: Wire, from: SocketAddr) {
        self.served.retain(|client| !client.thread.is_finished());
        let limits = &self.common.limits;
        let same = self.served.iter().filter(|client| client.address == from.ip()).count();
        let full = if self.served.len() >= limits.clients {
            Some(format!("{} clients are served already", limits.clients))
        } else if same >= limits.clients_per_address {
            Some(format!("{same} clients of its address are served already"))
        } else {
            None
        };
        if let Some(why) = full {
            let fault =
                Fault::new("agent", why.clone(), "end another client, or start the agent with a larger --limit");
            turn_away(wire, (&fault).into());
            return self.common.journal.refused(from, Reason::Clients, &why);
        }
        if let Err(why) = self.serve(wire, from) {
            self.common.journal.refused(from, Reason::Clients, &why);
        }
    }

    fn serve(&mut self, wire: Wire, from: SocketAddr) -> Result<(), String> {
        let here = wire.stream.local_addr().map_err(|e| e.to_string())?;
        let outbox = Arc::new(Outbox::new(self.common.limits.backlog.0 as usize).map_err(|e| e.to_string())?);
        let (common, orders, compiler) = (self.common.clone(), self.orders.clone(), self.compiler.clone());
        let session = Session::new(self.admitted, (from, here), common, orders, compiler, outbox.clone());
        let thread = thread::Builder::new().name("agent client".into()).spawn(move || session.run(wire));
        let thread = thread.map_err(|e| e.to_string())?;
        self.admitted += 1;
        self.served.push(Served { address: from.ip(), outbox, thread });
        Ok(())
    }

    fn clear(self) {
        for client in &self.served {
            client.outbox.close();
        }
        for client in self.served {
            let _ = client.thread.join();
        }
    }
}

/// Sends the reason, as far as the socket takes it at once.
fn turn_away(mut wire: Wire, why: Trouble) {
    let _ = std::io::Write::write_all(&mut wire.tls.writer(), &frame::encode(&Frame::Refused(why)));
    wire.tls.send_close_notify();
    let _ = wire.tls.write_tls(&mut wire.stream);
}
