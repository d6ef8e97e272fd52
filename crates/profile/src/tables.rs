//! One rank's tables, without their unused space.

use std::path::Path;

use machine::{Fault, Result};
use record::blocks::Mark;
use record::functions::FunctionId;
use record::layout::{Cell, Header, Module, Peer, Phase, Site, Thread, words};
pub use record::rank::Calls;
use record::rank::Rank;

use crate::summary::State;

/// One rank as recorded in its file.
#[derive(Debug, Clone)]
pub struct Tables {
    /// The name of its file.
    pub file: String,
    /// Place in [`crate::profile::Profile::worlds`].
    pub world: usize,
    pub header: Header,
    /// Length of a tick, seconds.
    pub tick: f64,
    /// Ticks at the last time, from samples or the job's end, at which the rank ran; 0 where its tables have the end.
    pub seen: u64,
    /// The process has ended without an orderly exit.
    pub gone: bool,
    /// A contradiction in the tables ([`Rank::doubt`]).
    pub doubt: Option<String>,
    pub threads: Vec<(u16, Thread)>,
    pub calls: Vec<Calls>,
    pub sites: Vec<Site>,
    pub modules: Vec<Module>,
    /// Traffic with peers, by rank of its world.
    pub peers: Vec<Peer>,
    pub phases: Vec<Phase>,
    /// What was noted between blocks of delays.
    pub marks: Vec<Mark>,
}

impl Tables {
    pub fn open(path: &Path) -> Result<Tables> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        Tables::of(Rank::open(path)?, name.unwrap_or_default()).map_err(|fault| fault.within(path.display()))
    }

    /// `file`: the name of its file.
    pub fn of(rank: Rank, file: String) -> Result<Tables> {
        let header = rank.header;
        if header.placed == 0 {
            return Err(Fault::new(
                format!("process {} on {}", header.pid, words(&header.host)),
                "it did not get through MPI_Init",
                "read what it printed; the other ranks are shown without it",
            ));
        }
        let used = |(thread, function, group, (size_class, cell)): (u16, FunctionId, u32, (usize, Cell))| {
            (cell.calls > 0).then_some(Calls { thread, function, group, size_class, cell })
        };
        Ok(Tables {
            file,
            world: 0,
            header,
            tick: rank.tick().map_or(0.0, |nanoseconds| nanoseconds / 1e9),
            seen: 0,
            gone: false,
            doubt: rank.doubt,
            threads: rank.threads.into_iter().collect(),
            calls: rank
                .rows
                .into_iter()
                .flat_map(|row| {
                    let cells = row.cells.into_iter().enumerate();
                    cells.map(move |cell| (row.thread, row.function, row.group, cell)).filter_map(used)
                })
                .collect(),
            sites: rank.sites.into_iter().map(|(_, site)| site).filter(|site| site.calls > 0).collect(),
            modules: rank.modules,
            peers: rank.peers,
            phases: rank.phases,
            marks: rank.marks,
        })
    }

    pub fn host(&self) -> String {
        words(&self.header.host)
    }

    /// The run in ticks, `(from, to)`: from MPI_Init's return to MPI_Finalize's call. Without that call the run ends at the
    /// last known time of the rank; after a failure of the profiler, at the failure.
    pub fn run(&self) -> (u64, u64) {
        let header = &self.header;
        let from = if header.initialized == 0 { header.started.ticks } else { header.initialized };
        let last = || {
            let entered = self.threads.iter().filter(|(_, thread)| thread.inside != 0).map(|(_, thread)| thread.since);
            [header.ended, header.aborted, header.latest.ticks, self.seen].into_iter().chain(entered).max().unwrap_or(0)
        };
        let to = match header.failed {
            0 if header.finalized == 0 => last(),
            0 => header.finalized,
            // Later calls are in no table.
            failed => failed,
        };
        (from, to.max(from))
    }

    /// `over`: whether the job has ended.
    pub fn state(&self, over: bool) -> State {
        let header = &self.header;
        match () {
            () if header.aborted != 0 => State::Aborted,
            () if header.finalized != 0 => State::Finalized,
            () if header.ended != 0 => State::Exited,
            () if over || self.gone => State::Killed,
            () => State::Running,
        }
    }

    pub fn seconds(&self, ticks: u64) -> f64 {
        ticks as f64 * self.tick
    }

    /// CLOCK_REALTIME, ns since 1970, when the counter stood at `ticks`.
    pub fn realtime(&self, ticks: u64) -> f64 {
        let since = ticks as f64 - self.header.started.ticks as f64;
        self.header.started.realtime as f64 + since * self.tick * 1e9
    }
}
