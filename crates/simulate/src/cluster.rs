//! Programs on machines: ranks on cores, protocol work that competes with them, links that they share.
//!
//! Time is whole picoseconds. A message is pieces of `unit` bytes; a piece passes, each stage one after the other:
//! ```text
//! work(c, b)   = c.message (first piece) + b (c.byte f0/f + c.fixed)      f0/f: of the core that does it
//! copied       = the rank's core: copy; a send is over when all of it is copied and the sockets have no room, or when all is
//!                handed where the program waits for that
//! handed       = the rank's core: hand (x far), + send where the rank does it; as long as the connection's pieces that are
//!                copied and not handed fit `library`, those that are handed and not taken `socket`
//! ready        = max(handed, server's last) + send           engine core or device of the host; else handed
//! sent         = max(ready, link's last out) + b / rate      one of each direction a host
//! arrived      = max(sent + latency, link's last in + b / rate)
//! delivered    = max(arrived, server's last) + receive       interrupt core, engine core or device; else arrived
//! taken        = the rank's core: take (x far), + receive where the rank does it
//! opened       = max(taken + latency, interrupt core's last) + acknowledge
//! ```
//! Above `eager` a request goes first, and a clearance comes back when the receive is there; both are messages of 0 bytes, and
//! the data is not copied. Within a host `hand` + `inside` is all of a piece's way.
//!
//! A core works for one rank at a time: for that which came first, for a `slice` where others want it. Interrupt work stops
//! the rank on its core. A rank moves pieces while it computes nothing, its sends before all else; what [`Progress`] says
//! else. Where several pieces could move, the first does. A rank that spins keeps its core until the slice ends.

use machine::CoreId;
use machine::fault::{Fault, Result};

use super::Program;
use profile::{Place, Profile};

mod channel;
pub mod costs;
mod engine;
mod matching;
pub mod power;
pub mod profile;
pub mod random;
pub mod recording;
mod resources;
#[cfg(test)]
mod tests;

/// Picoseconds.
pub type Time = u64;

/// A core of a host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Core {
    pub id: CoreId,
    pub package: u32,
    /// f0/f: the factor by which its work takes longer than at full clock.
    pub dilation: f64,
}

/// A host of a cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Host {
    pub name: String,
    pub cores: Vec<Core>,
    /// Indices in `cores`: the core that takes the interrupts, and those that are engines'.
    pub interrupts: usize,
    pub engines: Vec<usize>,
}

/// The network of the hosts: one link each, through a switch that is never full.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Time from sending the last byte to its arrival.
    pub latency: Time,
    /// Time per byte in each direction, ns; 0: no bound.
    pub byte: f64,
}

/// The place of a rank: its host, and the index of its core there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat {
    pub host: usize,
    pub core: usize,
}

/// The hosts, their network, the protocol, and the seats of the ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    pub hosts: Vec<Host>,
    pub link: Link,
    pub profile: Profile,
    pub seats: Vec<Seat>,
    /// The time slice of a rank whose core other ranks want.
    pub slice: Time,
    /// The share of computing that follows the clock: from 0, bound by memory, to 1.
    pub clocked: f64,
}

impl Cluster {
    /// # Errors
    /// A rank on a core that does not exist or is an engine's, no engine where the protocol needs one, a wrong number of seats.
    pub fn check(&self, ranks: u32) -> Result<()> {
        if self.seats.len() != ranks as usize {
            let cause = format!("it has {ranks} ranks, and the mapping {}", self.seats.len());
            return Err(Fault::new("the program", cause, "map each rank to a core"));
        }
        for host in &self.hosts {
            let free = |at: &usize| *at < host.cores.len();
            if !free(&host.interrupts) || !host.engines.iter().all(free) {
                return Err(Fault::new(
                    &host.name,
                    "interrupts or engine are on a core it lacks",
                    "name one of its cores",
                ));
            }
            if self.profile.place == Place::Engine && host.engines.is_empty() {
                let next = "leave a core without ranks and name it: engines = [N]";
                return Err(Fault::new(&host.name, "no core is free for an engine", next));
            }
        }
        for (rank, seat) in self.seats.iter().enumerate() {
            let subject = || format!("rank {rank}");
            let Some(host) = self.hosts.get(seat.host) else {
                return Err(Fault::new(subject(), "it is on a host that is not there", "map it to another"));
            };
            if seat.core >= host.cores.len() {
                let cause = format!("{} has {} cores", host.name, host.cores.len());
                return Err(Fault::new(subject(), cause, "map it to one of them"));
            }
            if self.profile.place == Place::Engine && host.engines.contains(&seat.core) {
                let cause = format!("{} of {} is an engine's", host.cores[seat.core].id, host.name);
                return Err(Fault::new(subject(), cause, "map it to another core, or give the engine another"));
            }
        }
        Ok(())
    }
}

/// An activity of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    Computing,
    /// In a send that is not over.
    Sending,
    Waiting,
}

/// A period in which a rank does one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stay {
    pub rank: u32,
    pub doing: Doing,
    pub from: Time,
    pub to: Time,
}

/// An event for the observer of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    Stay(Stay),
    /// An operation of a rank is over.
    Over {
        rank: u32,
        at: Time,
    },
}

/// The split of a rank's time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Split {
    pub computing: Time,
    pub sending: Time,
    pub waiting: Time,
}

impl Split {
    pub fn add(&mut self, doing: Doing, time: Time) {
        *match doing {
            Doing::Computing => &mut self.computing,
            Doing::Sending => &mut self.sending,
            Doing::Waiting => &mut self.waiting,
        } += time;
    }
}

/// The split of a core's busy time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Busy {
    /// Computing of its ranks.
    pub computing: Time,
    /// Messages that its ranks moved themselves.
    pub messages: Time,
    /// Work for interrupts, or of an engine.
    pub protocol: Time,
}

impl Busy {
    pub fn total(&self) -> Time {
        self.computing + self.messages + self.protocol
    }
}

/// The result of a simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// By rank: the time of its end.
    pub ranks: Vec<Time>,
    pub splits: Vec<Split>,
    /// By host and core.
    pub cores: Vec<Vec<Busy>>,
    /// Busy time of each host's device.
    pub devices: Vec<Time>,
    /// All work that was requested of cores and devices: the sum of their busy times.
    pub charged: Time,
    pub messages: u64,
    pub sent: u64,
    pub received: u64,
    /// The most bytes held for ranks and messages on their way.
    pub memory: usize,
}

impl Finished {
    /// The end of the last rank.
    pub fn total(&self) -> Time {
        self.ranks.iter().copied().max().unwrap_or(0)
    }
}

/// Runs a program from time 0 to its end.
///
/// # Errors
/// As [`Cluster::check`]; a message that nobody receives, a receive that no message comes for, operations that require each
/// other, more time than 64 bits of picoseconds hold.
pub fn simulate(program: &mut dyn Program, cluster: &Cluster) -> Result<Finished> {
    observe(program, cluster, &mut |_| ())
}

/// The same, with stays and operations in the order of their ends.
///
/// # Errors
/// As [`simulate`].
pub fn observe(program: &mut dyn Program, cluster: &Cluster, see: &mut dyn FnMut(Seen)) -> Result<Finished> {
    cluster.check(program.ranks())?;
    engine::Engine::of(program, cluster, see).run()
}
