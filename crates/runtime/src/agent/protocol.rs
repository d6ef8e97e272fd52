//! The protocol of an agent and its client, inside TLS: frames of a 32-bit little-endian length and a postcard body.
//!
//! ```text
//! client                                agent
//!   Hello { version }            ->
//!                                <-     Welcome | Refused
//!   Request { id, request }      ->
//!                                <-     Answer { id, outcome }
//!   Message, Credit, Close       <->    of out-of-band channels
//!   Ping                         ->     every second
//!                                <-     Pong
//! ```
//!
//! `Hello`, `Welcome` and `Refused` keep their numbers and shapes in every version.

use linux::interface_usage::InterfaceUsage;
use linux::xdp::Dump;
use machine::{Bytes, Fault, Nanoseconds, Site, XdpMode};
use offcode::{Manifest, Service, Specification};
use serde::{Deserialize, Serialize};

use crate::ground::NativeBodies;
use crate::site::{EndAt, Evidence};

pub(crate) const VERSION: u16 = 5;

/// The default port of agents.
pub const DEFAULT_PORT: u16 = 5311;

/// SHA-256 of a body.
pub(crate) type Hash = [u8; 32];

/// One frame, of either direction.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Frame<'a> {
    Hello {
        version: u16,
    },
    Welcome {
        version: u16,
        /// Process number of the agent, for whereabouts.
        process: u32,
        /// Largest frame and largest body that it takes.
        frame: u64,
        code: u64,
    },
    Refused(Trouble),
    Request {
        id: u32,
        #[serde(borrow)]
        request: Request<'a>,
    },
    Answer {
        id: u32,
        outcome: Result<Answer, Trouble>,
    },
    /// A message of an out-of-band channel.
    Message {
        channel: u32,
        payload: &'a [u8],
    },
    /// Total of messages read of that channel.
    Credit {
        channel: u32,
        read: u64,
    },
    /// The sender's end of that channel is gone.
    Close {
        channel: u32,
    },
    Ping,
    Pong,
}

/// One for each method of [`crate::site::SiteDriver`], one to send code and one to ask what there is.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Request<'a> {
    Deploy {
        /// Number of the site in the agent's survey.
        site: u32,
        name: String,
        manifest: Box<Manifest>,
        body: Body,
        attributes: Vec<(String, String)>,
    },
    /// A part of a body, in order from offset 0.
    Upload {
        hash: Hash,
        length: u64,
        offset: u64,
        bytes: &'a [u8],
    },
    Initialize {
        slot: u32,
    },
    Start {
        slot: u32,
    },
    Connect {
        slot: u32,
        name: String,
        specification: Specification,
        way: ChannelCarrier,
    },
    SetAttribute {
        slot: u32,
        name: String,
        value: String,
    },
    Remove {
        slot: u32,
    },
    Evidence {
        slot: u32,
    },
    Suspend {
        slot: u32,
    },
    /// A part of a state, in order from offset 0. With the last it is restored.
    Restore {
        slot: u32,
        length: u64,
        offset: u64,
        bytes: &'a [u8],
    },
    Resume {
        slot: u32,
    },
    Ends {
        slot: u32,
    },
    /// Asks for the agent's offer.
    Survey,
    /// Asks for the entries of a map of an offcode's object, for people.
    Map {
        slot: u32,
        name: String,
    },
    /// Asks what uses the interface of a driver hook.
    InterfaceUsage {
        /// Number of the site in the agent's survey.
        site: u32,
    },
    /// Joins two offcodes of this client by a channel in the agent's memory.
    Join {
        ends: [(u32, String); 2],
        specification: Specification,
    },
}

/// An agent's offer to one client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survey {
    /// Architecture, such as `aarch64`.
    pub architecture: String,
    /// Online cores of the host.
    pub cores: u32,
    /// Network interfaces of the host.
    pub interfaces: Vec<String>,
    /// What runs offcodes, by number: `core:3`, `app` for a thread of the agent that sleeps when idle, and driver hooks
    /// with their modes, such as `xdp:eth0:native`. The first is `agent:HOST`.
    pub sites: Vec<String>,
    /// Services of the runtime of each site, in the same order.
    pub services: Vec<Vec<Service>>,
    /// Most offcodes at once, and most memory of the client's sandboxed bodies together.
    pub offcodes: u64,
    pub memory: Bytes,
    /// Most bytes of the buffers of one channel, count times size.
    pub buffers: Bytes,
    pub native: NativeBodies,
    /// Most memory of the maps of its bodies at driver hooks together.
    pub maps: Bytes,
    /// Percent of each core that the client's offcodes may take there together; `None`: all of it.
    pub cpu_share: Option<u32>,
    /// Core time that these have taken since the client came, without driver hooks.
    pub core_time: Nanoseconds,
}

/// The entry of a site in a survey.
pub(crate) fn listed(site: &Site, mode: Option<XdpMode>) -> String {
    mode.map_or_else(|| site.to_string(), |mode| format!("{site}:{mode}"))
}

impl Survey {
    /// The number of the agent's site that is named so, such as `core:3` or `xdp:eth0`; without a name of its first.
    ///
    /// # Errors
    /// What it offers in its place, and how it is started to offer this.
    pub fn number(&self, part: Option<&str>, mode: Option<XdpMode>) -> Result<usize, Fault> {
        let Some(part) = part else { return Ok(0) };
        let mode = part.starts_with("xdp:").then_some(mode.unwrap_or(XdpMode::Native));
        let wanted = mode.map_or_else(|| part.to_owned(), |mode| format!("{part}:{mode}"));
        self.sites.iter().position(|offered| *offered == wanted).ok_or_else(|| {
            let option = match part.split_once(':') {
                Some(("xdp", _)) => format!("--hooks {}", wanted.trim_start_matches("xdp:")),
                _ => format!("--cores {}", part.trim_start_matches("core:")),
            };
            let cause = format!("the agent offers {}", self.sites.join(", "));
            Fault::new(part, cause, format!("choose one of these, or start the agent with {option}"))
        })
    }

    /// Sites that are no driver hooks; hooks have to be asked for by name.
    pub fn cores(&self) -> impl Iterator<Item = &str> {
        self.sites.iter().map(String::as_str).filter(|site| !site.starts_with("xdp:"))
    }
}

/// The source of the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Body {
    /// Linked into the agent under the package's GUID, else the manifest's library for the agent's machine.
    Native,
    Wasm(Hash),
    /// The object for a driver hook, by hash.
    Bpf(Hash),
}

/// The carrier of a channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ChannelCarrier {
    /// This connection, under a number that the client chose.
    OutOfBand { channel: u32 },
    /// The message engine over UDP, sealed under keys made for this channel.
    Engine { port: u16, session: u32, to_agent: [u8; 32], to_client: [u8; 32] },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Done,
    Deployed {
        slot: u32,
    },
    /// The agent lacks the body: upload it, then ask again.
    NeedsCode,
    /// The agent lacks the library of this hash.
    NeedsLibrary {
        hash: Hash,
    },
    /// `port` is the UDP port of the agent's end; 0 for an out-of-band channel.
    Connected {
        port: u16,
    },
    Evidence(Evidence),
    /// The encoded state.
    State(Vec<u8>),
    Ends(Vec<EndAt>),
    Survey(Survey),
    Map(Dump),
    InterfaceUsage(InterfaceUsage),
}

/// A [`Fault`] on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Trouble {
    subject: String,
    cause: String,
    next: String,
}

impl From<&Fault> for Trouble {
    fn from(fault: &Fault) -> Self {
        Trouble { subject: fault.subject().into(), cause: fault.cause().into(), next: fault.next().into() }
    }
}

impl From<Trouble> for Fault {
    fn from(trouble: Trouble) -> Self {
        Fault::new(trouble.subject, trouble.cause, trouble.next)
    }
}
