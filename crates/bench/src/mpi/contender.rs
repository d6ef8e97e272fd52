//! Contenders: transports of two ranks' messages; and seats of the ranks.

use std::fmt;
use std::path::Path;

use launch::Variables;
use launch::carriers::{Carrier, Reach};
use launch::engine::{Engine, Network, Semantics};
use launch::installation::Installation;
use launch::provider::Provider;
use machine::costs::ENGINE;
use machine::{CoreId, Dilation, Site};
use serde::Serialize;

use super::pattern::{Pattern, Task};

/// A transport of an MPI: the engine at a placement, or one of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contender {
    Engine {
        placement: Site,
        /// `None` on one host, where ranks share memory.
        network: Option<Network>,
    },
    Peer(Carrier),
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Contender::Engine { placement, network: None } => format!("plimsoll at {placement}"),
            Contender::Engine { placement, network: Some(network) } => format!("plimsoll at {placement}, {network}"),
            Contender::Peer(peer) => peer.to_string(),
        };
        f.pad(&text)
    }
}

impl Serialize for Contender {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Contender {
    pub fn is_engine(&self) -> bool {
        matches!(self, Contender::Engine { .. })
    }

    /// Name of the carrier: of the engine at the ranks' cores its network, or `plimsoll`; `None` of an engine's core.
    pub fn name(&self) -> Option<&str> {
        match self {
            Contender::Engine { placement: Site::App, network } => {
                Some(network.as_ref().map_or(ENGINE, |network| network.kind().name()))
            }
            Contender::Engine { .. } => None,
            Contender::Peer(carrier) => Some(&carrier.name),
        }
    }

    /// The core that its engine needs for itself.
    pub fn core(&self) -> Option<CoreId> {
        match self {
            Contender::Engine { placement: Site::Core(core), .. } => Some(*core),
            _ => None,
        }
    }

    /// Whether this can carry `task` there. An engine on rank 1's core only serves patterns in which that rank waits.
    pub fn can(&self, seats: &Seats, task: &Task) -> bool {
        let shares = seats.hosts != Hosts::Nodes && self.core() == Some(seats.cores.1);
        seats.hosts.can(task) && (!shares || task.pattern == Pattern::Overlap)
    }

    pub(crate) fn variables(
        &self,
        installation: &Installation,
        provider: Option<&Provider>,
        command: &Path,
        interface: Option<&str>,
        account: bool,
    ) -> Option<Variables> {
        match self {
            Contender::Engine { placement, network } => {
                let (placement, network) = (placement.clone(), network.clone());
                let semantics = Semantics::Matched;
                let engine = Engine { placement, network, semantics, dilation: Dilation::NONE, account };
                Some(engine.variables(installation, provider?, command))
            }
            Contender::Peer(peer) => peer.variables(installation, interface.map_or(Reach::Host, Reach::Between)),
        }
    }
}

/// Whether the ranks are on one host, on the two of a lab, or on two nodes of a batch system's job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hosts {
    One,
    Lab,
    Nodes,
    /// One host, where this many ranks share two cores.
    Crowd(u32),
}

impl Hosts {
    pub fn ranks(self) -> u32 {
        if let Hosts::Crowd(ranks) = self { ranks } else { 2 }
    }

    /// Whether ranks on these hosts can run `task`.
    pub fn can(self, task: &Task) -> bool {
        task.pattern.is_of_all() == matches!(self, Hosts::Crowd(_))
    }
}

machine::named! {
    /// The hosts asked for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum WantedHosts ("hosts") {
        One = "one",
        Lab = "lab",
        /// Two nodes of a batch system's job.
        Nodes = "nodes",
        /// One host and, in a job of two nodes, these nodes, or else the lab.
        #[default]
        Both = "both",
    }
}

/// Cores of the ranks, and of the kernel's receive work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Seats {
    pub hosts: Hosts,
    /// The cores of rank 0, which sends, and of rank 1.
    pub cores: (CoreId, CoreId),
    /// The core that does the receive processing of both hosts.
    pub protocol_core: Option<CoreId>,
}

impl fmt::Display for Seats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, second) = self.cores;
        let place = match self.hosts {
            Hosts::One => "one host",
            Hosts::Crowd(ranks) => return write!(f, "one host, {ranks} ranks on cores {} and {}", first.0, second.0),
            Hosts::Lab => "two hosts over veth",
            Hosts::Nodes => "two nodes",
        };
        write!(f, "{place}, ranks on cores {} and {}", first.0, second.0)?;
        match self.protocol_core {
            Some(core) if core == second => write!(f, ", receive processing on core {}: the receiver's", core.0),
            Some(core) if core == first => write!(f, ", receive processing on core {}: the sender's", core.0),
            Some(core) => write!(f, ", receive processing on core {}", core.0),
            None => Ok(()),
        }
    }
}

/// Contenders for `seats`, and why others were left out. `free` is a core for the engine beside those of the ranks, or the
/// reason why there is none: it then shares rank 1's; `carriers` are those between these hosts besides the engine.
pub fn usual(
    seats: &Seats,
    free: Result<CoreId, String>,
    interface: &str,
    carriers: Vec<Carrier>,
) -> (Vec<Contender>, Vec<String>) {
    let mut contenders = Vec::new();
    let mut notes = Vec::new();
    let networks = match seats.hosts {
        Hosts::One | Hosts::Crowd(_) => vec![None],
        Hosts::Lab | Hosts::Nodes => Network::all(interface).into_iter().map(Some).collect(),
    };
    for network in &networks {
        contenders.push(Contender::Engine { placement: Site::App, network: network.clone() });
    }
    let core = match free {
        Ok(core) => Some(core),
        Err(why) if matches!(seats.hosts, Hosts::One | Hosts::Lab) => {
            let core = seats.cores.1;
            notes.push(format!("plimsoll at core:{} for overlap only, where rank 1 waits on that core: {why}", core.0));
            Some(core)
        }
        Err(why) => {
            notes.push(format!("plimsoll at core:N left out: {why}"));
            None
        }
    };
    if let Some(core) = core {
        contenders.push(Contender::Engine { placement: Site::Core(core), network: networks[0].clone() });
    }
    contenders.extend(carriers.into_iter().map(Contender::Peer));
    (contenders, notes)
}

#[cfg(test)]
mod tests {
    use machine::Bytes;
    use rounds::point::Receiver;

    use super::*;

    #[test]
    fn an_engine_on_a_core_takes_part_where_there_is_one_to_spare() {
        let seats = |hosts| Seats { hosts, cores: (CoreId(0), CoreId(1)), protocol_core: None };
        let (two, notes) = usual(&seats(Hosts::One), Err("2 cores".to_owned()), "lab0", Vec::new());
        let task = |pattern| Task { pattern, size: Bytes(8), receiver: Receiver::Reads };
        let can = |pattern| two.iter().filter(|one| one.can(&seats(Hosts::One), &task(pattern))).count();
        assert_eq!([Pattern::Latency, Pattern::Overlap, Pattern::Ring].map(can), [1, 2, 0]);
        assert_eq!(notes, ["plimsoll at core:1 for overlap only, where rank 1 waits on that core: 2 cores"]);
        let (crowd, notes) = usual(&seats(Hosts::Crowd(4)), Err("shared".to_owned()), "lab0", Vec::new());
        assert_eq!((crowd.len(), &notes[..]), (1, &["plimsoll at core:N left out: shared".to_owned()][..]));
        let carriers = ["ucx", "tcp"].map(|name| launch::carriers::named(name).unwrap()).to_vec();
        let (three, notes) = usual(&seats(Hosts::Lab), Ok(CoreId(2)), "lab0", carriers);
        let names: Vec<_> = three.iter().map(Contender::to_string).collect();
        let all = "plimsoll at app, udp|plimsoll at app, afxdp:lab0|plimsoll at app, xdp:lab0|plimsoll at core:2, udp|ucx|tcp";
        assert_eq!((names.join("|").as_str(), notes.len()), (all, 0));
        let names: Vec<_> = two.iter().chain(&three).map(Contender::name).collect();
        let short = ["udp", "afxdp", "xdp"].map(Some);
        assert_eq!(names, [&[Some("plimsoll"), None], &short[..], &[None, Some("ucx"), Some("tcp")]].concat());
    }
}
