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
    pub counters: Counters,
    /// Fallbacks and decisions, a sentence each.
    pub notes: Vec<String>,
}
