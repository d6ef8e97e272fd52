//! Costs of the profiler: an MPI call, and a message of NetPIPE, bare and profiled in alternation.

mod calls;
mod message;
mod page;

use std::fs;
use std::path::{Path, PathBuf};

use launch::Variables;
use launch::installation::Installation;
use launch::preload;
use machine::{CoreId, Fault, Probe, Result};
use record::folder;
use record::rank::Rank;
use rounds::estimate::Estimate;
use serde::Serialize;

pub use page::page;

use crate::scratch::Scratch;

machine::named! {
    /// The profiler's mode.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Mode {
        Bare = "bare",
        /// Counters, histograms and call sites.
        Tables = "tables",
        /// The tables, and every call in a timeline.
        Timeline = "tables and timeline",
    }
}

/// Most bytes of a thread's timeline: enough for a round.
const TRACE: u64 = 1 << 30;

/// Targets: most nanoseconds added per call, and the greatest ratio of a message's times.
pub const TABLES_NANOSECONDS: f64 = 25.0;
pub const TIMELINE_NANOSECONDS: f64 = 60.0;
pub const MESSAGE_RATIO: f64 = 1.05;

#[derive(Debug, Clone)]
pub struct Request {
    pub installations: Vec<Installation>,
    pub rounds: u32,
    /// The cores of the two ranks of NetPIPE; the first also runs the calls.
    pub cores: (CoreId, CoreId),
    /// This program, beside which the profiler's library lies.
    pub command: PathBuf,
}

/// One MPI's call of MPI_Send to MPI_PROC_NULL.
#[derive(Debug, Clone, Serialize)]
pub struct Call {
    pub library: String,
    /// Nanoseconds per call without the profiler.
    pub bare: Option<Estimate>,
    /// MPI_Send over PMPI_Send without the profiler: the method's own error.
    pub unloaded: Option<Estimate>,
    /// Nanoseconds added per call: in each start, the difference between blocks of MPI_Send and of PMPI_Send in alternation.
    pub tables: Option<Estimate>,
    pub timeline: Option<Estimate>,
    /// The part of two readings of the clock.
    pub clock: Option<Estimate>,
    /// Bytes of timeline per call.
    pub bytes: Option<f64>,
    pub failures: Vec<String>,
}

/// NetPIPE's half round trip of 8 bytes through Open MPI's shared memory.
#[derive(Debug, Clone, Serialize)]
pub struct Message {
    /// Half a round trip without the profiler, nanoseconds.
    pub bare: Option<Estimate>,
    /// Ratio to the bare time, within a round.
    pub tables: Option<Estimate>,
    pub timeline: Option<Estimate>,
    /// Distances of the cores before and after each start.
    pub probes: Vec<Probe>,
    pub failures: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Findings {
    pub rounds: u32,
    pub calls: Vec<Call>,
    /// `None` where NetPIPE is not installed, or a signal came before.
    pub message: Option<Message>,
}

/// Measures all, or as much as a signal leaves time for; `progress` is told of each start.
pub fn measure(request: &Request, mut progress: impl FnMut(&str)) -> Result<Findings> {
    let library = preload::library(&request.command)?;
    let mut calls = Vec::new();
    for installation in &request.installations {
        match calls::measure(request, installation, &library, &mut progress) {
            // The signal reaches compilers and launchers too.
            Err(_) if linux::signal::interrupted() => break,
            measured => calls.push(measured?),
        }
    }
    let message = (crate::reference::netpipe::is_installed() && !linux::signal::interrupted())
        .then(|| message::measure(request, &library, &mut progress));
    if linux::signal::interrupted() && calls.iter().all(|call| call.bare.is_none()) {
        let cause = "a signal ended it before anything was measured";
        return Err(Fault::new("plimsoll bench profiler", cause, "run it again"));
    }
    Ok(Findings { rounds: request.rounds, calls, message })
}

/// A folder for one profile, and the variables that make a job write it.
struct Profiled {
    folder: Scratch,
    variables: Variables,
}

impl Profiled {
    fn new(mode: Mode, library: &Path) -> Result<Profiled> {
        let failed = |e| Fault::because("folder for a profile", e, "free space in TMPDIR");
        let folder = Scratch::new("plimsoll-profile-", &std::env::temp_dir(), "a profile")?;
        fs::create_dir(folder.path().join(folder::RANKS)).map_err(failed)?;
        let variables = match mode {
            Mode::Bare => Variables::new(),
            Mode::Tables => preload::variables(library, folder.path(), 0, None),
            Mode::Timeline => preload::variables(library, folder.path(), TRACE, None),
        };
        Ok(Profiled { folder, variables })
    }

    /// Numbers of recorded sends and of timeline bytes, which prove that the timed calls were profiled.
    fn recorded(&self) -> Result<(u64, u64)> {
        let ranks = self.folder.path().join(folder::RANKS);
        let (mut sends, mut traced) = (0, 0);
        let send = record::functions::named("Send").map(|function| function.id);
        for entry in fs::read_dir(&ranks).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|suffix| suffix == folder::RANK_SUFFIX) {
                let rank = Rank::open(&path)?;
                let rows = rank.rows.iter().filter(|row| Some(row.function) == send);
                sends += rows.flat_map(|row| &row.cells).map(|cell| cell.calls).sum::<u64>();
                traced += rank.threads.values().map(|thread| thread.traced).sum::<u64>();
            }
        }
        Ok((sends, traced))
    }
}
