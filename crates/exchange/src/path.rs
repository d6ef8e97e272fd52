//! Message paths: how two ends of a stack meet, and run jobs.

use std::net::{IpAddr, SocketAddr};

use endpoint::NetworkPath;
use machine::{CoreId, Dilation, Fault, Result, Site};
use ports::shm::ShmPort;
use rounds::point::Stack as StackName;
use serde::{Deserialize, Serialize};

use crate::endpoint::{Job, Outcome, Role, Watch};
use crate::pattern::{self, Pools};
use crate::stack::{Dilated, Offer, Stack, engine, tcp, udp};

/// The description of a session, as both ends get it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prepare {
    pub stack: StackName,
    pub placement: Site,
    /// Core to which this end's application thread is pinned; `None` leaves it where it is.
    pub core: Option<CoreId>,
    /// Address at which the responder waits; `None` takes that of its control connection.
    pub address: Option<IpAddr>,
    /// The interface that this end's packets must pass; `None` follows the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Factor by which the engine's work is stretched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dilation: Option<Dilation>,
    /// Whether both ends need the same core, so that polls that find nothing yield.
    pub polite: bool,
}

impl Prepare {
    fn at(&self) -> engine::At {
        engine::At { site: self.placement.clone(), dilation: self.dilation.unwrap_or(Dilation::NONE) }
    }
}

/// The responder's end before the initiator has come.
pub enum Waiting {
    EngineShm(engine::ShmWaiting),
    EngineNetwork(Box<engine::NetworkWaiting>),
    Tcp(tcp::Waiting),
    Udp(udp::Waiting),
}

/// The initiator's end before the responder expects it.
pub enum Calling {
    EngineNetwork(Box<engine::NetworkCaller>),
    /// A stack whose responder learns by itself who comes.
    Unannounced,
}

/// One end of a session's message path, whatever its stack.
pub enum Path {
    EngineShm(engine::EngineStack<ShmPort>),
    EngineNetwork(engine::EngineStack<NetworkPath>),
    Tcp(tcp::Tcp),
    Udp(udp::Udp),
}

macro_rules! each {
    ($path:expr, $stack:ident => $body:expr) => {
        match $path {
            Path::EngineShm($stack) => $body,
            Path::EngineNetwork($stack) => $body,
            Path::Tcp($stack) => $body,
            Path::Udp($stack) => $body,
        }
    };
}

impl Waiting {
    /// The responder's first step; the offer goes to the initiator.
    pub fn new(prepare: &Prepare, address: IpAddr) -> Result<(Waiting, Offer)> {
        match prepare.stack {
            StackName::EngineShm => engine::ShmWaiting::new(prepare.at()).map(|(w, o)| (Waiting::EngineShm(w), o)),
            stack if stack.network().is_some() => engine::NetworkWaiting::new(stack, address, prepare.at())
                .map(|(waiting, offer)| (Waiting::EngineNetwork(Box::new(waiting)), offer)),
            StackName::Tcp => tcp::Waiting::new(address).map(|(waiting, offer)| (Waiting::Tcp(waiting), offer)),
            StackName::Udp => udp::Waiting::new(address).map(|(waiting, offer)| (Waiting::Udp(waiting), offer)),
            stack => Err(unavailable(stack)),
        }
    }

    /// The responder's second step: waits for the initiator, which comes from `from` if it has said so.
    pub fn accept(self, from: Option<SocketAddr>) -> Result<Path> {
        match self {
            Waiting::EngineShm(waiting) => waiting.accept().map(Path::EngineShm),
            Waiting::EngineNetwork(waiting) => {
                let from = from.ok_or_else(|| {
                    Fault::new(
                        "the initiator",
                        "it did not say where its UDP port is",
                        "use the same version on both ends",
                    )
                })?;
                waiting.accept(from).map(Path::EngineNetwork)
            }
            Waiting::Tcp(waiting) => waiting.accept().map(Path::Tcp),
            Waiting::Udp(waiting) => waiting.accept().map(Path::Udp),
        }
    }
}

impl Calling {
    /// The initiator's first step towards the responder at `address`.
    pub fn new(prepare: &Prepare, address: IpAddr) -> Result<Calling> {
        match prepare.stack {
            stack if stack.network().is_some() => {
                engine::NetworkCaller::new(stack, address, prepare.interface.as_deref())
                    .map(|caller| Calling::EngineNetwork(Box::new(caller)))
            }
            _ => Ok(Calling::Unannounced),
        }
    }

    /// This end's address as the responder will see it, if it must know beforehand.
    pub fn from(&self) -> Option<SocketAddr> {
        match self {
            Calling::EngineNetwork(caller) => Some(caller.address()),
            Calling::Unannounced => None,
        }
    }

    /// The initiator's second step, while the responder accepts.
    pub fn connect(self, prepare: &Prepare, address: IpAddr, offer: &Offer) -> Result<Path> {
        match (self, prepare.stack) {
            (Calling::EngineNetwork(caller), _) => {
                caller.connect(SocketAddr::new(address, offer.port), &prepare.at(), offer).map(Path::EngineNetwork)
            }
            (_, StackName::EngineShm) => engine::connect_shm(&prepare.at(), offer).map(Path::EngineShm),
            (_, StackName::Tcp) => tcp::Tcp::connect(address, offer).map(Path::Tcp),
            (_, StackName::Udp) => udp::Udp::connect(address, offer).map(Path::Udp),
            (_, stack) => Err(unavailable(stack)),
        }
    }
}

impl Path {
    /// Runs one job at this end. `ready` is called once every receive that the initiator relies on is posted.
    #[allow(clippy::too_many_arguments)]
    pub fn perform(
        &mut self,
        job: &Job,
        role: Role,
        number: u64,
        pools: &mut Pools,
        polite: bool,
        watch: Watch<'_>,
        ready: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Outcome> {
        each!(self, stack => pattern::perform(stack, job, role, number, pools, polite, watch, ready))
    }

    pub fn idle(&mut self) -> Result<()> {
        each!(self, stack => stack.idle())
    }

    pub fn resume(&mut self) -> Result<()> {
        each!(self, stack => stack.resume())
    }

    pub fn threads(&self) -> Vec<(String, i32)> {
        each!(self, stack => stack.threads())
    }

    pub fn dilated(&mut self) -> Result<Option<Dilated>> {
        each!(self, stack => stack.dilated())
    }

    pub fn notes(&self) -> Vec<String> {
        each!(self, stack => stack.notes())
    }
}

fn unavailable(stack: StackName) -> Fault {
    Fault::new(
        format!("stack {stack}"),
        "this build has no such message path",
        "choose engine-shm, engine-udp, engine-afxdp, engine-xdp, tcp or udp",
    )
}
