//! A point: one configuration that can be measured, named by its hash.

use std::fmt;
use std::str::FromStr;

use machine::{Bytes, CoreId, Dilation, Fault, NetworkKind, Site};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

machine::named! {
    /// The stack that moves the messages.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Stack ("stack") {
        /// plimsoll's engine over the `shm` port.
        EngineShm = "engine-shm",
        /// plimsoll's engine over the `udp` port.
        EngineUdp = "engine-udp",
        /// plimsoll's engine over the `afxdp` port: frames past the kernel's network stack.
        EngineAfxdp = "engine-afxdp",
        /// plimsoll's engine over the `xdp` port: packets are received by a program at the driver's hook.
        EngineXdp = "engine-xdp",
        /// The kernel's TCP through sockets.
        Tcp = "tcp",
        /// The kernel's UDP through sockets (unreliable: lost datagrams are counted).
        Udp = "udp",
        /// Open MPI through NetPIPE's `NPopenmpi`: an outside reference.
        OpenMpi = "open-mpi",
    }
}

impl Stack {
    /// The port to other hosts that the engine has there.
    pub fn network(self) -> Option<NetworkKind> {
        match self {
            Stack::EngineUdp => Some(NetworkKind::Udp),
            Stack::EngineAfxdp => Some(NetworkKind::Afxdp),
            Stack::EngineXdp => Some(NetworkKind::Xdp),
            Stack::EngineShm | Stack::Tcp | Stack::Udp | Stack::OpenMpi => None,
        }
    }

    /// plimsoll's own engine, which can be placed.
    pub fn is_engine(self) -> bool {
        matches!(self, Stack::EngineShm) || self.network().is_some()
    }

    /// Whether it attaches a program that sees every packet of its interface.
    pub fn attaches(self) -> bool {
        self.network().is_some_and(|network| network != NetworkKind::Udp)
    }

    /// Whether a verdict may choose it. Open MPI is an outside reference, kernel UDP loses messages.
    pub fn is_candidate(self) -> bool {
        self.is_engine() || self == Stack::Tcp
    }

    /// Whether its two ends can be on two hosts: not with shared memory, nor for the outside reference, which starts both here.
    pub fn passes_between_hosts(self) -> bool {
        !matches!(self, Stack::EngineShm | Stack::OpenMpi)
    }
}

machine::named! {
    /// The pattern in which messages follow one another.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Pattern ("pattern") {
        /// Ping-pong: half the round trip (paper 000 Fig. 5, paper 002 Fig. 5).
        PingPong = "ping-pong",
        /// NetPIPE's stream: one way, acknowledged once at the end (paper 000 Fig. 2).
        Stream = "stream",
        /// NetPIPE's stream with buffers that are in no cache (paper 000 Fig. 3).
        StreamNoCache = "stream-no-cache",
        /// Both ways at once with preposted receives (paper 000 Fig. 4).
        Bidirectional = "bidirectional",
        /// OSU's bandwidth: windows of 64 messages, each window acknowledged (paper 002 Fig. 2).
        Window = "window",
        /// OSU's message rate: as `Window`, counted in messages.
        MessageRate = "message-rate",
    }
}

impl Pattern {
    /// The unit of [`crate::sample::Sample::value`] and whether more is better.
    pub fn metric(self) -> Metric {
        match self {
            Pattern::PingPong => Metric::HalfRoundTrip,
            Pattern::MessageRate => Metric::MessagesPerSecond,
            _ => Metric::BytesPerSecond,
        }
    }
}

/// The meaning of a sample's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Nanoseconds, less is better.
    HalfRoundTrip,
    /// Bytes a second, more is better.
    BytesPerSecond,
    /// Messages a second, more is better.
    MessagesPerSecond,
}

impl Metric {
    pub fn more_is_better(self) -> bool {
        self != Metric::HalfRoundTrip
    }

    pub fn unit(self) -> &'static str {
        match self {
            Metric::HalfRoundTrip => "ns",
            Metric::BytesPerSecond => "B/s",
            Metric::MessagesPerSecond => "msg/s",
        }
    }
}

/// The path between the two ends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// Two processes on this host, over loopback or shared memory.
    Loopback,
    /// Two network namespaces of this host joined by veth.
    Lab,
    /// A second host that runs `plimsoll serve`.
    Remote(String),
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Loopback => f.pad("loopback"),
            Path::Lab => f.pad("lab"),
            Path::Remote(host) => f.pad(&format!("remote {host}")),
        }
    }
}

/// A stack, at an interface of this host where one is named: `engine-afxdp:eth0`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct StackAt {
    pub stack: Stack,
    pub interface: Option<String>,
}

impl From<Stack> for StackAt {
    fn from(stack: Stack) -> StackAt {
        StackAt { stack, interface: None }
    }
}

impl fmt::Display for StackAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.interface {
            Some(interface) => f.pad(&format!("{}:{interface}", self.stack)),
            None => f.pad(self.stack.name()),
        }
    }
}

impl FromStr for StackAt {
    type Err = Fault;

    fn from_str(text: &str) -> Result<StackAt, Fault> {
        let Some((stack, interface)) = text.split_once(':') else { return text.parse().map(Stack::into) };
        let stack: Stack = stack.parse()?;
        if !stack.attaches() || interface.is_empty() {
            let cause = if interface.is_empty() { "no interface is named" } else { "it works at no interface" };
            return Err(Fault::new(format!("stack '{text}'"), cause, "name one for afxdp or xdp, or leave it out"));
        }
        Ok(StackAt { stack, interface: Some(interface.to_owned()) })
    }
}

impl From<StackAt> for String {
    fn from(of: StackAt) -> String {
        of.to_string()
    }
}

impl TryFrom<String> for StackAt {
    type Error = Fault;

    fn try_from(text: String) -> Result<StackAt, Fault> {
        text.parse()
    }
}

machine::named! {
    /// The receiver's work on a message (paper 002 §5.1: the two differ on the protocol's core).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Receiver ("receiver") {
        /// Only takes it.
        Reads = "reads",
        /// Touches and computes on every byte.
        Works = "works",
    }
}

/// One configuration. Equal specifications are one point, in this run or in a later one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PointSpec {
    pub stack: Stack,
    /// Where message processing runs: `app` or `core:N` for the engine; `app` for the rest, whose processing the
    /// kernel does.
    pub placement: Site,
    pub pattern: Pattern,
    /// Message size before perturbation.
    pub size: Bytes,
    /// NetPIPE's perturbation: sizes `size - p`, `size` and `size + p` are measured in turn; 0 for none.
    pub perturbation: Bytes,
    pub path: Path,
    /// Core of the local application thread.
    pub local_core: CoreId,
    /// Core of the remote application thread.
    pub remote_core: CoreId,
    /// Core that does the kernel's receive processing (RPS), where it was steered.
    pub protocol_core: Option<CoreId>,
    pub receiver: Receiver,
    /// Core of the remote end's engine, where `placement` gives the local one a core; `None` in points of studies that
    /// left it to the peer, and not part of their keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_engine: Option<CoreId>,
    /// The interface that was asked for at the local end; `None` follows the route to the peer, and is not part of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Factor by which the engine's work is stretched at both ends; `None`: not stretched, and not part of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dilation: Option<Dilation>,
}

/// Hash of a point: 32 hexadecimal digits, its key in the store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PointKey(pub String);

impl PointSpec {
    /// The usual point of a study: on this host, between two cores, with nothing steered, dilated or perturbed.
    pub fn plain(stack: Stack, pattern: Pattern, size: u64, (local_core, remote_core): (CoreId, CoreId)) -> PointSpec {
        PointSpec {
            stack,
            placement: Site::App,
            pattern,
            size: Bytes(size),
            perturbation: Bytes(0),
            path: Path::Loopback,
            local_core,
            remote_core,
            protocol_core: None,
            receiver: Receiver::Reads,
            peer_engine: None,
            interface: None,
            dilation: None,
        }
    }

    pub fn key(&self) -> PointKey {
        let canonical = serde_json::to_vec(self).expect("a point always serializes");
        let digest = Sha256::digest(canonical);
        PointKey(digest[..16].iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The pair of interfaces of the lab that its packets pass: a stack that attaches programs has a pair of its own,
    /// unless an interface was named.
    pub fn lab_link(&self) -> u8 {
        match (self.stack, &self.path, &self.interface) {
            (Stack::EngineAfxdp, Path::Lab, None) => 1,
            (Stack::EngineXdp, Path::Lab, None) => 2,
            _ => 0,
        }
    }

    /// The stack for which its session needs an interface alone; `None` where sessions of other stacks may stay open.
    pub fn alone(&self) -> Option<Stack> {
        Some(self.stack).filter(|stack| stack.attaches() && self.lab_link() == 0)
    }

    /// The stack and placement, which is what reports compare.
    pub fn contender(&self) -> Contender {
        Contender { stack: self.stack, placement: self.placement.clone() }
    }
}

/// A stack at a placement: what a verdict chooses among.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Contender {
    pub stack: Stack,
    pub placement: Site,
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stack {
            Stack::Tcp | Stack::Udp => f.pad(&format!("{} in the kernel", self.stack)),
            Stack::OpenMpi => f.pad("open-mpi"),
            engine => f.pad(&format!("{engine} at {}", self.placement)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_point_keeps_its_key() {
        // The form stored by studies before the peer's engine was part of a point.
        let stored = r#"{"stack":"engine-udp","placement":"core:2","pattern":"ping-pong","size":8,"perturbation":3,"path":"lab","local_core":0,"remote_core":1,"protocol_core":null,"receiver":"reads"}"#;
        let old: PointSpec = serde_json::from_str(stored).unwrap();
        assert_eq!((old.peer_engine, serde_json::to_string(&old).unwrap().as_str()), (None, stored));
        assert_eq!(old.key().0, "4167a3fceafbb60ca66a357ecbc852b4");
        let keys = [0, 3].map(|core| PointSpec { peer_engine: Some(CoreId(core)), ..old.clone() }.key());
        assert!(keys[0] != keys[1] && !keys.contains(&old.key()));
        let named = PointSpec { interface: Some("eth0".into()), ..old.clone() };
        assert!(named.key() != old.key() && old.interface.is_none());
    }

    #[test]
    fn an_interface_is_of_stacks_that_work_at_one() {
        for text in ["engine-afxdp", "engine-xdp:ib0", "tcp"] {
            let read: StackAt = text.parse().unwrap();
            assert_eq!(read.to_string(), text);
            assert_eq!(serde_json::to_string(&read).unwrap(), format!("\"{text}\""));
        }
        for text in ["tcp:eth0", "engine-udp:eth0", "engine-afxdp:", "none:eth0"] {
            text.parse::<StackAt>().unwrap_err();
        }
    }
}
