//! What an endpoint did: what was asked, what ran, what carried the messages, and what shows it.

use engine::Counters;
use serde::{Deserialize, Serialize};

use crate::paths::Carried;

/// What went over one port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortReport {
    /// `shm`, `udp`, `afxdp:IFACE`, `xdp:IFACE`.
    pub port: String,
    #[serde(flatten)]
    pub carried: Carried,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub process: u32,
    pub asked: String,
    pub ran: String,
    /// Turns of a dedicated core's loop; the proof that it runs.
    pub engine_turns: Option<u64>,
    pub ports: Vec<PortReport>,
    pub packets_sent: u64,
    pub packets_received: u64,
    pub retransmitted: u64,
    pub duplicates: u64,
    pub malformed: u64,
    /// Large messages moved by one copy out of the sender's memory.
    pub single_copies: u64,
    /// Fallbacks and decisions, a sentence each.
    pub notes: Vec<String>,
}

impl Report {
    pub(crate) fn of(
        asked: String,
        ran: String,
        counters: &Counters,
        ports: Vec<PortReport>,
        notes: Vec<String>,
    ) -> Self {
        Report {
            process: std::process::id(),
            asked,
            ran,
            engine_turns: None,
            ports,
            packets_sent: counters.packets_sent,
            packets_received: counters.packets_received,
            retransmitted: counters.retransmitted,
            duplicates: counters.duplicates,
            malformed: counters.malformed,
            single_copies: counters.single_copies,
            notes,
        }
    }
}
