//! Report of an endpoint: the placement asked for, the one that ran, the traffic of each port, and the evidence.

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
    // The two counts of one packet lie apart: of neighbours the compiler makes a vector, which costs more.
    pub packets_sent: u64,
    pub packets_received: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    /// Bytes read from peers' memory.
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

/// Traffic of one port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortReport {
    /// `shm`, `udp`, `afxdp:IFACE`, `xdp:IFACE`.
    pub port: String,
    #[serde(flatten)]
    pub carried: Carried,
}

/// Time in an emulated channel adapter, which real hardware takes off the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterTime {
    /// ns of taking work requests and moving packets, with the port's part.
    pub nanoseconds: u64,
    /// ns of polls that found nothing.
    pub idle_nanoseconds: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub process: u32,
    pub asked: String,
    pub ran: String,
    /// Polls of a dedicated core's loop; the proof that it runs.
    pub engine_turns: Option<u64>,
    pub ports: Vec<PortReport>,
    pub counters: Counters,
    #[serde(default)]
    pub semantics: Semantics,
    /// The adapter's time with queue pairs, where it was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<AdapterTime>,
    /// Counts of dilated protocol work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dilated: Option<Dilated>,
    /// Fallbacks and decisions, a sentence each.
    pub notes: Vec<String>,
}

impl Report {
    /// Report of a driver in this process, without its port's part.
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
