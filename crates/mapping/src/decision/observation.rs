//! An observation of a job's ranks and of the cores of its hosts in one window of time.

use machine::{CoreId, CpuSet, Nanoseconds};
use serde::{Deserialize, Serialize};

/// One window. A recorded run has a line of JSON for each.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// When the window ended, by the caller's clock.
    pub time: Nanoseconds,
    /// The ranks, in the same order in every window.
    pub ranks: Vec<RankSeen>,
    /// The cores on which ranks are or might be.
    pub cores: Vec<CoreSeen>,
}

/// The identity of a process on its host: process numbers are reused, but with other start times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it started, in the kernel's ticks since the boot.
    pub started: u64,
}

/// One rank. Shares are of the window, 0 to 1; `None` is not known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RankSeen {
    /// Its number in the job.
    pub rank: u32,
    /// Its host's name.
    pub host: String,
    /// Its process.
    pub process: Process,
    /// Its seat: the cores that its threads may run on.
    pub cores: CpuSet,
    /// The cores that its control group allows.
    pub allowed: CpuSet,
    /// The NUMA node of its memory, from which it is not moved.
    pub node: Option<u32>,
    /// The reason why it is left alone: its program pinned it, the caller does not reach its host, and the like.
    pub held: Option<String>,
    /// Share of the time in MPI; the rest is computing, but for `blocked`.
    pub mpi: Option<f64>,
    /// Share of the time that it waited for others.
    pub wait: Option<f64>,
    /// Share of the time that it was blocked outside MPI, which passes as fast on any core.
    #[serde(default)]
    pub blocked: Option<f64>,
    /// Length of a wait for others, s: the mean over the time that it waited.
    #[serde(default)]
    pub pause: Option<f64>,
    /// Share of its processor time in the kernel.
    #[serde(default)]
    pub system: Option<f64>,
    /// Share of the time that it was runnable while others had its core.
    pub denied: Option<f64>,
    /// Its progress: messages or calls a second.
    pub progress: Option<f64>,
    /// The rank of another host with which it exchanges most, where their messages are large.
    pub partner: Option<u32>,
}

/// One logical CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CoreSeen {
    /// Its host's name.
    pub host: String,
    /// The kernel's number.
    pub core: CoreId,
    /// Its NUMA node.
    pub node: Option<u32>,
    /// Share of the time used by others than the job's ranks.
    pub taken: Option<f64>,
    /// Length of a stretch of time for which others keep a rank from the core, s: the mean over the time that they take.
    /// Interrupts count as 0.
    #[serde(default)]
    pub stretch: Option<f64>,
    /// Whether ranks of another job are on it.
    pub occupied: bool,
}

impl Observation {
    /// Whether no rank came, went or moved between the two windows. Places of ranks that are left alone do not matter.
    pub(super) fn is_alike(&self, other: &Observation) -> bool {
        let rank = |a: &RankSeen, b: &RankSeen| {
            let same = (a.rank, a.process, &a.held) == (b.rank, b.process, &b.held);
            same && (a.held.is_some() || a.cores == b.cores)
        };
        let core = |a: &CoreSeen, b: &CoreSeen| (&a.host, a.core, a.occupied) == (&b.host, b.core, b.occupied);
        self.ranks.len() == other.ranks.len()
            && self.cores.len() == other.cores.len()
            && self.ranks.iter().zip(&other.ranks).all(|(a, b)| rank(a, b))
            && self.cores.iter().zip(&other.cores).all(|(a, b)| core(a, b))
    }

    /// The means of windows that are alike; a figure that is unknown in one of them is unknown.
    pub(super) fn mean<'a>(windows: impl ExactSizeIterator<Item = &'a Observation> + Clone) -> Option<Observation> {
        let count = windows.len() as f64;
        let mut mean = windows.clone().last()?.clone();
        let over = |share: &dyn Fn(&Observation) -> Option<f64>| {
            windows.clone().map(share).sum::<Option<f64>>().map(|sum| sum / count)
        };
        for (place, rank) in mean.ranks.iter_mut().enumerate() {
            rank.mpi = over(&|window| window.ranks[place].mpi);
            rank.wait = over(&|window| window.ranks[place].wait);
            rank.blocked = over(&|window| window.ranks[place].blocked);
            rank.system = over(&|window| window.ranks[place].system);
            rank.pause = over(&|window| window.ranks[place].pause);
        }
        for (place, core) in mean.cores.iter_mut().enumerate() {
            core.taken = over(&|window| window.cores[place].taken);
            core.stretch = over(&|window| window.cores[place].stretch);
        }
        Some(mean)
    }
}
