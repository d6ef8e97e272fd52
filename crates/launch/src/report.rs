//! What the provider of one rank reports when its endpoint closes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One endpoint. Fields that an older or newer provider does not send are empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// In `MPI_COMM_WORLD`; `None` where the launcher does not tell.
    pub rank: Option<u32>,
    pub pid: u32,
    pub host: String,
    pub asked: Choice,
    pub ran: Choice,
    pub ports: Vec<Port>,
    /// Counters that prove the placement.
    pub evidence: BTreeMap<String, u64>,
    /// Only where it was asked for.
    pub account: Option<Account>,
    /// What did not run as it was asked, and what else the reader must know.
    pub notes: Vec<String>,
}

/// A placement and a network, as configured or as they ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Choice {
    pub placement: Option<String>,
    pub network: Option<String>,
}

/// What one port carried.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Port {
    /// `shm`, `udp`, `afxdp:IFACE` or `xdp:IFACE`.
    pub port: String,
    pub peers: u64,
    pub sent: Traffic,
    pub received: Traffic,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Traffic {
    pub messages: u64,
    pub bytes: u64,
    pub packets: u64,
}

/// Time inside the provider's calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Account {
    pub calls: u64,
    pub nanoseconds: u64,
}

/// All reports of a job, sorted by rank.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Reports {
    pub endpoints: Vec<Report>,
    /// Report lines that could not be read: mixed by the launcher, or cut.
    pub damaged: usize,
}

impl Reports {
    /// Reads the texts of report lines.
    pub fn read(lines: &[String]) -> Reports {
        let mut endpoints: Vec<Report> = lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
        endpoints.sort_by_key(|report| (report.rank.unwrap_or(u32::MAX), report.pid));
        Reports { damaged: lines.len() - endpoints.len(), endpoints }
    }

    /// Ranks that reported, each once: a rank may have opened several endpoints.
    pub fn ranks(&self) -> usize {
        let mut processes: Vec<_> = self.endpoints.iter().map(|report| (&report.host, report.pid)).collect();
        processes.sort_unstable();
        processes.dedup();
        processes.len()
    }

    /// Messages that the engine delivered to ranks, over all ports.
    pub fn messages(&self) -> u64 {
        self.endpoints.iter().flat_map(|report| &report.ports).map(|port| port.received.messages).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_sorted_and_what_is_damaged_is_counted() {
        let lines = [
            r#"{"rank":1,"pid":11,"host":"a","ports":[{"port":"shm","received":{"messages":4}}],"news":true}"#,
            r#"{"rank":0,"pid":10,"host":"a"}"#,
            r#"{"rank":0,"pid":10,"host":"a","ports":[{"port":"udp","received":{"messages":3}}]}"#,
            r#"{"rank":2,"pid""#,
        ];
        let reports = Reports::read(&lines.map(str::to_owned));
        assert_eq!(reports.endpoints.iter().map(|report| report.rank).collect::<Vec<_>>(), [Some(0), Some(0), Some(1)]);
        assert_eq!((reports.damaged, reports.ranks(), reports.messages()), (1, 2, 7));
    }
}
