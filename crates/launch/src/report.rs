//! The report of one rank's provider at the end of its endpoint.

use std::collections::BTreeMap;
use std::path::Path;

use endpoint::{AdapterTime, Dilated, Semantics};
use machine::Bytes;
use machine::bounds::{REPORT_LINE, REPORTS};
use record::untrusted::Folder;
use serde::{Deserialize, Serialize};

/// Report of one endpoint. Fields that an older or newer provider does not send are empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Rank in `MPI_COMM_WORLD`; `None` where the launcher does not give it.
    pub rank: Option<u32>,
    pub host: String,
    pub process: u32,
    /// Version of the libfabric that loaded the provider.
    pub libfabric: Option<String>,
    /// The requested placement, and the actual one.
    pub asked: String,
    pub ran: String,
    pub ports: Vec<Port>,
    /// Turns of the loop on the engine's own core.
    pub engine_turns: Option<u64>,
    pub counters: Counters,
    pub remote: Remote,
    pub semantics: Semantics,
    /// Time of the emulated adapter, with queue pairs and where requested.
    pub adapter: Option<AdapterTime>,
    /// Requested and actual dilation, where the engine's work was stretched.
    pub dilated: Option<Dilated>,
    /// Counters that prove a placement.
    pub evidence: BTreeMap<String, u64>,
    /// Time inside the provider's calls, where requested.
    pub account_calls: Option<u64>,
    pub account_nanoseconds: Option<u64>,
    /// Part of that time in reads of completions that found none.
    pub account_idle_nanoseconds: Option<u64>,
    /// CPU time of the process until its endpoint closed.
    pub cpu_nanoseconds: Option<u64>,
    /// Whether the rank ended without a report: these are its counts shortly before.
    pub cut: bool,
    /// Fallbacks and decisions, a sentence each.
    pub notes: Vec<String>,
}

/// Counters of the engine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Messages of the rank, by the number of binary digits of their size, and their bytes.
    pub messages: Vec<u64>,
    pub message_bytes: Vec<u64>,
    pub retransmitted: u64,
    pub duplicates: u64,
    pub malformed: u64,
    /// Large messages moved by one copy out of the sender's memory.
    pub single_copies: u64,
    /// Single copies that failed; the bytes then came in packets.
    pub reads_refused: u64,
}

/// Operations on peers' memory that a rank has begun by the provider's calls for them, as MPIs do for one-sided operations.
/// They travel in messages of the ports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Remote {
    pub writes: u64,
    pub reads: u64,
    pub atomics: u64,
    pub bytes: u64,
}

impl Remote {
    pub fn is_none(&self) -> bool {
        self.writes + self.reads + self.atomics == 0
    }
}

/// Traffic of one port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Port {
    /// `shm`, `udp`, `afxdp:IFACE` or `xdp:IFACE`.
    pub port: String,
    pub peers: u64,
    pub packets_sent: u64,
    pub bytes_sent: u64,
    pub packets_received: u64,
    pub bytes_received: u64,
    /// Bytes read out of peers' memory.
    pub bytes_fetched: u64,
}

impl Port {
    /// Whether the port carried nothing.
    pub fn is_idle(&self) -> bool {
        self.packets_sent + self.packets_received + self.bytes_fetched == 0
    }

    fn add(&mut self, more: &Port) {
        self.peers += more.peers;
        self.packets_sent += more.packets_sent;
        self.bytes_sent += more.bytes_sent;
        self.packets_received += more.packets_received;
        self.bytes_received += more.bytes_received;
        self.bytes_fetched += more.bytes_fetched;
    }
}

/// All reports of a job, sorted by rank.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Reports {
    pub endpoints: Vec<Report>,
    /// Report lines that could not be read: interleaved by the launcher, or cut.
    pub damaged: usize,
}

impl Reports {
    /// Reads the texts of report lines.
    pub fn read(lines: &[String]) -> Reports {
        let mut endpoints: Vec<Report> = lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
        endpoints.sort_by_key(|report| (report.rank.unwrap_or(u32::MAX), report.process));
        Reports { damaged: lines.len() - endpoints.len(), endpoints }
    }

    /// Adds what endpoints that did not report had [`kept`].
    pub fn with(mut self, kept: &[String]) -> Reports {
        let kept = Reports::read(kept);
        self.damaged += kept.damaged;
        self.endpoints.extend(kept.endpoints.into_iter().map(|report| Report { cut: true, ..report }));
        self.endpoints.sort_by_key(|report| (report.rank.unwrap_or(u32::MAX), report.process));
        self
    }

    /// Ranks with a report, each once: a rank may have opened several endpoints.
    pub fn ranks(&self) -> usize {
        let mut processes: Vec<_> = self.endpoints.iter().map(|report| (&report.host, report.process)).collect();
        processes.sort_unstable();
        processes.dedup();
        processes.len()
    }

    /// Traffic of each port, over all endpoints.
    pub fn sums(&self) -> BTreeMap<&str, Port> {
        let mut sums: BTreeMap<&str, Port> = BTreeMap::new();
        for port in self.endpoints.iter().flat_map(|report| &report.ports) {
            sums.entry(&port.port).or_insert_with(|| Port { port: port.port.clone(), ..Port::default() }).add(port);
        }
        sums
    }

    /// Messages of all ranks, by the mean size of their class.
    pub fn messages(&self) -> BTreeMap<Bytes, u64> {
        let classes = self.endpoints.iter().map(|of| of.counters.messages.len()).max().unwrap_or(0);
        let sum = |of: fn(&Counters) -> &Vec<u64>, class: usize| -> u64 {
            self.endpoints.iter().filter_map(|report| of(&report.counters).get(class)).sum()
        };
        let all = (0..classes).filter_map(|class| {
            let (count, bytes) = (sum(|of| &of.messages, class), sum(|of| &of.message_bytes, class));
            Some((Bytes(bytes.checked_div(count)?), count))
        });
        all.collect()
    }

    /// Remote operations of all endpoints.
    pub fn remote(&self) -> Remote {
        self.endpoints.iter().map(|report| report.remote).fold(Remote::default(), |sum, more| Remote {
            writes: sum.writes + more.writes,
            reads: sum.reads + more.reads,
            atomics: sum.atomics + more.atomics,
            bytes: sum.bytes + more.bytes,
        })
    }

    /// Whether any port carried a packet.
    pub fn carried(&self) -> bool {
        self.endpoints.iter().flat_map(|report| &report.ports).any(|port| !port.is_idle())
    }

    /// Time inside the provider's calls, over all endpoints; `None` where no endpoint measured the time.
    pub fn account_nanoseconds(&self) -> Option<u64> {
        self.endpoints.iter().filter_map(|report| report.account_nanoseconds).reduce(|sum, more| sum + more)
    }
}

/// The reports that open endpoints keep in a folder, as far as those of a job may be long.
pub fn kept(folder: &Path) -> Vec<String> {
    let Ok(folder) = Folder::open(folder, None) else { return Vec::new() };
    let mut left = REPORTS.total.bytes().0;
    let names = folder.names("report").into_iter().flatten();
    let texts = names.filter_map(|name| {
        let text = folder.read(name, left.min(REPORT_LINE.each.bytes().0)).ok()?;
        left -= text.len() as u64;
        Some(String::from_utf8_lossy(&text).into_owned())
    });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_endpoints_have_kept_is_theirs_that_did_not_report() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("11-0.report", r#"{"rank":1,"process":11,"host":"a","ports":[{"port":"shm","packets_sent":5}]}"#);
        write("12-0.report", r#"{"rank":2,"process""#);
        write("13-0.fresh", r#"{"rank":3,"process":13}"#);
        write("14-0.report", &"{".repeat(REPORT_LINE.each.bytes().0 as usize + 1));
        std::fs::create_dir(folder.path().join("15-0.report")).unwrap();
        let told = [r#"{"rank":0,"process":10,"host":"a"}"#.to_owned()];
        let reports = Reports::read(&told).with(&kept(folder.path()));
        let found: Vec<_> = reports.endpoints.iter().map(|report| (report.rank, report.cut)).collect();
        assert_eq!((found, reports.damaged), (vec![(Some(0), false), (Some(1), true)], 1));
        assert_eq!(reports.sums()["shm"].packets_sent, 5);
    }

    #[test]
    fn reports_are_sorted_and_what_is_damaged_is_counted() {
        let lines = [
            r#"{"rank":1,"process":11,"host":"a","ports":[{"port":"shm","packets_received":4}],"remote":{"writes":2,"bytes":16},"news":true}"#,
            r#"{"rank":0,"process":10,"host":"a"}"#,
            r#"{"rank":0,"process":10,"host":"a","ports":[{"port":"shm","packets_received":3,"peers":1}]}"#,
            r#"{"rank":2,"process""#,
        ];
        let reports = Reports::read(&lines.map(str::to_owned));
        assert_eq!(reports.endpoints.iter().map(|report| report.rank).collect::<Vec<_>>(), [Some(0), Some(0), Some(1)]);
        assert_eq!((reports.damaged, reports.ranks(), reports.carried()), (1, 2, true));
        assert_eq!(reports.sums()["shm"].packets_received, 7);
        assert_eq!(reports.account_nanoseconds(), None);
        assert_eq!(reports.remote(), Remote { writes: 2, bytes: 16, ..Remote::default() });
        assert!(reports.endpoints[0].remote.is_none() && !reports.remote().is_none());
    }
}
