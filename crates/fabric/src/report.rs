//! The line that a closing endpoint prints for `plimsoll mpirun`, which gathers them.

use std::io::Write;

use endpoint::{Endpoint, Paths, Report};
use linux::clock;
use machine::Result;
use serde::Serialize;

use crate::account::Sums;
use crate::host::host;
use crate::memory::Memory;
use crate::remote::Begun;

#[derive(Serialize)]
struct Line {
    /// The process's rank, if its launcher tells it.
    rank: Option<u32>,
    host: String,
    /// Version of the libfabric that loaded the provider.
    libfabric: Option<String>,
    account_calls: Option<u64>,
    account_nanoseconds: Option<u64>,
    account_idle_nanoseconds: Option<u64>,
    /// CPU time of the process so far.
    cpu_nanoseconds: u64,
    /// Remote operations, which travel in messages of the ports.
    remote: Begun,
    #[serde(flatten)]
    report: Report,
}

/// Environment variables in which launchers pass the rank: Open MPI, PMIx, PMI.
const RANKS: [&str; 3] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"];

fn rank() -> Option<u32> {
    RANKS.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

/// `account`: the sums, if counted. `remote`: the endpoint's remote operations. `lingered`: whether all sends are known to have arrived.
pub fn tell(engine: &mut Endpoint<Paths, Memory>, account: Option<Sums>, remote: Begun, lingered: Result<()>) {
    let mut report = match engine.report() {
        Ok(report) => report,
        Err(fault) => return eprintln!("plimsoll: {fault}"),
    };
    if let Err(fault) = lingered {
        report.notes.push(format!("it closed although {fault}"));
    }
    if account.is_some() && !clock::is_counted() && !report.notes.iter().any(|note| note == clock::NOT_COUNTED) {
        report.notes.push(clock::NOT_COUNTED.into());
    }
    match line(report, account, remote) {
        // One write, since launchers mix the pieces of several ranks' writes.
        Ok(text) => drop(std::io::stderr().write_all(format!("plimsoll-report {text}\n").as_bytes())),
        Err(error) => eprintln!("plimsoll: report: {error}"),
    }
}

/// The report as JSON.
pub fn line(report: Report, account: Option<Sums>, remote: Begun) -> serde_json::Result<String> {
    serde_json::to_string(&Line {
        rank: rank(),
        libfabric: host().map(|host| format!("{}.{}", host.version >> 16, host.version & 0xffff)),
        host: std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_string(),
        account_calls: account.map(|sums| sums.calls),
        account_nanoseconds: account.map(|sums| sums.inside),
        account_idle_nanoseconds: account.map(|sums| sums.empty_polls),
        cpu_nanoseconds: linux::accounting::process_time(std::process::id()).unwrap_or_default().0,
        remote,
        report,
    })
}
