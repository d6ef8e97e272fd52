//! What an endpoint did: what was asked, what ran, what carried the messages, and what shows it.

use engine::Counters;
use machine::{Port, Sent};
use serde::{Deserialize, Serialize};

use crate::dilation::Dilated;
use crate::driver::{Buffer, Driver};
use crate::semantics::Semantics;
use crate::settle::Placed;

/// Packets and bytes that went over one port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    pub packets_sent: u64,
    pub bytes_sent: u64,
    pub packets_received: u64,
    pub bytes_received: u64,
    /// Bytes read out of peers' memory.
    pub bytes_fetched: u64,
    pub peers: u64,
}

impl Carried {
    #[inline]
    pub(crate) fn count_sent(&mut self, sent: Sent, length: usize) {
        if sent == Sent::Taken {
            self.packets_sent += 1;
            self.bytes_sent += length as u64;
        }
    }

    #[inline]
    pub(crate) fn count_received(&mut self, length: usize) {
        self.packets_received += 1;
        self.bytes_received += length as u64;
    }
}

/// What went over one port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortReport {
    /// `shm`, `udp`, `afxdp:IFACE`, `xdp:IFACE`.
    pub port: String,
    #[serde(flatten)]
    pub carried: Carried,
}

/// Time in an emulated channel adapter, which on real hardware is not the host's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterTime {
    /// ns in which it took work requests or moved packets, with the port's part.
    pub nanoseconds: u64,
    /// ns in polls that found nothing.
    pub idle_nanoseconds: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub process: u32,
    pub asked: String,
    pub ran: String,
    /// Turns of a dedicated core's loop; the proof that it runs.
    pub engine_turns: Option<u64>,
    pub ports: Vec<PortReport>,
    pub counters: Counters,
    #[serde(default)]
    pub semantics: Semantics,
    /// With queue pairs, where it was counted: the adapter's part of the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<AdapterTime>,
    /// Where protocol work was stretched: by how much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dilated: Option<Dilated>,
    /// Fallbacks and decisions, a sentence each.
    pub notes: Vec<String>,
}

impl Report {
    /// Of a driver in this process, without what its port has to say.
    pub(crate) fn of<P: Port, B: Buffer>(driver: &Driver<P, B>, placed: &Placed) -> Report {
        Report {
            process: std::process::id(),
            asked: placed.asked.to_string(),
            ran: placed.ran.to_string(),
            engine_turns: None,
            ports: Vec::new(),
            counters: driver.engine.counters(),
            semantics: Semantics::Matched,
            adapter: None,
            dilated: None,
            notes: Vec::new(),
        }
    }
}
