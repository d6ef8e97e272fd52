//! Programs over plimsoll's own message engine: each rank has a real [`engine::Engine`], real packets go between them over
//! virtual links, and a virtual clock charges what each engine does to the core on which it runs.
//!
//! When a message goes at once or waits for its receive, credit, acknowledgements, timers, retransmission and the order of
//! matching are the production code's. Its driver's turn is followed too: at most 64 packets taken in, timers, reads of
//! peers' memory, packets written, completions; where a core serves a host, at most 32 commands of a rank before that.
//! Messages have lengths and no bytes; packets are whole, headers included.
//!
//! Picoseconds; `n` are the bytes of a packet, engine's headers included, `b` those of a message:
//! ```text
//! send(b)     message + packets x packet + byte x bytes of its packets
//! receive(b)  the same; a message that came before its receive is copied twice: + byte x b
//! read(b)     of a message beyond the eager limit within a host, which is read out of the sender's memory, the receiver pays
//!             read + fetched x b in place of packet + byte x b
//! control     of rendezvous, credits and acknowledgements, and what is sent again: packet + byte x n
//! trip(n)     latency + wire x n; between hosts the wire is busy for wire x n at both ends, first come first served
//! app         all of it on the rank's own core, and only in calls: an engine turns when nothing of its rank can begin
//! core        all of it on the host's engine core, which turns the ranks' engines by turns; a look at each takes turn. For the
//!             rank handover + copied x b at each send, and at each end of a receive or of a send that did not fit the ring
//!             (b > 8 KiB, of which the engine reads the rank's memory: then without copied x b)
//! ```
//! So half a round trip of one packet is exactly `message + packet + byte n` at either end, `latency + wire n` between them,
//! and at `core` twice `handover + copied b` around them ([`Settings::of`] solves this for what was measured). A loaded
//! engine core sends or receives one message of one packet every `message + packet + byte n`.
//!
//! Not modelled: rings to the engine's core that are full, sockets' buffers, system calls shared by packets, several
//! networks of a host.
//!
//! ```no_run
//! use machine::costs::store;
//! use simulate::engines::{Placement, Settings, simulate};
//! use simulate::programs::{Lazy, PingPong};
//!
//! let settings = Settings::of(&store::live()?.costs, Placement::Core, 1, "udp", 0.0);
//! let outcome = simulate(&mut Lazy::of(PingPong { bytes: 8, rounds: 100 }), &settings)?;
//! println!("half a round trip takes {} ps", outcome.total() / 200);
//! # Ok::<(), machine::Fault>(())
//! ```

mod account;
mod events;
mod hosts;
mod message;
mod path;
mod settings;
#[cfg(test)]
mod tests;
mod world;

use engine::{Counters, Engine};
use machine::Result;

pub use hosts::{Hosts, Seated};
pub use settings::{Carrier, Placement, Settings, Work};

use super::Program;
use super::cluster::Split;

/// The result of a simulation. Times in picoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// By rank: the end of its last operation.
    pub ranks: Vec<u64>,
    /// By rank: the split of its time until then; a send that is not over counts before waiting, computing before both.
    pub splits: Vec<Split>,
    /// Time charged to the ranks' cores, without waiting: core by core of rank 0, then of rank 1.
    pub busy: Vec<u64>,
    /// Time charged to the engine's core of each host; none at `app`.
    pub engines: Vec<u64>,
    /// Computing, a part of `busy`.
    pub computing: u64,
    pub messages: u64,
    pub sent: u64,
    /// Bytes that were written to receivers' memory: as many as were sent.
    pub received: u64,
    /// Messages that came before their receives.
    pub unexpected: u64,
    /// Packets that the network lost.
    pub lost: u64,
    /// Bytes of packets written and of packets taken in, headers included.
    pub written: u64,
    pub taken: u64,
    /// Bytes copied a second time, those of `unexpected`.
    pub copied: u64,
    /// Bytes read out of peers' memory.
    pub fetched: u64,
    /// Transfers of cache lines from ranks to engines' cores and back.
    pub handovers: u64,
    /// Bytes inlined in these transfers.
    pub inlined: u64,
    /// The counters of each rank's engine.
    pub counters: Vec<Counters>,
    /// Bytes that ranks, engines and their peers hold, without operations in progress: see [`Outcome::IDLE_RANK`].
    pub memory: usize,
}

impl Outcome {
    /// Bytes of a rank that talks to nobody, its engine included.
    pub const IDLE_RANK: usize = size_of::<world::Rank>();
    /// Bytes of a rank's peer, the engine's part included.
    pub const PEER: usize = size_of::<world::Peer>() + Engine::<message::Message>::BYTES_PER_PEER;

    /// The end of the last rank.
    pub fn total(&self) -> u64 {
        self.ranks.iter().copied().max().unwrap_or(0)
    }

    /// The sum of a counter over the engines: `outcome.count(|counters| counters.retransmitted)`.
    pub fn count(&self, which: impl Fn(&Counters) -> u64) -> u64 {
        self.counters.iter().map(which).sum()
    }

    /// The share of time in which the busiest engine core was busy.
    pub fn load(&self) -> f64 {
        self.engines.iter().copied().max().unwrap_or(0) as f64 / self.total().max(1) as f64
    }
}

/// Runs a program from time 0 until all is over and acknowledged. The same settings and program give the same outcome, bit
/// for bit.
///
/// # Errors
/// Settings that cannot be; a cost that is not known; a message that nobody receives, a receive that no message comes for,
/// operations that require each other; a peer given up by an engine; more than 100 days.
pub fn simulate(program: &mut dyn Program, settings: &Settings) -> Result<Outcome> {
    world::World::of(program, settings)?.run()
}
