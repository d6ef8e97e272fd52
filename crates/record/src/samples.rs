//! What the cores of a host did while its ranks ran, and the ranks on them, moment by moment on one clock.
//!
//! ```text
//! MAGIC  VERSION (u32)  frame*         frame: length, kind, contents, seal (u32) of kind and contents
//! ```
//! Numbers are little-endian base-128 (LEB128) but for the version and seals. Of each subject (a core, a thread of a rank, a rank,
//! a zone of energy) running totals are kept, so that a moment that is missing costs resolution and nothing else. A
//! frame of a moment holds what changed since the last: most of its totals grow by little, and an idle core takes no
//! byte. A file that was cut off is read up to its last whole frame, a damaged one up to the damage.
//!
//! Work is looked at often, load (which the kernel itself knows only to some ms, or tells at length) less often.

mod frame;
mod power;
mod reader;
mod series;
mod tail;
#[cfg(test)]
mod tests;
mod writer;

use machine::Reading;

pub use power::PowerSamples;
pub use reader::{CoreSamples, MISSED, RankSamples, Samples, ThreadSamples};
pub use series::{Series, Totals};
pub use tail::Tail;
pub use writer::Writer;

pub const MAGIC: [u8; 8] = *b"PLIMSAMP";
/// Raised when the format changes.
pub const VERSION: u32 = 2;

/// What the samples are of. Times are of CLOCK_MONOTONIC of the host, ns, where nothing else is said.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    pub host: String,
    /// Of the host's present start, as the kernel gives it. Ranks whose tables have the same are the ones sampled here.
    pub boot: String,
    /// Number of the process that samples.
    pub pid: u32,
    /// One moment on two clocks: CLOCK_MONOTONIC, and CLOCK_REALTIME in ns since 1970.
    pub monotonic: u64,
    pub realtime: u64,
    /// Time from one sample to the next, as it was at the start; later intervals are in [`SamplerCost`].
    pub interval: u64,
    /// Cores that the host's ranks may use, threads of one core counted once; `None` where it is not known, as in heads of
    /// version 1.
    pub for_ranks: Option<u32>,
    /// Cores that are on line, and the package that each is in.
    pub cores: Vec<(u32, u32)>,
    pub origins: Origins,
}

/// How each kind of value was got, in words; or why it is missing.
#[derive(Debug, Clone, PartialEq)]
pub struct Origins {
    /// [`CoreWork::net_rx`], [`CoreWork::net_tx`].
    pub softirq_counts: Reading<String>,
    /// [`CoreWork::net_rx_time`], [`CoreWork::net_tx_time`].
    pub softirq_times: Reading<String>,
    /// [`CoreWork::softirq_time`]; modelled where the kernel estimates it by its ticks.
    pub softirq_all: Reading<String>,
    pub interrupts: Reading<String>,
    /// [`CoreLoad`].
    pub load: Reading<String>,
    pub energy: Reading<String>,
    /// [`ThreadWork`], [`ThreadLoad`], [`ThreadStop`], [`ThreadBlocked`], [`ThreadRan`] and [`ThreadDelay`].
    pub ranks: Reading<String>,
}

impl Origins {
    /// Everything was measured, in this way.
    pub fn measured(how: &str) -> Origins {
        let how = || Reading::Measured(how.to_owned());
        Origins {
            softirq_counts: how(),
            softirq_times: how(),
            softirq_all: how(),
            interrupts: how(),
            load: how(),
            energy: how(),
            ranks: how(),
        }
    }
}

/// What a reader must know of the host to tell ranks' time from other work. Files of earlier versions of plimsoll have none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounting {
    /// Whether the kernel's account of a thread has the softirqs that interrupted it; `None`: not known.
    pub softirqs_charged: Option<bool>,
    /// Whether it has what a hypervisor took meanwhile.
    pub stolen_charged: Option<bool>,
    /// Threads of one core with the first thread of that core, for cores that have several.
    pub threads: Vec<(u32, u32)>,
}

series::totals! {
    /// What a core did for the network and was interrupted by, since some moment before the first.
    CoreWork: 1 {
        /// Receive softirqs, and the time in them, ns.
        net_rx,
        net_rx_time,
        /// Send softirqs, which finish transmission, and the time in them, ns.
        net_tx,
        net_tx_time,
        /// In softirqs of all kinds, the network's among them, ns.
        softirq_time,
        /// From devices and other cores; not its own timer.
        interrupts,
    }

    /// How a core's time passed; known to 10 ms.
    CoreLoad: 2 {
        /// ns.
        idle,
        /// That a hypervisor gave to others, ns.
        stolen,
    }

    /// A thread of a rank that calls MPI, as its tables say.
    ThreadWork: 3 {
        /// Where it ran last, plus 1; 0: not known.
        core: absolute,
        /// The function that it is in, plus 1; 0: in none.
        inside: absolute,
        /// Ticks (of the rank's tables) when it entered that.
        since: absolute,
        calls,
        messages,
        bytes,
        /// Ticks inside calls that are over, by class of function.
        ticks: [12],
    }

    /// How often a thread of a rank left its core.
    ThreadLoad: 4 {
        /// To wait for something.
        voluntary,
        /// Because another was to run.
        involuntary,
    }

    /// The processor time that a rank used, with all of its threads.
    RankLoad: 5 {
        /// ns.
        cpu,
    }

    Energy: 6 {
        microjoules,
    }

    /// What sampling itself took.
    SamplerCost: 7 {
        /// Processor time, ns.
        cpu,
        /// Looks.
        looks,
        /// Where it ran last, plus 1.
        core: absolute,
        /// From one look to the next at present, ns.
        interval: absolute,
    }

    /// How long a thread of a rank was stopped, by what the looks found. It has none where its state cannot be read.
    ThreadStop: 8 {
        /// By a signal or by a debugger, ns.
        stopped,
    }

    /// What the kernel's own thread for softirqs used of a core (ksoftirqd). Files of earlier versions of plimsoll have none.
    CoreDeferred: 10 {
        /// ns.
        cpu,
    }

    /// The clock of a core. A core has none where the kernel tells none.
    CoreClock: 11 {
        hertz: absolute,
    }

    /// How long a thread of a rank was on a core. Files of earlier versions of plimsoll have none.
    ThreadRan: 12 {
        /// ns.
        ran,
    }

    /// How long a thread of a rank was blocked (neither on a core nor runnable nor stopped), by what the looks found. Files of
    /// earlier versions of plimsoll have none.
    ThreadBlocked: 13 {
        /// Outside of MPI, ns.
        outside,
        /// Inside MPI, ns.
        inside,
        /// Of `outside`: until a time that it had set.
        sleep,
        /// Of `outside`: by a lock.
        lock,
        /// Of `outside`: by a disk, a file system or memory that was paged out.
        storage,
    }

    /// How long a thread of a rank was runnable while others had its core. It has none where the kernel does not count that.
    ThreadDelay: 9 {
        /// ns.
        delayed,
    }
}

impl ThreadWork {
    /// Where it ran last.
    pub fn on(&self) -> Option<u32> {
        self.core.checked_sub(1).map(|core| core as u32)
    }
}
